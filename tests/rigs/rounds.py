"""How often the random tests repeat: few times in `make test`, `RACEWAY_ROUNDS` times in `make soak`."""

from __future__ import annotations

import os
import random

ROUNDS = int(os.environ.get("RACEWAY_ROUNDS", "0"))
SOAKING = ROUNDS > 0


def rounds(few: int) -> int:
    """`few`, or what the environment asks for."""
    return ROUNDS or few


def seeded(name: str) -> random.Random:
    """Random numbers of a new seed, which pytest shows when the test fails. Set RACEWAY_SEED to see a failure again."""
    seed = int(os.environ.get("RACEWAY_SEED", random.SystemRandom().randrange(2**32)))
    print(f"{name}: RACEWAY_SEED={seed}")
    return random.Random(seed)
