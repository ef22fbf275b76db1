"""Chance of the bus, and that it can be replaced."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from raceway import chance

SOURCE = Path(chance.__file__).parent
# Programs of their own, which no simulation runs, and clients.
_APART = ("cli", "client", "demo", "mirror", "pipeline", "server")


def test_chance_is_that_of_the_system() -> None:
    assert len({chance.random_bytes(16) for _ in range(100)}) == 100
    assert all(chance.random_bits(63) < 1 << 63 for _ in range(100))
    assert all(0 <= chance.fraction() < 1 for _ in range(100))
    assert set(chance.pick("ab", 200)) == {"a", "b"}
    assert chance.process_id() == os.getpid()


def test_replaced_chance_follows_from_its_seed_and_ends() -> None:
    def drawn() -> list[object]:
        return [chance.random_bytes(8), chance.random_bits(40), chance.fraction(), chance.pick("abc", 5)]

    told = []
    for _ in range(2):
        with chance.replaced(random.Random(7), 1):
            assert chance.process_id() == 1
            told.append(drawn())
    assert told[0] == told[1] != drawn()
    assert chance.process_id() == os.getpid()


def test_the_bus_has_no_other_chance() -> None:
    """A simulated run would differ from the next one."""
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path.name not in ("chance.py", "commands.py")
        and path.relative_to(SOURCE).parts[0] not in _APART
        and "client" not in path.parts
        for line in path.read_text().splitlines()
        if re.search(r"urandom\(|secrets\.\w+\(|uuid4\(\)|random\.(random|choice)", line)
    ]
    assert found == []
