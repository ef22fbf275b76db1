r"""The head of a zbus message, parsed line by line and strictly.

    head    = first-line CRLF *( name ":" value CRLF ) CRLF
    first   = method SP uri [ SP HTTP/1.x ]  |  HTTP/1.x SP code [ SP reason ]
    uri     = [ "/" ] path [ "?" key "=" value *( "&" key "=" value ) ]

There are two kinds of errors. One that leaves in doubt where the message ends (a bare CR or LF, a malformed length, a
transfer coding, an invalid header name) is refused and the connection closed: another reader might see other messages
in the rest (request smuggling; RFC 9112, 11.2). Any other (a bad escape, text that is not UTF-8) is a `fault` of this
message alone.

This is the slow path and the oracle: a learned shape (`shapes`) must agree with it on every byte.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from raceway.errors import MalformedError
from raceway.model.text import is_utf8
from raceway.net.codec.percent import maybe_unescape

KIB, MIB = 1024, 1024 * 1024
END_OF_HEAD = b"\r\n\r\n"
BLANK = b" \t"

# Spellings of 5.1 to 6.1, and the protocol text's. Where a message has both, the latter counts.
ALIASES = {b"mq_reply": b"mq-reply", b"msgid_raw": b"msgid-raw", b"reply_code": b"reply-code"}
# An alias of `method` in admin commands only; elsewhere an unknown header, relayed as it is.
ADMIN, ADMIN_ALIAS, METHOD = b"admin", b"sub_cmd", b"method"

# RFC 9110, 5.6.2: token. Header names and methods are tokens.
_token = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++").fullmatch
_version = re.compile(rb"HTTP/1\.[0-9]", re.IGNORECASE).fullmatch
_status_line = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: .*+)?", re.IGNORECASE).fullmatch
# RFC 9110, 5.5: control characters but HTAB are invalid in a value. CR and LF are checked by counting line ends.
_control = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]").search
_control_or_line_end = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search
_plain_id = re.compile(rb"[\x21-\x7e]{1,255}+").fullmatch


_OLDER = frozenset((*ALIASES, ADMIN_ALIAS))
# Heads with these are not learned: `expect` needs a reply before the body, `sub_cmd` depends on the command.
_UNUSUAL = frozenset({b"expect", ADMIN_ALIAS})
# A repeated name otherwise means "the last value wins", as on the real server.
ONCE = frozenset({b"host", b"origin"})
# Larger heads are not learned: clients send a dozen headers, and a pattern takes time to compile.
LEARNABLE_HEADERS, LEARNABLE_BYTES = 24, 1024
# Only short lines and names are cached, since a peer chooses them and the memory is ours.
REMEMBERED_LINE, REMEMBERED_NAME = 256, 64


class ZbusLimits(msgspec.Struct, frozen=True):
    """Limits of one message. `headers` also bounds the keys of a URI."""

    head_bytes: int = 64 * KIB
    headers: int = 200
    body_bytes: int = 64 * MIB


class ZbusRefused(msgspec.Struct, frozen=True):
    """A message that is refused: reply with `status` and `text`; if `close`, no more data is read."""

    status: int
    text: str
    msgid: bytes | None = None
    close: bool = False


class EchoedId(bytes):
    """The id of a message that also has the header `id`, by which clients since 6.2 match replies; `id` is that
    header's value. Such clients send no `msgid`; then this is the `msgid` as well."""

    id: bytes

    @classmethod
    def maybe_of(cls, msgid: bytes | None, plain: bytes | None) -> bytes | None:
        """Return the id to reply under. `plain` is the header `id`; if it cannot be repeated in a header line, it is
        ignored."""
        if not plain or not _plain_id(plain):
            return msgid
        echoed = cls(msgid or plain)
        echoed.id = plain
        return echoed


class First(msgspec.Struct, frozen=True):
    """A parsed first line. `keys` and `body` come from its URI, `status` from a status line."""

    status: int | None
    keys: dict[bytes, bytes]
    body: bytes | None = None
    fault: str | None = None


class ZbusHead(msgspec.Struct, frozen=True):
    """A parsed head. `keys` has every key once, by its lower-case name, from headers and URI. `shape` is what other
    heads of the peer may share: the first line and the names as spelled; empty if it is not worth learning."""

    first: First
    keys: dict[bytes, bytes]
    length: int
    expects_continue: bool = False
    fault: str | None = None
    shape: tuple[bytes, ...] = ()


class _BrokenError(MalformedError):
    """Framing is in doubt."""


def read_head(head: bytes, limits: ZbusLimits) -> ZbusHead | ZbusRefused:
    """Parse a head without the empty line at its end. A refusal here always closes."""
    lines = head.split(b"\r\n")
    try:
        return _read_lines(head, lines, limits)
    except _BrokenError as error:
        return ZbusRefused(400, f"Bad format: {error.reason}", maybe_plain_id(_keys_of_broken(lines)), close=True)


def too_long(limits: ZbusLimits) -> ZbusRefused:
    """A head over the limit."""
    return ZbusRefused(400, f"Bad format: head of more than {limits.head_bytes} bytes", close=True)


def too_large(head: ZbusHead, limits: ZbusLimits) -> ZbusRefused:
    """A body over the limit."""
    text = f"Body of {head.length} bytes is over the limit of {limits.body_bytes}"
    return ZbusRefused(413, text, maybe_plain_id(head.keys), close=True)


def faulty(head: ZbusHead) -> ZbusRefused:
    """A head with a fault that leaves framing intact."""
    return ZbusRefused(400, f"Bad format: {head.fault}", maybe_plain_id(head.keys))


