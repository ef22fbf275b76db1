"""Seneca's JSON documents, taken apart without being understood.

A document is an object whose members stay the text they came as (`dict[str, msgspec.Raw]`): numbers keep their digits,
and only what is looked at is decoded. Skipped values are not checked for UTF-8 and may be nested as deep as they like,
so both are checked here. Duplicate keys: the last one wins.

Lenient reading is for meta data: a field of another type is as good as absent, never a reason to refuse a message.
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
from raceway.model.patterns import MISSING, NULL, Compound

T = TypeVar("T")
Members = dict[str, Raw]

MAX_DEPTH = 512
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# Null says as much as nothing.
ABSENT = Raw(b"null")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_members = msgspec.json.Decoder(Members).decode
_raw = msgspec.json.Decoder(Raw).decode
_items = msgspec.json.Decoder(list[Raw]).decode
_text = msgspec.json.Decoder(str).decode
decode_any = msgspec.json.Decoder().decode

# Brackets as steps of depth, for `_depth`.
_DOWN, _UP = 1, 255
_STEPS = bytes(_DOWN if byte in b"[{" else _UP if byte in b"]}" else 0 for byte in range(256))
_NO_STEP = bytes(byte for byte in range(256) if byte not in b"[]{}")
# From here on JavaScript writes an exponent.
_FIRST_EXPONENT, _LAST_LEADING_ZEROS = 21, -6


class DocumentError(MalformedError):
    """`seneca_code` is `invalid_json` or `invalid_message`."""

    def __init__(self, seneca_code: str, reason: str) -> None:
        super().__init__(reason)
        self.seneca_code = seneca_code


def not_json() -> DocumentError:
    return DocumentError("invalid_json", "seneca: Invalid JSON")


def not_message() -> DocumentError:
    return DocumentError("invalid_message", "seneca: message must be a JSON object")


# ---- documents ------------------------------------------------------------------------------------------------------


def read_members(data: bytes) -> Members:
    """The members of an object. Raises DocumentError for anything else."""
    check_text(data)
    try:
        return _members(data)
    except msgspec.ValidationError:
        read_value(data)
        raise not_message() from None
    except UNREADABLE:
        raise not_json() from None


def read_value(data: bytes) -> Raw:
    """Any JSON value, whole and without blanks around it. Raises DocumentError."""
    check_text(data)
    try:
        return _raw(data)
    except UNREADABLE:
        raise not_json() from None


def check_text(data: bytes) -> None:
    """What decoding to raw values does not check. Raises DocumentError."""
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError:
        raise not_json() from None
    if len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise DocumentError("invalid_json", f"seneca: JSON is nested deeper than {MAX_DEPTH} levels")


def _depth(data: bytes) -> int:
    """How deep brackets are nested. Texts may hold some too; they are cut out first."""
    outside = b"".join(data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_STEP))
    return max(accumulate(steps), default=0)


def with_member(document: bytes, name: bytes, value: bytes) -> bytes:
    """An object with one member more. If it has one of that name, readers take the last."""
    head = document.strip()[:-1]
    comma = b"" if head.rstrip() == b"{" else b","
    return b'%b%b"%b":%b}' % (head, comma, name, value)


# ---- values ---------------------------------------------------------------------------------------------------------


def maybe_members(value: Raw | None) -> Members | None:
    """The members of a value that is an object."""
    members: Members | None = maybe_decoded(_members, value)
    return members


def raw_items(value: Raw | None) -> list[Raw]:
    """The items of a value that is an array, as they came."""
    return maybe_decoded(_items, value) or []


def maybe_text(value: Raw | None) -> str | None:
    """The text of a value that is a string."""
    text: str | None = maybe_decoded(_text, value)
    return text


def is_true(value: Raw | None) -> bool:
    """The flag is set; anything but `true` sets nothing."""
    return value is not None and bytes(value) == b"true"


def maybe_bytes(value: Raw | None) -> bytes | None:
    """The JSON of a value that is there."""
    return None if value is None or value is ABSENT else bytes(value)


def maybe_decoded(decode: Any, value: Raw | None) -> Any:
    """None if it is absent or of another type."""
    if value is None:
        return None
    try:
        return decode(value)
    except UNREADABLE:
        return None


def maybe_whole(value: object, least: int = 0) -> int | None:
    """A whole number that a column holds, in digits or not: JavaScript does not tell 1 from 1.0."""
    if type(value) is int:
        return value if least <= value <= INT64_MAX else None
    if type(value) is float and math.isfinite(value) and value.is_integer():
        return maybe_whole(int(value), least)
    return None


def raw_of(value: object) -> Raw:
    return Raw(encode_json(value))


def raw_members(data: Mapping[str, object]) -> Members:
    """Plain Python data as members."""
    return {name: value if isinstance(value, Raw) else raw_of(value) for name, value in data.items()}


# ---- JavaScript's text of a value -----------------------------------------------------------------------------------


def text_of(members: Members, key: str) -> str:
    """What a pattern's value is compared with."""
    value = members.get(key)
    if value is None:
        return MISSING
    try:
        return _text_of(decode_any(value))
    except UNREADABLE:  # 1e999, or an integer of thousands of digits: numbers are doubles at the other end
        return _text_of(json.loads(bytes(value), parse_int=float))


def _text_of(value: Any) -> str:
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
    """`String(value)`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else _js_number(value)


def _js_number(number: float) -> str:
    try:
        number = float(number)
    except OverflowError:
        number = math.inf if number > 0 else -math.inf
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
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
    """Sign, the fewest digits that mean this number, and the power of ten of the last."""
    mantissa, _, power = repr(abs(number)).partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = whole + rest.rstrip("0") if rest.strip("0") else whole
    exponent = int(power or 0) - len(rest.rstrip("0"))
    stripped = digits.lstrip("0")
    exponent += len(stripped) - len(stripped.rstrip("0"))
    return "-" if number < 0 else "", stripped.rstrip("0"), exponent
