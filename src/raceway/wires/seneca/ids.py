"""Ids in the form of npm Seneca: of messages, and of instances."""

from __future__ import annotations

import time

from raceway.chance import process_id, random_bytes

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def fresh_id() -> str:
    """Return a random id of twelve letters and digits."""
    return "".join([LETTERS[byte % 36] for byte in random_bytes(12)])


def instance_id(address: str, tag: str) -> str:
    """Return an id of this process: random letters, start time in ms, address, process id, tag."""
    return f"{fresh_id()}/{time.time_ns() // 1_000_000}/{address}/{process_id()}/{tag}"