def maybe_plain_id(keys: dict[bytes, bytes]) -> bytes | None:
    """Return the id of a refused message if it is visible ASCII, so that the reply can name it."""
    msgid = keys.get(b"msgid")
    return EchoedId.maybe_of(msgid if msgid is not None and _plain_id(msgid) else None, keys.get(b"id"))


def _read_lines(head: bytes, lines: list[bytes], limits: ZbusLimits) -> ZbusHead:
    """Parse the lines of a head."""
    ends = len(lines) - 1
    # RFC 9112, 2.2: a bare CR is invalid, and a bare LF is not accepted as a line end either: parsers disagree on both.
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
    return ZbusHead(
        first,
        merge(first.keys, headers),
        length,
        headers.get(b"expect", b"").lower() == b"100-continue",
        fault,
        (first_line, *names) if is_learnable else (),
    )


def _read_headers(lines: list[bytes]) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Return lower-case names with their values, and the names as spelled unless the head is unusual."""
    headers: dict[bytes, bytes] = {}
    names: list[bytes] = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            # A line without a colon is skipped, as on the real server. RFC 9112, 5.2: obs-fold is refused, since it
            # would continue the previous line elsewhere.
            if line[:1] in (b" ", b"\t"):
                raise _BrokenError("folded header line")
            continue
        folded = (_remembered_fold if len(name) <= REMEMBERED_NAME else fold_name)(name)
        value = value.strip(BLANK)
        # RFC 9112, 6.3: differing lengths are an unrecoverable error; equal ones may be taken as one.
        if folded == b"content-length" and headers.get(folded, value) != value:
            raise _BrokenError("differing content-length")
        if folded in ONCE and folded in headers:  # RFC 9112, 3.2: a second Host is an error; so is a second Origin
            raise _BrokenError(f"more than one {folded.decode()}")
        headers[folded] = value
        names.append(name)
    is_usual = len(headers) == len(lines) - 1 <= LEARNABLE_HEADERS and _UNUSUAL.isdisjoint(headers)
    return headers, names if is_usual else []


def fold_name(name: bytes) -> bytes:
    """Return a header name in lower case."""
    # RFC 9112, 5.1: white space before the colon must be refused, since parsers disagree on such a line.
    if not _token(name):
        raise _BrokenError("header name")
    return name.lower()


_remembered_fold = lru_cache(maxsize=4096)(fold_name)


def _read_length(headers: dict[bytes, bytes]) -> int:
    """Return the length of the body."""
    if b"transfer-encoding" in headers:
        # zbus has no chunked coding; reading past one would split the body into messages.
        raise _BrokenError("transfer-encoding")
    # zbus: without a length the body is empty, and the next message follows.
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise _BrokenError("content-length")
    # int() refuses thousands of digits; 18 exceed any limit, so the body is refused as too large.
    return int(text) if len(text) <= 18 else int(text.lstrip(b"0")[:18] or b"0")


def merge(uri_keys: dict[bytes, bytes], headers: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return one value per key: a header wins over the URI, and in each the newer spelling over the older."""
    is_admin = headers.get(b"cmd", uri_keys.get(b"cmd", ADMIN)) == ADMIN
    return {**_one_spelling(uri_keys, is_admin), **_one_spelling(headers, is_admin)}


def _one_spelling(keys: dict[bytes, bytes], is_admin: bool) -> dict[bytes, bytes]:
    """Rename older spellings."""
    if _OLDER.isdisjoint(keys):
        return keys
    aliases = {**ALIASES, ADMIN_ALIAS: METHOD} if is_admin else ALIASES
    found = dict(keys)
    for older, newer in aliases.items():
        if older in found:
            found.setdefault(newer, found.pop(older))
    return found


def _keys_of_broken(lines: list[bytes]) -> dict[bytes, bytes]:
    """Collect anything that looks like a header, unchecked, to find an id for the refusal."""
    pairs = (line.partition(b":") for line in lines[1:])
    return {name.lower(): value.strip(BLANK) for name, _, value in pairs}


# ---- first line and URI ---------------------------------------------------------------------------------------------


def read_first(line: bytes, max_keys: int) -> First:
    """Parse a first line. A word that begins with HTTP, in any case, marks a status line; any other is a method."""
    if line[:4].upper() == b"HTTP":
        found = _status_line(line)
        if not found:
            raise _BrokenError("status line")
        return First(int(found[1]), {})
    words = line.split(b" ")
    # zbus: the version may be missing.
    if len(words) == 2:
        words.append(b"HTTP/1.1")
    # Any method is accepted; it has no meaning in zbus.
    if len(words) != 3 or not words[1] or not _token(words[0]) or not _version(words[2]):
        raise _BrokenError("request line")
    return _read_uri(words[1], max_keys)


_remembered_first = lru_cache(maxsize=512)(read_first)


def _read_uri(uri: bytes, max_keys: int) -> First:
    """Parse the URI: path is the queue, query the keys."""
    path, _, query = uri.partition(b"?")
    # Empty pieces are skipped: the protocol text itself writes `&&` between keys.
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
    # In the path `+` is itself; only in the query it is a blank (form encoding).
    queue = maybe_unescape(path.removeprefix(b"/"))
    if queue is None:
        fault = "escape in the URI"
    elif _control_or_line_end(queue) or not is_utf8(queue):
        fault = "path of the URI"
    elif queue:
        # Priority: header, then query, then path.
        keys.setdefault(b"mq", queue)
    return First(None, keys, keys.pop(b"body", None), fault)


def _take_key(keys: dict[bytes, bytes], name: bytes, value: bytes) -> bool:
    """Add a key of the URI; False if it could not be a header, as which it is relayed. The body may have any bytes."""
    if name != b"body":
        value = value.strip(BLANK)
        if not _token(name) or _control_or_line_end(value) or not is_utf8(value):
            return False
    keys[name] = value
    return True
