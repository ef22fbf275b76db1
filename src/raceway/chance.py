"""Chance, and the number of the process: everything that differs from run to run without being asked for.

A simulation replaces them, so that all of a run follows from its seed.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Dice(Protocol):
    """Part of the interface of `random.Random`."""

    def randbytes(self, n: int, /) -> bytes: ...
    def getrandbits(self, k: int, /) -> int: ...
    def random(self) -> float: ...


class _System:
    """Random numbers of the operating system, good enough for secrets."""

    def randbytes(self, n: int) -> bytes:
        return os.urandom(n)

    def getrandbits(self, k: int) -> int:
        return secrets.randbits(k)

    def random(self) -> float:
        return random.random()  # noqa: S311 - for choices and pauses, which are no secret


_dice: Dice = _System()
_process: int | None = None


def random_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess."""
    return _dice.randbytes(count)


def random_bits(count: int) -> int:
    """Return a number of so many bits that nobody can guess."""
    return _dice.getrandbits(count)


def fraction() -> float:
    """Return a number from 0 to 1, without 1. No secret."""
    return _dice.random()


def pick(items: Sequence[Item], count: int) -> list[Item]:
    """Choose so many times one of the items. No secret."""
    return [items[int(_dice.random() * len(items))] for _ in range(count)]


def process_id() -> int:
    """Return the number of the process."""
    return os.getpid() if _process is None else _process


@contextmanager
def replaced(dice: Dice, process: int) -> Iterator[None]:
    """Take all of it from other dice meanwhile."""
    global _dice, _process
    kept = _dice, _process
    _dice, _process = dice, process
    try:
        yield
    finally:
        _dice, _process = kept
