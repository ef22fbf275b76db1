"""The text form of Seneca's patterns and messages, `role:math,cmd:sum`: a relaxed JSON called jsonic.

    pairs separated by commas, blanks, lines  role:math cmd:sum      {role: math, cmd: sum,}
    text without quotes, or with " ' `        a:x*    a:"x y"        true, false, null and numbers are typed
    no value is null, a path is objects       a:,b:1                 a:b:c is {a: {b: c}}
    the last of two values wins               a:1,a:2                but objects and arrays are merged
    comments                                  # and // to the end of the line, /* … */

Only text that denotes an object is a pattern. Empty text is the empty pattern.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from raceway.errors import PatternTextError
from raceway.wires.seneca.codec.patterns import Pattern
from raceway.wires.seneca.codec.text import js_text

# The parser recurses per level; patterns are flat, so this is generous.
MAX_DEPTH = 64

_END = ""
_PUNCTUATION = frozenset("{}[]:,")
# Possessive quantifiers (++, *+) throughout: a pattern comes from the network and must not make a match backtrack.
_skipped = re.compile(r"(?:[ \t\r\n]++|(?:#|//)[^\r\n]*+|/\*(?s:.*?)\*/)*+").match
_unquoted = re.compile(r"(?:(?!//|/\*)[^{}\[\]:,# \t\r\n])++").match
# jsonic's numbers: underscores between digits, 0x, 0o and 0b, a leading or trailing point. `01` is 1.
_number = re.compile(
    r"[-+]?(?:0(?:x[0-9a-fA-F_]+|o[0-7_]+|b[01_]+)|\.?[0-9]+(?:[0-9_]*[0-9])?)"
    r"(?:\.[0-9]?(?:[0-9_]*[0-9])?)?(?:[eE][-+]?[0-9]+(?:[0-9_]*[0-9])?)?"
).fullmatch
_escape = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
# UTF-16 surrogates: JavaScript strings may contain a lone one, UTF-8 may not (RFC 3629, 3).
_half = re.compile("[\ud800-\udfff]").search
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS = {"true": True, "false": False, "null": None}
_FIRST_PRINTABLE = " "


class _Token(NamedTuple):
    """A token: punctuation, or a scalar with its value and, if it is used as a key, its text."""

    kind: str
    value: Any = None
    key: str = ""


_SCALAR = "scalar"


def parse_pattern(text: str) -> dict[str, Any]:
    """Parse jsonic text into an object. Raises PatternTextError."""
    return _Reader(text).document()


def pattern_of(source: str | Mapping[str, Any]) -> Pattern:
    """Return the keys and values that can be matched, as text. Raises PatternTextError."""
    document = parse_pattern(source) if isinstance(source, str) else source
    # Seneca's canonical form: keys with `$` are directives, a null is dropped (`a:1,b:null` is `a:1`), and an object or
    # array cannot be compared as text.
    return {
        key: js_text(value)
        for key, value in document.items()
        if "$" not in key and value is not None and not isinstance(value, dict | list)
    }


def parse_pins(text: str) -> list[Pattern]:
    """Parse one or several pins, separated by semicolons."""
    return [pattern_of(each) for each in text.split(";")]


# ---- the language ---------------------------------------------------------------------------------------------------


class _Reader:
    """Recursive-descent parser of jsonic."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._cut())
        self._at = 0
        self._depth = 0

    def document(self) -> dict[str, Any]:
        """Parse the whole text as one object."""
        if self._next.kind == _END:
            return {}
        is_braced = self._next.kind == "{"
        if is_braced:
            self._take()
        elif not self._is_pair:
            raise self._error("not a list of key:value pairs")
        pairs = self._pairs()
        # Both braces of the outer object are optional in jsonic.
        if self._next.kind == "}":
            self._take()
        if self._next.kind != _END:
            raise self._error("unexpected text after the last pair")
        return pairs

    # ---- pieces ------------------------------------------------------------------------------------------------------

    def _cut(self) -> Iterable[_Token]:
        """Split the text into tokens."""
        at, text = 0, self._text
        while True:
            skipped = _skipped(text, at)
            at = skipped.end() if skipped else at
            if at == len(text):
                return
            if text[at] in _PUNCTUATION:
                yield _Token(text[at])
                at += 1
            elif text[at] in "'\"`":
                value, at = self._quoted(at)
                yield _Token(_SCALAR, value, value)
            else:
                # No match means that `/*` begins here: a closed comment was skipped above.
                word = _unquoted(text, at)
                if word is None:
                    raise self._error("unterminated comment")
                value, at = _typed(word[0]), word.end()
                # `0x_`: jsonic takes it for a number, finds that it is none, and loses its place before punctuation.
                if text[at : at + 1] in _PUNCTUATION and isinstance(value, str) and _number(value):
                    raise self._error(f"{value!r} is not a number: quote it")
                yield _Token(_SCALAR, value, word[0])

    def _quoted(self, start: int) -> tuple[str, int]:
        """Return a quoted string and the position after it. Only backquoted strings may span lines."""
        quote, at, text = self._text[start], start + 1, self._text
        pieces: list[str] = []
        while at < len(text) and text[at] != quote:
            if text[at] == "\\":
                piece, at = self._escaped(at)
                pieces.append(piece)
            # RFC 8259, 7, and jsonic: control characters must be escaped, but a backquoted string may hold line ends.
            elif text[at] < _FIRST_PRINTABLE and not (quote == "`" and text[at] in "\r\n"):
                raise self._error("control character in a quoted string")
            else:
                pieces.append(text[at])
                at += 1
        # As in jsonic, which looks only at the last character: an escaped quote there ends the string as well.
        if at >= len(text) and (not pieces or text[-1] != quote):
            raise self._error("unterminated string")
        return _paired("".join(pieces)), at + 1

    def _escaped(self, at: int) -> tuple[str, int]:
        """Decode one escape sequence; return it and the position after it."""
        found = _escape.match(self._text, at)
        if found is None:
            raise self._error("unterminated string")
        digits = found[1] or found[2] or found[3]
        # `\x` and `\u` without valid digits; any other unknown letter stands for itself, as in JavaScript.
        if digits is None and found[4] in "xu":
            raise self._error("invalid escape sequence")
        if digits is None:
            return _ESCAPES.get(found[4], found[4]), found.end()
        if int(digits, 16) > 0x10FFFF:
            raise self._error("invalid escape sequence")
        return chr(int(digits, 16)), found.end()

    @property
    def _next(self) -> _Token:
        """The current token; an end token after the last."""
        return self._tokens[self._at] if self._at < len(self._tokens) else _Token(_END)

    @property
    def _is_pair(self) -> bool:
        """Whether a key and a colon come next."""
        after = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else None
        return self._next.kind == _SCALAR and after is not None and after.kind == ":"

    def _take(self) -> _Token:
        """Return the current token and advance."""
        self._at += 1
        return self._tokens[self._at - 1]

    def _error(self, reason: str) -> PatternTextError:
        return PatternTextError(self._text, reason)

    # ---- values ------------------------------------------------------------------------------------------------------

    def _pairs(self) -> dict[str, Any]:
        """Parse pairs up to a closing brace or the end."""
        pairs: dict[str, Any] = {}
        while self._next.kind not in ("}", _END):
            if self._next.kind == ",":
                self._take()
            elif self._is_pair:
                self._pair(pairs)
            else:
                # A lone word is no object (`a`), and `a:x y` has a value without a key.
                raise self._error("expected key:value")
        return pairs

    def _pair(self, pairs: dict[str, Any]) -> None:
        """Parse one pair into `pairs`."""
        key = self._take().key
        self._take()
        value = self._value()
        # jsonic: the last value wins, but objects and arrays are merged.
        pairs[key] = _merged(pairs[key], value) if pairs.get(key) is not None else value

    def _value(self) -> Any:
        """Parse one value, counting depth."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        value = self._nested()
        self._depth -= 1
        return value

    def _nested(self) -> Any:
        """Parse one value of any kind; None if there is none."""
        kind = self._next.kind
        if self._is_pair:
            # `a:b:c` is {a: {b: c}}: the value is itself a pair.
            path: dict[str, Any] = {}
            self._pair(path)
            return path
        if kind == "{":
            return self._closed(self._pairs, "}")
        if kind == "[":
            return self._closed(self._items, "]")
        if kind == _SCALAR:
            return self._take().value
        if kind == ":":
            raise self._error("a colon without a key")
        return None

    def _closed(self, inside: Any, end: str) -> Any:
        """Parse a bracketed value; the end of the text closes it as well."""
        self._take()
        value = inside()
        if self._next.kind == end:
            self._take()
        return value

    def _items(self) -> list[Any]:
        """Parse the items of an array."""
        if self._next.kind == _END:  # jsonic: `a:[` is [null]
            return [None]
        items: list[Any] = []
        while self._next.kind not in ("]", _END):
            if self._is_pair:  # jsonic sets a property of the array, which JSON.stringify drops
                self._pair({})
            elif self._next.kind == "}":
                raise self._error("']' is missing")
            else:
                items.append(self._value())
            if self._next.kind == ",":
                self._take()
        return items


def _typed(word: str) -> Any:
    """Return the value of an unquoted word: a literal, a number, or the word itself."""
    if word in _WORDS:
        return _WORDS[word]
    if not _number(word):
        return word
    number = _maybe_number(word.replace("_", ""))
    return word if number is None else number


def _maybe_number(word: str) -> float | None:
    """Parse a number as JavaScript does: as a double."""
    digits = word.lstrip("+-")
    try:
        number = float(int(digits, 0)) if digits[1:2] in ("x", "o", "b") else float(digits)
    except OverflowError:
        number = math.inf
    except ValueError:
        return None
    # As an int it is written without ".0", like JavaScript's String(1.0).
    whole = int(number) if number.is_integer() else number
    return -whole if word[0] == "-" else whole


def _paired(text: str) -> str:
    """Combine surrogate pairs written as two escapes; replace lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _half(text) else text


def _merged(old: Any, new: Any) -> Any:
    """Merge two values of one key."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merged(old[key], value) if key in old else value for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        return [_merged(*pair) for pair in zip(old, new, strict=False)] + (old[len(new) :] or new[len(old) :])
    return new
