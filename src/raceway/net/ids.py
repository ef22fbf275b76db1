"""Random ids: UUIDs of version 4 (RFC 9562, 5.4)."""

from __future__ import annotations

import os

IDS_AT_ONCE = 64

_random_ids: list[bytes] = []


def random_id() -> bytes:
    """Return a random UUID of version 4. Created in batches, because the call for random bytes is expensive."""
    if not _random_ids:
        digits = os.urandom(16 * IDS_AT_ONCE).hex()
        _random_ids.extend(uuid4(digits[at : at + 32]) for at in range(0, len(digits), 32))
    return _random_ids.pop()


def uuid4(digits: str) -> bytes:
    """Make a UUID of version 4 from 32 random hexadecimal digits."""
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}".encode()
