"""Seneca's JSON documents, split into members that stay encoded.

A document is an object whose members keep the text they came as (`dict[str, msgspec.Raw]`): numbers keep their digits,
and only members that are looked at are decoded. Decoding to `Raw` checks neither UTF-8 nor nesting depth, so both are
checked here. Of duplicate keys the last one wins.

Meta data is read leniently: a field of the wrong type counts as absent and is never a reason to refuse a message.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from raceway.errors import MalformedError
from raceway.model.envelope import encode_json
from raceway.wires.seneca.codec.patterns import MISSING, NULL, Compound

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
# ECMA-262, Number::toString: decimal notation while -6 < n <= 21, otherwise an exponent.
_FIRST_EXPONENT, _LAST_LEADING_ZEROS = 21, -6


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


# ---- JavaScript's text of a value -----------------------------------------------------------------------------------


def text_of(members: Members, key: str) -> str:
    """Return the text with which a pattern's value is compared."""
    value = members.get(key)
    if value is None:
        return MISSING
    try:
        return _text_of(decode_any(value))
    except UNREADABLE:  # 1e999, or thousands of digits: RFC 8259, 6, and the other end reads doubles
        return _text_of(json.loads(bytes(value), parse_int=float))


def _text_of(value: Any) -> str:
    """`String(value)` of a decoded JSON value, marking objects and arrays as compound."""
    if type(value) is str:
        return value
    if value is None:
        return NULL
    if isinstance(value, dict):
        return Compound("[object Object]")
    if isinstance(value, list):
        return Compound(",".join(["" if each is None else _text_of(each) for each in value]))
    return js_text(value)


def js_text(value: str | float | bool) -> str:
    """Return JavaScript's `String(value)`."""
    # bool before number: True is an int in Python.
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else _js_number(value)


def _js_number(number: float) -> str:
    """`Number.prototype.toString` (ECMA-262) for radix 10."""
    try:
        number = float(number)
    except OverflowError:
        number = math.inf if number > 0 else -math.inf
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    # ECMA-262: -0 is written "0" as well.
    if number == 0:
        return "0"
    sign, digits, exponent = _shortest(number)
    point = len(digits) + exponent
    if _LAST_LEADING_ZEROS < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if 0 < point <= _FIRST_EXPONENT:
        whole, rest = digits[:point].ljust(point, "0"), digits[point:]
        return f"{sign}{whole}.{rest}" if rest else sign + whole
    mantissa = f"{digits[0]}.{digits[1:]}" if digits[1:] else digits
    return f"{sign}{mantissa}e{point - 1:+d}"


def _shortest(number: float) -> tuple[str, str, int]:
    """Return sign, shortest digits that round-trip, and the power of ten of the last digit."""
    # Python's repr and ECMA-262 both choose the fewest digits that read back as the same double.
    mantissa, _, power = repr(abs(number)).partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = whole + rest.rstrip("0") if rest.strip("0") else whole
    exponent = int(power or 0) - len(rest.rstrip("0"))
    stripped = digits.lstrip("0")
    exponent += len(stripped) - len(stripped.rstrip("0"))
    return "-" if number < 0 else "", stripped.rstrip("0"), exponent
