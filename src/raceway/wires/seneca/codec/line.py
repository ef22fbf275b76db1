"""Seneca over TCP: one JSON document per line, in both directions on one connection.

A line with `kind` is of the legacy dialect T, a wrapper around the message:

    {"id": "mid/cid", "kind": "act", "origin": …, "track": […], "time": {"client_sent": …}, "act": {…}, "sync": true}

A line without `kind` is the document itself (S), with or without `meta$`, and gets an S line as response.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from raceway.errors import RacewayError, TooLargeError
from raceway.model import document as documents
from raceway.model.document import ABSENT, DocumentError, Members, maybe_bytes, maybe_text
from raceway.model.envelope import encode_json
from raceway.wires.seneca.codec.call import SEED_LINE, TCP, UNKNOWN_SENDER, Call, Echo, Fresh, complete_call, split_id
from raceway.wires.seneca.codec.failure import failure_of
from raceway.wires.seneca.codec.meta import Side, WrappedCall, seed_meta, wrapped_call
from raceway.wires.seneca.codec.request import maybe_meta, read_seed, read_time, version_of

# LF ends a line; the CR of a CRLF sender and blank lines are dropped, as npm's listener does.
_BLANK = b" \t\r"
NO_SIDE = Side()


class LineReceiver:
    """Split a byte stream into lines without their ends, skipping blank ones. After `overflow` no more data is read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self.pending = 0
        self.overflow = False

    def receive_data(self, data: bytes) -> list[bytes]:
        """Add received bytes; return the lines they complete."""
        if self.overflow:
            return []
        # One split per read, and a join only of what earlier reads left: many small reads of a long line stay linear.
        first, *others = data.split(b"\n")
        if not others:
            self._keep(data)
            return []
        # The piece after the last LF is an unfinished line, or empty.
        last = others.pop()
        self._begun.append(first)
        lines = [b"".join(self._begun), *others]
        self._begun, self.pending = [], 0
        self._keep(last)
        return [stripped for line in self._within(lines) if (stripped := line.strip(_BLANK))]

    def _keep(self, data: bytes) -> None:
        """Store an unfinished line."""
        if data:
            self._begun.append(data)
            self.pending += len(data)
            # An unfinished line over the limit is refused now, not when its end comes.
            self.overflow = self.overflow or self.pending > self._limit

    def _within(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines up to the first one over the limit."""
        if max(map(len, lines)) <= self._limit:
            return lines
        self.overflow = True
        return list(takewhile(lambda line: len(line) <= self._limit, lines))


class LineRefused(msgspec.Struct, frozen=True):
    """A line that is not a call: write `line` if there is one, then close if `close`."""

    line: bytes | None = None
    close: bool = False


def read_line(line: bytes, fresh: Fresh) -> Call | LineRefused:
    """Read one line without its end. Anything but a JSON object closes the connection."""
    document: Members | None = None
    try:
        documents.check_text(line)
        # Fast path: nearly every line is a wrapper that decodes in one strict pass.
        wrapped = wrapped_call.maybe_strict(line)
        if wrapped is not None and wrapped.kind:
            return _wrapped(wrapped, encode_json(wrapped.id), len(line), fresh)
        document = documents.read_members(line)
        if "kind" in document:
            # The response repeats `id` as JSON, whatever its type, so that the client finds its call.
            identity = maybe_bytes(document.get("id")) or b"null"
            return _wrapped(wrapped_call.read_members(document)[0], identity, None, fresh)
        meta = seed_meta.read_members(maybe_meta(document) or {})
        return read_seed(SEED_LINE, document, *meta, fresh, UNKNOWN_SENDER)
    except DocumentError as error:
        # No reply to a line that is not an object: framing is in doubt, and it has no id that a reply could repeat.
        if document is None:
            return LineRefused(close=True)
        return LineRefused(_refusal(error.seneca_code, error.reason))
    except TooLargeError as error:
        return LineRefused(_refusal(error.code, f"seneca: {error}"))


def refusal_line(error: RacewayError) -> bytes:
    """Encode the line that tells why the connection ends; it answers no call."""
    failure = failure_of(error, {})
    return _refusal(failure.code, failure.message)


def _refusal(code: str, message: str) -> bytes:
    """Encode an error line without meta data."""
    return encode_json({"code": code, "message": message, "seneca": True}) + b"\n"


def _wrapped(line: WrappedCall, identity: bytes, size: int | None, fresh: Fresh) -> Call | LineRefused:
    """Read a T wrapper. `identity` is the JSON of its id (possibly null), `size` the size of the line if known."""
    sent = ABSENT if line.time is None else line.time.client_sent
    echo = Echo(identity, maybe_bytes(line.origin), maybe_bytes(line.track), maybe_bytes(sent))
    fault = _maybe_fault(line)
    if fault is not None or line.act is None:
        # T: only `sync: true` gets a response, refusals included; an absent `sync` counts as false.
        return LineRefused(_wrapped_refusal(echo, fault or documents.not_message().reason) if line.sync else None)
    # `msg$` is the only part of the protocol document's request block that npm's clients send over TCP.
    beside = line.side or NO_SIDE
    # `id` counts, not the ids in `msg$`: npm's listeners read nothing else.
    mid, cid = split_id(line.id, fresh)
    call = Call(
        mid, cid, maybe_text(line.origin) or _maybe_str(beside.sid) or UNKNOWN_SENDER, line.act, line.sync,
        sent_ms=None if sent is ABSENT else read_time(sent), vin=version_of(beside.vin), pattern=_maybe_str(beside.pat),
        dialect=TCP, echo=echo, came_bytes=size,
    )  # fmt: skip
    return complete_call(call)


def _maybe_str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _maybe_fault(line: WrappedCall) -> str | None:
    """The reason a wrapper is not a valid request. npm's listener drops such lines silently and its client times
    out."""
    if line.kind != "act":
        return "seneca: kind must be 'act'"
    if not line.id:
        return "seneca: a message needs an id"
    if line.error is not ABSENT and bytes(line.error) != b"null":
        return "seneca: a request must not have an error"
    return None


def _wrapped_refusal(echo: Echo, message: str) -> bytes:
    """Encode the T response to an invalid request."""
    error = encode_json({"code": "invalid_message", "seneca": True, "message": message, "name": "Error"})
    origin = b"" if echo.origin is None else b',"origin":%b' % echo.origin
    return b'{"id":%b,"kind":"res"%b,"sync":true,"res":null,"error":%b}\n' % (echo.id, origin, error)
