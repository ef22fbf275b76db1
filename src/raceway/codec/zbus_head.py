r"""The head of a zbus message, read line by line and by the letter.

    head    = first-line CRLF *( name ":" value CRLF ) CRLF
    first   = method SP uri [ SP HTTP/1.x ]  |  HTTP/1.x SP code [ SP reason ]
    uri     = [ "/" ] path [ "?" key "=" value *( "&" key "=" value ) ]

Two kinds of mistakes. One that leaves in doubt where the message ends (a bare CR or LF, an odd length, a transfer
coding, a name that is no name) is refused and the connection closes: whatever follows could be read as something else
by somebody else. Any other (a bad escape, text that is no UTF-8) is a `fault` of this message alone.

This is the slow path and the oracle: a learned shape (`zbus_shapes`) must agree with it on every byte.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from raceway.errors import MalformedError
from raceway.model.text import is_utf8

KIB, MIB = 1024, 1024 * 1024
END_OF_HEAD = b"\r\n\r\n"
BLANK = b" \t"

# Spellings of older clients, and ours. Where both stand in one message, ours counts.
ALIASES = {b"mq_reply": b"mq-reply", b"msgid_raw": b"msgid-raw", b"reply_code": b"reply-code"}
# This one only in admin commands; elsewhere it means nothing and travels on as it is.
ADMIN, ADMIN_ALIAS, METHOD = b"admin", b"sub_cmd", b"method"

_token = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++").fullmatch
_version = re.compile(rb"HTTP/1\.[0-9]", re.IGNORECASE).fullmatch
_status_line = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: .*+)?", re.IGNORECASE).fullmatch
_control = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search
_control_or_line_end = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_plain_id = re.compile(rb"[\x21-\x7e]{1,255}+").fullmatch

# Every way to write a byte as two hexadecimal digits.
_ESCAPES = {
    bytes((high, low)): bytes((int(chr(high) + chr(low), 16),))
    for high in b"0123456789abcdefABCDEF"
    for low in b"0123456789abcdefABCDEF"
}

_OLDER = frozenset((*ALIASES, ADMIN_ALIAS))
# Not learned: `expect` asks for an answer before the body comes; the other is told apart by the command.
_UNUSUAL = frozenset({b"expect", ADMIN_ALIAS})
ONCE = frozenset({b"host", b"origin"})
# What a head may have to be worth learning: clients send a dozen headers, and a pattern costs time to make.
LEARNABLE_HEADERS, LEARNABLE_BYTES = 24, 1024
# Lines and names are remembered only when short: a long one is no client's habit, and memory is ours.
REMEMBERED_LINE, REMEMBERED_NAME = 256, 64


class ZbusLimits(msgspec.Struct, frozen=True):
    """What one message may have. `headers` also bounds the keys of a URI."""

    head_bytes: int = 64 * KIB
    headers: int = 200
    body_bytes: int = 64 * MIB


class Refused(msgspec.Struct, frozen=True):
    """A message that is not taken: answer with `status` and `text`; if `close`, nothing is read after it."""

    status: int
    text: str
    msgid: bytes | None = None
    close: bool = False


class EchoedId(bytes):
    """The id of a message that also has the header `id`, by which clients since 6.2 know their replies: `id` is that
    header's value. They name no `msgid`; then this is it."""

    id: bytes

    @classmethod
    def maybe_of(cls, msgid: bytes | None, plain: bytes | None) -> bytes | None:
        """`plain`: the header `id`. An ordinary id if there is none that could be repeated in a line."""
        if not plain or not _plain_id(plain):
            return msgid
        echoed = cls(msgid or plain)
        echoed.id = plain
        return echoed


class First(msgspec.Struct, frozen=True):
    """A first line. `keys` and `body` are what its URI says, `status` is of a status line."""

    status: int | None
    keys: dict[bytes, bytes]
    body: bytes | None = None
    fault: str | None = None


