"""Seneca over TCP: one JSON document per line, both ways on one connection.

A line with `kind` is of the legacy dialect, a wrapper around the message:

    {"id": "mid/cid", "kind": "act", "origin": …, "track": […], "time": {"client_sent": …}, "act": {…}, "sync": true}

A line without is the document itself, with or without meta data, and is answered by one.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from raceway.codec.seneca_call import SEED_LINE, TCP, UNKNOWN_SENDER, Call, Echo, Fresh, Told, make_call, split_id
from raceway.codec.seneca_document import (
    ABSENT,
    DocumentError,
    Members,
    check_text,
    maybe_bytes,
    maybe_text,
    not_message,
    read_members,
)
from raceway.codec.seneca_failure import failure_of
from raceway.codec.seneca_meta import Side, Wrapper, seed_meta, wrapper
from raceway.codec.seneca_request import maybe_meta, read_seed, read_time, version_of
from raceway.errors import RacewayError, TooLargeError
from raceway.model.envelope import encode_json

_BLANK = b" \t\r"
NO_SIDE = Side()


class LineReceiver:
    """Bytes to lines without their ends; blank ones are left out. After `overflow` nothing more is read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun: list[bytes] = []
        self.pending = 0
        self.overflow = False

    def receive_data(self, data: bytes) -> list[bytes]:
        """Bytes as they came; lines that are complete come back."""
        if self.overflow:
            return []
        first, *others = data.split(b"\n")
        if not others:
            self._keep(data)
            return []
        last = others.pop()
        self._begun.append(first)
        lines = [b"".join(self._begun), *others]
        self._begun, self.pending = [], 0
        self._keep(last)
        return [stripped for line in self._within(lines) if (stripped := line.strip(_BLANK))]

    def _keep(self, data: bytes) -> None:
        if data:
            self._begun.append(data)
            self.pending += len(data)
            self.overflow = self.overflow or self.pending > self._limit

    def _within(self, lines: list[bytes]) -> list[bytes]:
        """Up to the first line that is too long."""
        if max(map(len, lines)) <= self._limit:
            return lines
        self.overflow = True
        return list(takewhile(lambda line: len(line) <= self._limit, lines))


class LineRefused(msgspec.Struct, frozen=True):
    """A line that is no call: write `line` if there is one, then close if told so."""

    line: bytes | None = None
    close: bool = False


def read_line(line: bytes, fresh: Fresh) -> Call | LineRefused:
    """One line, without its end. What is not a JSON object ends the connection."""
    try:
        check_text(line)
        wrapped = wrapper.maybe_strict(line)
        if wrapped is not None and wrapped.kind:
            return _wrapped(wrapped, encode_json(wrapped.id), len(line), fresh)
        document = read_members(line)
    except DocumentError:
        return LineRefused(close=True)
    except TooLargeError as error:
        return LineRefused(_refusal(error.code, f"seneca: {error}"))
    return _read_document(document, fresh)


def _read_document(document: Members, fresh: Fresh) -> Call | LineRefused:
    try:
        if "kind" in document:
            identity = maybe_bytes(document.get("id")) or b"null"
            return _wrapped(wrapper.read_members(document)[0], identity, None, fresh)
        meta = seed_meta.read_members(maybe_meta(document) or {})
        return read_seed(SEED_LINE, document, *meta, fresh, UNKNOWN_SENDER)
    except DocumentError as error:
        return LineRefused(_refusal(error.seneca_code, error.reason))
    except TooLargeError as error:
        return LineRefused(_refusal(error.code, f"seneca: {error}"))


def refusal_line(error: RacewayError) -> bytes:
    """A line that answers no call: why the connection ends."""
    failure = failure_of(error, {})
    return _refusal(failure.code, failure.message)


def _refusal(code: str, message: str) -> bytes:
    return encode_json({"code": code, "message": message, "seneca": True}) + b"\n"


def _wrapped(line: Wrapper, identity: bytes, size: int | None, fresh: Fresh) -> Call | LineRefused:
    """`identity` is the id as it came, which may be none; `size` that of the line, if it is known."""
    sent = ABSENT if line.time is None else line.time.client_sent
    echo = Echo(identity, maybe_bytes(line.origin), maybe_bytes(line.track), maybe_bytes(sent))
    fault = _maybe_fault(line)
    if fault is not None or line.act is None:
        return LineRefused(_wrapped_refusal(echo, fault or not_message().reason) if line.sync else None)
    beside = line.side or NO_SIDE
    mid, cid = split_id(line.id, fresh)
    told = Told(
        mid, cid, maybe_text(line.origin) or _maybe_str(beside.sid) or UNKNOWN_SENDER, line.sync,
        sent_ms=None if sent is ABSENT else read_time(sent), vin=version_of(beside.vin), pattern=_maybe_str(beside.pat),
    )  # fmt: skip
    call = make_call(TCP, line.act, told, echo)
    call.came_bytes = size
    return call


def _maybe_str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _maybe_fault(line: Wrapper) -> str | None:
    """Where a real listener is silent, and its caller waits in vain."""
    if line.kind != "act":
        return "seneca: a line of this kind is not a message"
    if not line.id:
        return "seneca: a message needs an id"
    if line.error is not ABSENT and bytes(line.error) != b"null":
        return "seneca: a message has no error"
    return None


def _wrapped_refusal(echo: Echo, message: str) -> bytes:
    error = encode_json({"code": "invalid_message", "seneca": True, "message": message, "name": "Error"})
    origin = b"" if echo.origin is None else b',"origin":%b' % echo.origin
    return b'{"id":%b,"kind":"res"%b,"sync":true,"res":null,"error":%b}\n' % (echo.id, origin, error)
