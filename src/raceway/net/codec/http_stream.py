"""Complete HTTP/1.1 requests and responses from bytes (RFC 9112), with limits on their size.

httptools does the parsing; limits, 100-continue and the end of a connection are handled here. A reader belongs to one
connection. Malformed input, or input over a limit, yields an `HttpRefusal` as the last item: without a known end of one
message, the start of the next is unknown.

Clients repeat their heads: from call to call only the length changes, and once a second a date. So a message that
arrives alone in a read, with the same head as the last one, bypasses the parser.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Generic, NamedTuple, TypeVar

import httptools

from raceway.errors import MalformedError, TooLargeError

# More than other servers and proxies accept, most of them 8 or 16 KiB.
HEAD_LIMIT = 64 * 1024


class HttpCall(NamedTuple):
    """A complete request. Names of headers are in lower case; of a repeated header the last value counts."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    @property
    def query(self) -> bytes:
        """The query of the target, without the question mark; empty if there is none."""
        return self.target.partition(b"?")[2]


class HttpReply(NamedTuple):
    """A complete response, with headers as in `HttpCall`."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool


class HttpRefusal(NamedTuple):
    """The reason why reading stops. Respond with `status`, then close the connection."""

    status: int
    reason: str


class Continue(NamedTuple):
    """The client waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1)."""


CONTINUE: Final = Continue()
CONTINUE_BYTES = b"HTTP/1.1 100 Continue\r\n\r\n"


class _Refused(Exception):  # noqa: N818 - raised in a callback of the parser, never leaves this module
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.refusal = HttpRefusal(status, reason)


M = TypeVar("M", HttpCall, HttpReply)
# Longest head that is cached: for longer ones parsing is a small part of the work.
MAX_HEAD_BYTES = 1024
# More than any body has. `int` raises for thousands of digits; such a length is left to the parser.
MAX_LENGTH_DIGITS = 18
# The end of "Content-Length", which is the same in both usual spellings.
_LENGTH, _LENGTH_LINE, _LENGTH_NAME = b"ength: ", b"\r\ncontent-length: ", b"content-length"
# Headers that change the framing or the connection: a head with one of them always goes through the parser.
_SPECIAL = (b"transfer-encoding", b"expect", b"upgrade")


def _maybe_cut(data: bytes) -> tuple[bytes, bytes] | None:
    """Return the head up to the digits of its length, and the part after them; None if it cannot be cached."""
    begin = data.find(_LENGTH, 0, MAX_HEAD_BYTES) + len(_LENGTH)
    end = data.find(b"\r\n", begin)
    stop = data.find(b"\r\n\r\n", end, MAX_HEAD_BYTES) + 4
    head = data[:stop].lower()
    is_plain = head.endswith(_LENGTH_LINE, 0, begin) and head.count(_LENGTH_NAME) == 1
    if stop < 4 or not is_plain or any(word in head for word in _SPECIAL):
        return None
    return data[:begin], data[end:stop]


class _ParserCallbacks(ABC, Generic[M]):
    """The callbacks of the parser that requests and responses share.

    `_last` is the last message whose head is cached; `_before` and `_behind` are the parts of that head around the
    length.
    """

    _parser: Any

    def __init__(self, head_limit: int, body_limit: int) -> None:
        self._head_limit, self._body_limit = head_limit, body_limit
        self._out: list[Any] = []
        self._in_body = False
        self._unmoved = 0
        self._last: M | None = None
        self._before = self._behind = b""
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._head_size = self._body_size = 0

    @property
    def pending(self) -> int:
        """Bytes of an incomplete message."""
        return self._head_size + self._body_size

    def _feed(self, data: bytes) -> list[Any]:
        # In the middle of a message the bytes are no head, whatever they look like.
        if self._head_size or self._in_body:
            return self._parsed(data)
        message = self._maybe_again(data)
        if message is not None:
            return [message]
        out = self._parsed(data)
        if len(out) == 1 and not self._head_size and not isinstance(out[0], HttpRefusal | Continue):
            self._remember(data, out[0])
        return out

    def _maybe_again(self, data: bytes) -> M | None:
        """Return a complete message with the cached head, or None."""
        # Safe without the parser: between messages it has no state, so it need not see every message.
        if self._last is None or not data.startswith(self._before):
            return None
        end = data.find(b"\r\n", len(self._before))
        if not data.startswith(self._behind, end):
            return None
        length, body = data[len(self._before) : end], data[end + len(self._behind) :]
        if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
            return None
        # Only a message that ends with the read: anything after it would need the parser.
        if len(body) != int(length) or len(body) > self._body_limit:
            return None
        return self._with_body(self._last, {**self._last.headers, _LENGTH_NAME: length}, body)

    @abstractmethod
    def _with_body(self, last: M, headers: dict[bytes, bytes], body: bytes) -> M:
        """Return the cached message with other headers and another body."""

    def _remember(self, data: bytes, message: M) -> None:
        """Cache the head of `message` if it allows that; `data` has its bytes and no others."""
        cut = _maybe_cut(data)
        if cut is not None and message.keep_alive and data.endswith(cut[1] + message.body):
            self._before, self._behind = cut
            self._last = message._replace(body=b"")

    def _parsed(self, data: bytes) -> list[Any]:
        self._moves = False
        refusal = self._maybe_refusal(data)
        if refusal is None and self._in_body:
            refusal = self._check_unmoved_body(len(data))
        elif refusal is None and self._head_size:
            refusal = self._check_unfinished_head(len(data))
        out, self._out = self._out, []
        if refusal is not None:
            out.append(refusal)
        return out

    def _maybe_refusal(self, data: bytes) -> HttpRefusal | None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # RFC 9110, 7.8: a server may ignore Upgrade. The request is complete, and the connection closes after it.
            return None
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, _Refused):
                return error.__context__.refusal
            raise
        except httptools.HttpParserError as error:
            return HttpRefusal(400, str(error))
        return None

    def _check_unfinished_head(self, size: int) -> HttpRefusal | None:
        """Limit a head that is still incomplete, by the bytes received."""
        # The parser buffers an incomplete line and calls nothing, so headers alone do not bound memory. Twice the
        # limit, since complete headers are counted a second time here.
        self._head_size += size
        over = self._head_size > 2 * self._head_limit
        return HttpRefusal(431, f"head larger than {self._head_limit} bytes") if over else None

    def _check_unmoved_body(self, size: int) -> HttpRefusal | None:
        """Limit the bytes of a body that bring no content: chunk extensions and trailers (RFC 9112, 7.1)."""
        self._unmoved = 0 if self._moves else self._unmoved + size
        over = self._unmoved > self._head_limit
        return HttpRefusal(431, f"chunk header or trailers larger than {self._head_limit} bytes") if over else None

    # ---- callbacks of the parser ------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._begin()
        self._head_size = 1  # not 0: a message has begun, which `pending` and `_feed` must see

    def on_chunk_header(self) -> None:
        self._moves = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value) + 4  # ": " and CRLF
        self._headers[name.lower()] = value
        if self._head_size > self._head_limit:
            raise _Refused(431, f"head larger than {self._head_limit} bytes")

    def on_headers_complete(self) -> None:
        self._in_body = self._moves = True
        length = self._headers.get(b"content-length", b"0")
        # Refused before the body is read: with `Expect: 100-continue` it is never sent.
        if int(length) > self._body_limit:
            raise _Refused(413, f"a body of {int(length)} bytes is over the limit of {self._body_limit}")

    def on_body(self, piece: bytes) -> None:
        self._body_size += len(piece)
        if self._body_size > self._body_limit:
            raise _Refused(413, f"body larger than the limit of {self._body_limit} bytes")
        self._pieces.append(piece)
        self._moves = True

    def _take_body(self) -> bytes:
        self._in_body = False
        self._head_size = self._body_size = 0
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


# RFC 9112, 3.2: more than one Host is a bad request. Two Origins could pass a check of the one and act for the other.
ONCE = frozenset({b"host", b"origin"})


class RequestReader(_ParserCallbacks[HttpCall]):
    """The requests of one connection, for a server."""

    def __init__(self, body_limit: int, head_limit: int = HEAD_LIMIT) -> None:
        super().__init__(head_limit, body_limit)
        self._parser = httptools.HttpRequestParser(self)

    def receive_data(self, data: bytes) -> list[HttpCall | Continue | HttpRefusal]:
        """Return what these bytes complete; an `HttpRefusal` is the last item of all."""
        return self._feed(data)

    def _with_body(self, last: HttpCall, headers: dict[bytes, bytes], body: bytes) -> HttpCall:
        return HttpCall(last.method, last.target, headers, body, True)

    def on_url(self, target: bytes) -> None:
        self._head_size += len(target)
        self._target += target  # the parser may call this several times for one target
        if self._head_size > self._head_limit:
            raise _Refused(431, f"head larger than {self._head_limit} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        # RFC 9110, 6.5.1: trailers must not be merged into the headers; no header served here may come as a trailer.
        if self._in_body:
            raise _Refused(400, "trailers are not accepted")
        if name.lower() in ONCE and name.lower() in self._headers:
            raise _Refused(400, f"more than one {name.lower().decode()} header")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._out.append(CONTINUE)

    def on_message_complete(self) -> None:
        parser, body = self._parser, self._take_body()
        keep_alive = parser.should_keep_alive() and not parser.should_upgrade()
        self._out.append(HttpCall(parser.get_method(), self._target, self._headers, body, keep_alive))


class ResponseReader(_ParserCallbacks[HttpReply]):
    """The responses of one connection, for a client."""

    def __init__(self, body_limit: int, head_limit: int = HEAD_LIMIT) -> None:
        super().__init__(head_limit, body_limit)
        self._parser = httptools.HttpResponseParser(self)

    def receive_data(self, data: bytes) -> list[HttpReply]:
        """Return the responses that these bytes complete. Raises MalformedError, TooLargeError (over a limit)."""
        out = self._feed(data)
        if out and isinstance(out[-1], HttpRefusal):
            refusal = out[-1]
            if refusal.status == 400:
                raise MalformedError(f"malformed HTTP response: {refusal.reason}")
            size = max(self._head_size + self._body_size, int(self._headers.get(b"content-length", b"0")))
            raise TooLargeError("an HTTP response", size, self._body_limit)
        return out

    def _with_body(self, last: HttpReply, headers: dict[bytes, bytes], body: bytes) -> HttpReply:
        return HttpReply(last.status, headers, body, True)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        body = self._take_body()
        # RFC 9110, 15.2: interim responses (1xx) precede the final one.
        if status >= 200:
            self._out.append(HttpReply(status, self._headers, body, self._parser.should_keep_alive()))

    def maybe_end(self) -> HttpReply | None:
        """Return the response that ends with the connection, if any; call it when the peer has closed."""
        # RFC 9112, 6.3: without Content-Length and Transfer-Encoding, a response extends to the end of the connection.
        has_length = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if not self._in_body or has_length:
            return None
        return HttpReply(self._parser.get_status_code(), self._headers, self._take_body(), False)