class Head(msgspec.Struct, frozen=True):
    """`keys` has every key once, by its folded name, from headers and URI. `shape` is what another head of the same
    peer may share: the first line and the names as spelled; empty if it is not worth learning."""

    first: First
    keys: dict[bytes, bytes]
    length: int
    expects_continue: bool = False
    fault: str | None = None
    shape: tuple[bytes, ...] = ()


class _BrokenError(MalformedError):
    """Framing is in doubt."""


def read_head(head: bytes, limits: ZbusLimits) -> Head | Refused:
    """The head without the empty line at its end. Refused here always means close."""
    lines = head.split(b"\r\n")
    try:
        return _read_lines(head, lines, limits)
    except _BrokenError as error:
        return Refused(400, f"Bad format: {error.reason}", maybe_plain_id(_keys_of_broken(lines)), close=True)


def too_long(limits: ZbusLimits) -> Refused:
    return Refused(400, f"Bad format: head of more than {limits.head_bytes} bytes", close=True)


def too_large(head: Head, limits: ZbusLimits) -> Refused:
    text = f"Body of {head.length} bytes is over the limit of {limits.body_bytes}"
    return Refused(413, text, maybe_plain_id(head.keys), close=True)


def faulty(head: Head) -> Refused:
    return Refused(400, f"Bad format: {head.fault}", maybe_plain_id(head.keys))


def maybe_plain_id(keys: dict[bytes, bytes]) -> bytes | None:
    """The id of a message that is refused, so that its sender can tell which one it was; only if it is harmless."""
    msgid = keys.get(b"msgid")
    return EchoedId.maybe_of(msgid if msgid is not None and _plain_id(msgid) else None, keys.get(b"id"))


def _read_lines(head: bytes, lines: list[bytes], limits: ZbusLimits) -> Head:
    ends = len(lines) - 1
    if head.count(b"\r") != ends or head.count(b"\n") != ends or _control(head):
        raise _BrokenError("control character in the head")
    if ends > limits.headers:
        raise _BrokenError(f"more than {limits.headers} headers")
    first_line = lines[0]
    first = (_remembered_first if len(first_line) <= REMEMBERED_LINE else read_first)(first_line, limits.headers)
    headers, names = _read_headers(lines)
    length = _read_length(headers)
    fault = first.fault if is_utf8(head) else "head is not UTF-8"
    is_learnable = names and fault is None and len(head) <= LEARNABLE_BYTES and ADMIN_ALIAS not in first.keys
    return Head(
        first,
        merge(first.keys, headers),
        length,
        headers.get(b"expect", b"").lower() == b"100-continue",
        fault,
        (first_line, *names) if is_learnable else (),
    )


