"""Checksums that repair: one CRC-32C per 64 KiB stripe, from which a single flipped bit can be located.

A CRC is linear: the difference between the stored and the computed value depends on which bits were flipped and not on
the data. So a stripe with one flipped bit is repaired by asking which position has that difference (its *syndrome*).

What can be promised. The polynomial of CRC-32C is (x + 1) times a primitive one of degree 31: its period is 2^31 - 1
bits, and stripe plus CRC are 524,320 bits. Hence

- every single flip, in the stripe or in the stored CRC, has its own syndrome: it is located and repaired exactly;
- an even number of flips never looks like a single one (x + 1 counts parity): it is never "repaired" into wrong data,
  and two flips are never overlooked;
- an odd number from three on looks like a single flip by chance, in 524,320 of 2^31 cases: once in 4,096. A
  caller that cannot accept this keeps a second, independent check of the repaired bytes (the block's word sum, a digest
  beside the CRC).

Positions are found by baby steps and giant steps: the syndromes of the last 8,192 bits are kept in a table, and the
difference is moved towards the end of the stripe 8,192 bits at a time until the table knows it: 64 steps at most.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, reduce
from hashlib import blake2b
from operator import xor

from google_crc32c import value

# Smaller stripes would confine damage further but cost more CRCs to store; larger ones make repair slower, and
# a wrong repair of three flips more likely.
STRIPE = 65_536

_POLYNOMIAL = 0x82F63B78  # CRC-32C, bit-reflected: the syndrome of the last bit of a stripe
_TOP = 0x80000000
# 64 giant steps cover a stripe. The table of baby steps is built on first use, that is, at the first damage.
_NEAR_BITS = 8192
# 128 bits: a wrong repair that passes this too will not happen by chance.
_DIGEST_BYTES = 16


def crc(data: bytes) -> int:
    """Return the CRC-32C of `data`, which must be `bytes`: the C library takes nothing else."""
    return int(value(data))


def sums(data: bytes) -> list[int]:
    """Return the CRC of each stripe; the last stripe may be short. Empty for no data."""
    return [crc(data[start : start + STRIPE]) for start in range(0, len(data), STRIPE)]


def maybe_mend(stripe: bytes, expected: int) -> bytes | None:
    """Return the stripe as it was when its CRC was `expected`, if at most one flipped bit explains the difference.

    A flipped bit of `expected` itself leaves the stripe unchanged. None: more than one bit is damaged.
    """
    difference = crc(stripe) ^ expected
    if difference & (difference - 1) == 0:  # equal, or one bit of the stored CRC: no data bit has such a syndrome
        return stripe
    # XOR of the two CRCs is the CRC of the error pattern alone: init value and final inversion cancel out.
    distance = _maybe_distance_from_end(difference, len(stripe) * 8)
    if distance is None:
        return None
    mended = bytearray(stripe)
    mended[-1 - distance // 8] ^= 0x80 >> distance % 8  # reflected: the highest bit of a byte comes last
    return bytes(mended)


def maybe_mend_all(data: bytes, expected: Sequence[int]) -> tuple[bytes, list[int], list[int]]:
    """Check each stripe of `data`; return (repaired data, numbers of repaired stripes, numbers of bad ones).

    Bad stripes are returned unchanged. A stripe without its CRC, or a CRC without its stripe, is bad.
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
    # The common case, nothing repaired, copies nothing.
    return (b"".join(stripes) if repaired else data), repaired, sorted(bad)


def protect(body: bytes) -> bytes:
    """Wrap a small file so that it can be repaired: `body`, its digest, and the CRC of each stripe of both.

    There is no length field that could be damaged: the total size determines the number of CRCs at the end.
    """
    # The digest lies inside the checked stripes, so that a flip in the digest is repaired like any other.
    content = body + blake2b(body, digest_size=_DIGEST_BYTES).digest()
    expected = sums(content)
    return content + struct.pack(f"<{len(expected)}I", *expected)


def maybe_unprotect(data: bytes) -> tuple[bytes, bool] | None:
    """Return (body, whether it was repaired), or None if it is damaged beyond one flipped bit per stripe."""
    # n bytes of content give ceil(n / STRIPE) CRCs of 4 bytes, hence ceil(total / (STRIPE + 4)) stripes.
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
    """Return how many bits before the last one the bit with this syndrome lies; None if there is none."""
    near, jump = _near_syndromes(), _jump_tables()
    for skipped in range(0, bits, _NEAR_BITS):
        found = near.get(syndrome)
        if found is not None:
            # A hit beyond the beginning of a short stripe is a syndrome of more than one flip.
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
    """Return a map from syndrome to distance from the end, for the last bits of a stripe."""
    found: dict[int, int] = {}
    syndrome = _POLYNOMIAL
    for distance in range(_NEAR_BITS):
        found[syndrome] = distance
        # One bit further from the end is one more step of the bit-reflected shift register.
        syndrome = (syndrome >> 1) ^ (_POLYNOMIAL if syndrome & 1 else 0)
    return found


@cache
def _jump_tables() -> tuple[list[int], ...]:
    """Return, for each byte of a syndrome, its value `_NEAR_BITS` nearer to the end.

    The map is linear, so the XOR of the four bytes' values is the value of the whole.
    """
    columns = [_nearer(1 << bit, _NEAR_BITS) for bit in range(32)]

    def nearer(byte: int, value: int) -> int:
        return reduce(xor, (columns[8 * byte + bit] for bit in range(8) if value >> bit & 1), 0)

    return tuple([nearer(byte, value) for value in range(256)] for byte in range(4))


def _nearer(syndrome: int, bits: int) -> int:
    """Return the syndrome of the bit that lies `bits` nearer to the end."""
    for _ in range(bits):
        # The inverse of a shift: bit 31 is set exactly if the polynomial was added, as its own bit 31 is 1.
        syndrome = ((syndrome ^ _POLYNOMIAL) << 1 | 1) if syndrome & _TOP else syndrome << 1
    return syndrome
