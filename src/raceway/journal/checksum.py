"""Checksums that repair: one CRC-32C per 64 KiB stripe, and the single flipped bit it can find again.

A CRC is linear: the difference between the stored and the computed value depends on which bits were flipped and not on
the data. So a stripe with one flipped bit is mended by asking which position has that difference (its *syndrome*).

What can be promised. The polynomial of CRC-32C is (x + 1) times a primitive one of degree 31: its period is 2^31 - 1
bits, and stripe plus CRC are 524,320 bits. Hence

- every single flip, in the stripe or in the stored CRC, has its own syndrome: it is found and mended exactly;
- an even number of flips never looks like a single one (x + 1 counts parity): it is never "mended" into wrong data, and
  two flips are never overlooked;
- an odd number from three on looks like a single flip by chance, in 524,320 of 2^31 cases: once in 4,096. Whoever must
  not live with that keeps a second, independent check and asks it about the mended bytes (the block's own structure, a
  digest beside the CRC).

Positions are found by baby steps and giant steps: the syndromes of the last 8,192 bits are kept in a table, and the
difference is moved towards the end of the stripe 8,192 bits at a time until the table knows it: 64 steps at most.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

from google_crc32c import value

STRIPE = 65_536

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bit-reflected: the syndrome of the last bit of a stripe
_TOP = 0x80000000
_NEAR_BITS = 8192
_DIGEST_BYTES = 16


def crc(data: bytes) -> int:
    """CRC-32C of `data` (which must be `bytes`: the C library takes nothing else)."""
    return int(value(data))


def sums(data: bytes) -> list[int]:
    """The CRC of each stripe; the last one may be short. Nothing for no data."""
    return [crc(data[start : start + STRIPE]) for start in range(0, len(data), STRIPE)]


def maybe_mend(stripe: bytes, expected: int) -> bytes | None:
    """The stripe as it was when its CRC was `expected`, if at most one flipped bit explains the difference.

    A flipped bit of `expected` itself leaves the stripe unchanged. None: worse damage than one bit.
    """
    difference = crc(stripe) ^ expected
    if difference & (difference - 1) == 0:  # equal, or one bit of the stored CRC: no data bit has such a syndrome
        return stripe
    distance = _maybe_distance_from_end(difference, len(stripe) * 8)
    if distance is None:
        return None
    mended = bytearray(stripe)
    mended[-1 - distance // 8] ^= 0x80 >> distance % 8  # reflected: the highest bit of a byte comes last
    return bytes(mended)


def maybe_mend_all(data: bytes, expected: Sequence[int]) -> tuple[bytes, list[int], list[int]]:
    """Check each stripe of `data`: (mended data, numbers of repaired stripes, numbers of bad ones).

    Bad stripes are left as they are. A stripe without its CRC, or a CRC without its stripe, is bad.
    """
    present = (len(data) + STRIPE - 1) // STRIPE
    stripes = [data[number * STRIPE : (number + 1) * STRIPE] for number in range(present)]
    repaired: list[int] = []
    bad = list(range(min(present, len(expected)), max(present, len(expected))))
    for number, (stripe, wanted) in enumerate(zip(stripes, expected, strict=False)):
        if crc(stripe) == wanted:
            continue
        mended = maybe_mend(stripe, wanted)
        if mended is None:
            bad.append(number)
        else:
            stripes[number] = mended
            repaired.append(number)
    return (b"".join(stripes) if repaired else data), repaired, sorted(bad)


def protect(body: bytes) -> bytes:
    """A small file that mends itself: `body`, a digest of it, and the CRC of each stripe of both.

    There is no length field that could be damaged: the size of the whole says how many CRCs stand at the end.
    """
    content = body + blake2b(body, digest_size=_DIGEST_BYTES).digest()
    expected = sums(content)
    return content + struct.pack(f"<{len(expected)}I", *expected)


def maybe_unprotect(data: bytes) -> tuple[bytes, bool] | None:
    """(the body, whether it had to be mended), or None if it is damaged beyond one flipped bit per stripe."""
    stripes = -(-len(data) // (STRIPE + 4))
    end = len(data) - 4 * stripes
    if end < _DIGEST_BYTES:
        return None
    content, repaired, bad = maybe_mend_all(data[:end], struct.unpack(f"<{stripes}I", data[end:]))
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if bad or blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
        return None
    return body, bool(repaired)


def _maybe_distance_from_end(syndrome: int, bits: int) -> int | None:
    """How many bits before the last one the bit with this syndrome lies."""
    near, jump = _near_syndromes(), _jump_tables()
    for skipped in range(0, bits, _NEAR_BITS):
        found = near.get(syndrome)
        if found is not None:
            return skipped + found if skipped + found < bits else None
        syndrome = (
            jump[0][syndrome & 0xFF]
            ^ jump[1][syndrome >> 8 & 0xFF]
            ^ jump[2][syndrome >> 16 & 0xFF]
            ^ jump[3][syndrome >> 24]
        )
    return None


@cache
def _near_syndromes() -> dict[int, int]:
    """Syndrome to distance from the end, for the last bits of a stripe."""
    found: dict[int, int] = {}
    syndrome = _POLYNOMIAL
    for distance in range(_NEAR_BITS):
        found[syndrome] = distance
        syndrome = (syndrome >> 1) ^ (_POLYNOMIAL if syndrome & 1 else 0)
    return found


@cache
def _jump_tables() -> tuple[list[int], ...]:
    """For each byte of a syndrome what it becomes `_NEAR_BITS` nearer to the end: the map is linear, so XOR adds up."""
    columns = [_nearer(1 << bit, _NEAR_BITS) for bit in range(32)]
    return tuple([_combine(columns[8 * byte : 8 * byte + 8], index) for index in range(256)] for byte in range(4))


def _nearer(syndrome: int, bits: int) -> int:
    for _ in range(bits):
        syndrome = ((syndrome ^ _POLYNOMIAL) << 1 | 1) if syndrome & _TOP else syndrome << 1
    return syndrome


def _combine(columns: Sequence[int], chosen: int) -> int:
    total = 0
    for bit, column in enumerate(columns):
        if chosen >> bit & 1:
            total ^= column
    return total