def _read_headers(lines: list[bytes]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Folded names with their values, and the names as spelled unless something about them is unusual."""
    headers: dict[bytes, bytes] = {}
    names: list[bytes] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            # Skipped, as the real server does; but a line that starts with a blank continues the one before in HTTP.
            if line[:1] in (b" ", b"\t"):
                raise _BrokenError("folded header line")
            continue
        folded = (_remembered_fold if len(name) <= REMEMBERED_NAME else fold_name)(name)
        value = value.strip(BLANK)
        if folded == b"content-length" and headers.get(folded, value) != value:
            raise _BrokenError("differing content-length")
        if folded in ONCE and folded in headers:  # RFC 9112, 3.2; peers disagree on which of them counts
            raise _BrokenError(f"more than one {folded.decode()}")
        headers[folded] = value
        names.append(name)
    is_usual = len(headers) == len(lines) - 1 <= LEARNABLE_HEADERS and _UNUSUAL.isdisjoint(headers)
    return headers, names if is_usual else []


def fold_name(name: bytes) -> bytes:
    """A header's name in lower case. Blanks around it are refused: peers disagree on what such a line means."""
    if not _token(name):
        raise _BrokenError("header name")
    return name.lower()


_remembered_fold = lru_cache(maxsize=4096)(fold_name)


def _read_length(headers: dict[bytes, bytes]) -> int:
    if b"transfer-encoding" in headers:
        raise _BrokenError("transfer-encoding")
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise _BrokenError("content-length")
    # Python refuses to read thousands of digits; 18 are more than any limit.
    return int(text) if len(text) <= 18 else int(text.lstrip(b"0")[:18] or b"0")


def merge(uri_keys: dict[bytes, bytes], headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """One value for each key: a header counts more than the URI, and in each the newer spelling more than the older."""
    is_admin = headers.get(b"cmd", uri_keys.get(b"cmd", ADMIN)) == ADMIN
    return {**_one_spelling(uri_keys, is_admin), **_one_spelling(headers, is_admin)}


def _one_spelling(keys: dict[bytes, bytes], is_admin: bool) -> dict[bytes, bytes]:
    if _OLDER.isdisjoint(keys):
        return keys
    aliases = {**ALIASES, ADMIN_ALIAS: METHOD} if is_admin else ALIASES
    found = dict(keys)
    for older, newer in aliases.items():
        if older in found:
            found.setdefault(newer, found.pop(older))
    return found


def _keys_of_broken(lines: list[bytes]) -> dict[bytes, bytes]:
    """Whatever looks like a header, without any check."""
    pairs = (line.partition(b":") for line in lines[1:])
    return {name.lower(): value.strip(BLANK) for name, _, value in pairs}


# ---- first line and URI ---------------------------------------------------------------------------------------------


def read_first(line: bytes, max_keys: int) -> First:
    """A word that begins with HTTP, in any case, marks a status line; any other word is a method without meaning."""
    if line[:4].upper() == b"HTTP":
        found = _status_line(line)
        if not found:
            raise _BrokenError("status line")
        return First(int(found[1]), {})
    words = line.split(b" ")
    if len(words) == 2:
        words.append(b"HTTP/1.1")
    if len(words) != 3 or not words[1] or not _token(words[0]) or not _version(words[2]):
        raise _BrokenError("request line")
    return _read_uri(words[1], max_keys)


_remembered_first = lru_cache(maxsize=512)(read_first)


def _read_uri(uri: bytes, max_keys: int) -> First:
    path, _, query = uri.partition(b"?")
    pieces = [piece for piece in query.split(b"&") if piece]
    if len(pieces) > max_keys:
        return First(None, {}, None, f"more than {max_keys} keys in the URI")
    keys: dict[bytes, bytes] = {}
    fault: str | None = None
    for piece in pieces:
        name, _, value = (maybe_unescape(part.replace(b"+", b" ")) for part in piece.partition(b"="))
        if name is None or value is None:
            fault = "escape in the URI"
        elif not _take_key(keys, name.strip(BLANK).lower(), value):
            fault = "key in the URI"
    queue = maybe_unescape(path.removeprefix(b"/"))
    if queue is None:
        fault = "escape in the URI"
    elif _control_or_line_end(queue) or not is_utf8(queue):
        fault = "path of the URI"
    elif queue:
        keys.setdefault(b"mq", queue)
    return First(None, keys, keys.pop(b"body", None), fault)


def _take_key(keys: dict[bytes, bytes], name: bytes, value: bytes) -> bool:
    """False if the pair could not stand in a header line, where it would go. The body may have any bytes."""
    if name != b"body":
        value = value.strip(BLANK)
        if not _token(name) or _control_or_line_end(value) or not is_utf8(value):
            return False
    keys[name] = value
    return True


def maybe_unescape(text: bytes) -> bytes | None:
    """`%41` becomes `A`, once; None if a percent sign is followed by anything but two hexadecimal digits."""
    if b"%" not in text:
        return text
    start, *rest = text.split(b"%")
    try:
        return start + b"".join([_ESCAPES[piece[:2]] + piece[2:] for piece in rest])
    except KeyError:
        return None
