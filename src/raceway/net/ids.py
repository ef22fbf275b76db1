"""Random ids: UUIDs of version 4 (RFC 9562, 5.4)."""

from __future__ import annotations

import os
from contextlib import suppress
from struct import Struct

from raceway.chance import random_bytes

# One call for random bytes lets other threads take the interpreter, which may cost more than the call.
IDS_AT_ONCE = 512

_random_ids: list[bytes] = []
# A forked process must not give the ids that its parent gives.
os.register_at_fork(after_in_child=_random_ids.clear)
# 8-4-4-4-12 digits.
_parts = Struct("8s4s4s4s12s").iter_unpack
# RFC 9562, 4.2: the version is in the upper four bits of byte 6; 4.1: the variant in the upper two bits of byte 8.
_VERSION = bytes(0x40 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))


def random_id() -> bytes:
    """Return a random UUID of version 4. Created in batches, because the call for random bytes is expensive."""
    try:
        return _random_ids.pop()  # one step, also beside other threads
    except IndexError:
        _random_ids.extend(_made(IDS_AT_ONCE - 1))
        return _made(1)[0]


def random_ids(count: int) -> list[bytes]:
    """Return many random UUIDs of version 4."""
    if len(_random_ids) >= count:
        take = _random_ids.pop
        with suppress(IndexError):  # another thread took some of them
            return [take() for _ in range(count)]
    return [random_id() for _ in range(count)]


def _made(count: int) -> list[bytes]:
    # The same byte of all of them is one slice: no step of Python per id.
    raw = bytearray(random_bytes(16 * count))
    raw[6::16] = raw[6::16].translate(_VERSION)
    raw[8::16] = raw[8::16].translate(_VARIANT)
    return list(map(b"-".join, _parts(raw.hex().encode())))
