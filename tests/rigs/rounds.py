"""Repetitions of random tests: few in `make test`; in `make soak` as many as `RACEWAY_ROUNDS` says, if that is more."""

from __future__ import annotations

import os
import random

ROUNDS = int(os.environ.get("RACEWAY_ROUNDS", "0"))
SOAKING = ROUNDS > 0


def rounds(few: int, soaking: int = 0) -> int:
    """`few`; what the environment asks for if that is more, and then at least `soaking`."""
    return max(few, ROUNDS, soaking if SOAKING else 0)


def seeded(name: str) -> random.Random:
    """Random numbers of a new seed, which pytest shows when the test fails. Set RACEWAY_SEED to see a failure again."""
    seed = int(os.environ.get("RACEWAY_SEED", random.SystemRandom().randrange(2**32)))
    print(f"{name}: RACEWAY_SEED={seed}")
    return random.Random(seed)
