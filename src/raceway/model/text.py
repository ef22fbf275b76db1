"""Bytes that are meant to be text."""

from __future__ import annotations


def is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
