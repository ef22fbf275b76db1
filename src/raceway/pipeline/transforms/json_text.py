"""Check of whether a text is one JSON value, by the grammar of RFC 8259 and nothing else.

Parsers have limits of their own, on the depth of a document, the digits of a number, the names of an object, and reject
what exceeds them. The grammar has none of these: here a value may be as deep and as long as the text is.
"""

from __future__ import annotations

import re

# RFC 8259, section 2. Possessive quantifiers (`*+`): no backtracking, so hostile texts take linear time.
_BLANKS = r"[ \t\n\r]*+"
# RFC 8259, section 7: no control characters, and only these escapes.
_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
# RFC 8259, section 6: no leading zeros, no plus sign, digits on both sides of the point.
_NUMBER = r"-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+"
# Alternatives where a value is expected: an opening bracket, or a whole scalar.
_VALUE = re.compile(rf"{_BLANKS}(?:([\[{{])|{_STRING}|{_NUMBER}|true|false|null){_BLANKS}")
_NAME = re.compile(rf"{_BLANKS}{_STRING}{_BLANKS}:")
_BLANK = re.compile(_BLANKS)
_CLOSING = {"[": ord("]"), "{": ord("}")}
_LIST_ENDS = _CLOSING["["]


def is_json(text: str) -> bool:
    """Return whether the text is one value, with white space around it at most."""
    closing = bytearray()  # closing bracket of each open list and object, one byte each
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
    """Return where the value of the next member begins; the end of the text if an object's member has no name."""
    if ends == _LIST_ENDS:
        return at
    named = _NAME.match(text, at)
    return len(text) if named is None else named.end()


def _behind(text: str, at: int, closing: bytearray) -> int:
    """Return the position after all brackets that close here."""
    while closing and text.startswith(chr(closing[-1]), at):
        closing.pop()
        at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]  # an empty match is a match
    return at
