"""Checks of text."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    """Return whether these bytes are valid UTF-8."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
