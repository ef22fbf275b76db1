"""Seneca's JSON documents, split into members that stay encoded.

A document is an object whose members keep the text they came as (`dict[str, msgspec.Raw]`): numbers keep their digits,
and only members that are looked at are decoded. Decoding to `Raw` checks neither UTF-8 nor nesting depth, so both are
checked here. Of duplicate keys the last one wins.

Meta data is read leniently: a field of the wrong type counts as absent and is never a reason to refuse a message.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from raceway.errors import MalformedError
from raceway.model.envelope import encode_json

T = TypeVar("T")
Members = dict[str, Raw]

# RFC 8259, 9: a parser may limit depth. Node parses far deeper; Python's recursive decoders do not.
MAX_DEPTH = 512
# Range of the journal's integer columns.
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# JSON null and a missing member mean the same.
ABSENT = Raw(b"null")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members = msgspec.json.Decoder(Members).decode
_raw = msgspec.json.Decoder(Raw).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_text = msgspec.json.Decoder(str).decode
decode_any = msgspec.json.Decoder().decode

# Depth changes per byte, for `_depth`; 255 is -1 as a signed byte.
_DOWN, _UP = 1, 255
_STEPS = bytes(_DOWN if byte in b"[{" else _UP if byte in b"]}" else 0 for byte in range(256))
_NO_STEP = bytes(byte for byte in range(256) if byte not in b"[]{}")


class DocumentError(MalformedError):
    """A body or line that is not a message; `seneca_code` is `invalid_json` or `invalid_message`."""

    def __init__(self, seneca_code: str, reason: str) -> None:
        super().__init__(reason)
        self.seneca_code = seneca_code


def not_json() -> DocumentError:
    """Bytes that are not JSON."""
    return DocumentError("invalid_json", "seneca: Invalid JSON")


def not_message() -> DocumentError:
    """JSON that is not an object."""
    return DocumentError("invalid_message", "seneca: message must be a JSON object")


# ---- documents ------------------------------------------------------------------------------------------------------


def read_members(data: bytes) -> Members:
    """Decode an object's members. Raises DocumentError for anything else."""
    check_text(data)
    try:
        return _members(data)
    except msgspec.ValidationError:
        # A wrong type is reported before trailing garbage is seen: decode again to tell invalid JSON from a non-object.
        read_value(data)
        raise not_message() from None
    except UNREADABLE:
        raise not_json() from None


def read_value(data: bytes) -> Raw:
    """Decode one JSON value, kept as text without surrounding white space. Raises DocumentError."""
    check_text(data)
    try:
        return _raw(data)
    except UNREADABLE:
        raise not_json() from None


def check_text(data: bytes) -> None:
    """Check what decoding to `Raw` does not: UTF-8 and nesting depth. Raises DocumentError."""
    try:
        # RFC 8259, 8.1: JSON on the network is UTF-8.
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        raise not_json() from None
    # Cheap bounds first: the exact depth is computed for suspicious documents only.
    if len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise DocumentError("invalid_json", f"seneca: JSON nested deeper than {MAX_DEPTH} levels")


def _depth(data: bytes) -> int:
    """Return the nesting depth of the brackets outside strings."""
    # With escapes removed every second piece between quotes lies outside a string. Wrong for invalid JSON, which the
    # decoder refuses anyway. `accumulate` runs in C: a megabyte takes milliseconds.
    outside = b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_STEP))
    return max(accumulate(steps), default=0)


def with_member(document: bytes, name: bytes, value: bytes) -> bytes:
    """Return an object with one more member. If the name exists already, readers take the last one (RFC 8259, 4)."""
    head = document.strip()[:-1]
    comma = b"" if head.rstrip() == b"{" else b","
    return b'%b%b"%b":%b}' % (head, comma, name, value)


# ---- values ---------------------------------------------------------------------------------------------------------


def maybe_members(value: Raw | None) -> Members | None:
    """Decode a value that is an object."""
    members: Members | None = maybe_decoded(_members, value)
    return members


def raw_items(value: Raw | None) -> list[Raw]:
    """Return the items of a value that is an array, still encoded."""
    return maybe_decoded(_items, value) or []


def maybe_text(value: Raw | None) -> str | None:
    """Decode a value that is a string."""
    text: str | None = maybe_decoded(_text, value)
    return text


def is_true(value: Raw | None) -> bool:
    """Report whether a flag is set; only the literal `true` sets it."""
    return value is not None and bytes(value) == b"true"


def maybe_bytes(value: Raw | None) -> bytes | None:
    """Return the JSON of a value that is present."""
    return None if value is None or value is ABSENT else bytes(value)


def maybe_decoded(decode: Any, value: Raw | None) -> Any:
    """Decode a value; None if it is absent or of another type."""
    if value is None:
        return None
    try:
        return decode(value)
    except UNREADABLE:
        return None


def maybe_whole(value: object, least: int = 0) -> int | None:
    """Return a whole number that fits an integer column; None for anything else."""
    if type(value) is int:
        return value if least <= value <= INT64_MAX else None
    # JavaScript has one number type: 1 and 1.0 are the same.
    if type(value) is float and math.isfinite(value) and value.is_integer():
        return maybe_whole(int(value), least)
    return None


def raw_of(value: object) -> Raw:
    """Encode a Python value as `Raw`."""
    return Raw(encode_json(value))


def raw_members(data: Mapping[str, object]) -> Members:
    """Encode plain Python data as members."""
    return {name: value if isinstance(value, Raw) else raw_of(value) for name, value in data.items()}
