"""Is a text one JSON value, by the grammar of RFC 8259 and nothing else?

Parsers have limits of their own, on the depth of a document, the digits of a number, the names of an object, and call
what exceeds them wrong. The grammar has none of these: here a value may be as deep and as long as the text is.
"""

from __future__ import annotations

import re

_BLANKS = r"[ \t\n\r]*+"
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_NUMBER = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
# What may stand where a value is wanted: a bracket that opens, or a whole scalar.
_VALUE = re.compile(rf"{_BLANKS}(?:([\[{{])|{_STRING}|{_NUMBER}|true|false|null){_BLANKS}")
_NAME = re.compile(rf"{_BLANKS}{_STRING}{_BLANKS}:")
_BLANK = re.compile(_BLANKS)
_CLOSING = {"[": ord("]"), "{": ord("}")}
_LIST_ENDS = _CLOSING["["]


def is_json(text: str) -> bool:
    """One value, with blanks around it at most."""
    closing = bytearray()  # what ends each list and object that is open: a byte each, however deep they are
    at = 0
    while (found := _VALUE.match(text, at)) is not None:
        at = found.end()
        if found[1] is not None:
            closing.append(_CLOSING[found[1]])
            if not text.startswith(chr(closing[-1]), at):
                at = _next_member(text, at, closing[-1])
                continue
        at = _behind(text, at, closing)
        if not closing:
            return at == len(text)
        if not text.startswith(",", at):
            return False
        at = _next_member(text, at + 1, closing[-1])
    return False


def _next_member(text: str, at: int, ends: int) -> int:
    """Where the value of the next member begins; behind the text if an object's member has no name."""
    if ends == _LIST_ENDS:
        return at
    named = _NAME.match(text, at)
    return len(text) if named is None else named.end()


def _behind(text: str, at: int, closing: bytearray) -> int:
    """Behind all that is closed here."""
    while closing and text.startswith(chr(closing[-1]), at):
        closing.pop()
        at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]  # nothing is a match too
    return at
