"""The text of a JSON value as JavaScript writes it (`String(value)`): patterns are compared by it."""

from __future__ import annotations

import json
import math
from typing import Any

from raceway.model.document import UNREADABLE, Members, decode_any
from raceway.wires.seneca.codec.patterns import MISSING, NULL, Compound

# ECMA-262, Number::toString: decimal notation while -6 < n <= 21, otherwise an exponent.
_FIRST_EXPONENT, _LAST_LEADING_ZEROS = 21, -6


def text_of(members: Members, key: str) -> str:
    """Return the text with which a pattern's value is compared."""
    value = members.get(key)
    if value is None:
        return MISSING
    try:
        return js_text(decode_any(value))
    except UNREADABLE:  # 1e999, or thousands of digits: RFC 8259, 6, and the other end reads doubles
        return js_text(json.loads(bytes(value), parse_int=float))


def js_text(value: Any) -> str:
    """Return JavaScript's `String(value)` of a decoded JSON value, marking objects and arrays as compound."""
    if type(value) is str:
        return value
    if value is None:
        return NULL
    # bool before number: True is an int in Python.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return Compound("[object Object]")
    if isinstance(value, list):
        return Compound(",".join(["" if each is None else js_text(each) for each in value]))
    return _js_number(value)


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
