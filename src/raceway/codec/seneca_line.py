"""Seneca over TCP: one JSON document per line, both ways on one connection.

A line with `kind` is of the legacy dialect, a wrapper around the message:

    {"id": "mid/cid", "kind": "act", "origin": …, "track": […], "time": {"client_sent": …}, "act": {…}, "sync": true}

A line without is the document itself, with or without meta data, and is answered by one.
"""

from __future__ import annotations

import msgspec

from raceway.codec.seneca_call import UNKNOWN_SENDER, Call, Dialect, Echo, Fresh, Told, make_call, split_id
from raceway.codec.seneca_document import (
    DocumentError,
    Members,
    decode_any,
    is_true,
    maybe_bytes,
    maybe_decoded,
    maybe_members,
    maybe_text,
    read_members,
)
from raceway.codec.seneca_request import maybe_meta, read_seed, read_time, read_track, read_version
from raceway.errors import TooLargeError
from raceway.model.envelope import encode_json

_BLANK = b" \t\r"


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
        for row, line in enumerate(lines):
            if len(line) > self._limit:
                self.overflow = True
                return lines[:row]
        return lines


class LineRefused(msgspec.Struct, frozen=True):
    """A line that is no call: write `line` if there is one, then close if told so."""

    line: bytes | None = None
    close: bool = False


def read_line(line: bytes, fresh: Fresh) -> Call | LineRefused:
    """One line, without its end. What is not a JSON object ends the connection."""
    try:
        document = read_members(line)
    except DocumentError:
        return LineRefused(close=True)
    try:
        if "kind" in document:
            return _wrapped(document, fresh)
        return read_seed(Dialect.SEED_LINE, document, maybe_meta(document) or {}, fresh, UNKNOWN_SENDER)
    except DocumentError as error:
        return LineRefused(_refusal(error.seneca_code, error.reason))
    except TooLargeError as error:
        return LineRefused(_refusal(error.code, f"seneca: {error}"))


def _refusal(code: str, message: str) -> bytes:
    return encode_json({"code": code, "message": message, "seneca": True}) + b"\n"


def _wrapped(document: Members, fresh: Fresh) -> Call | LineRefused:
    sync = is_true(document.get("sync"))
    time = maybe_members(document.get("time")) or {}
    side = maybe_members(document.get("msg$")) or {}
    origin, track, sent = document.get("origin"), document.get("track"), time.get("client_sent")
    echo = Echo(maybe_bytes(document.get("id")) or b"null", maybe_bytes(origin), maybe_bytes(track), maybe_bytes(sent))
    act = maybe_members(document.get("act"))
    fault = _maybe_fault(document)
    if fault is not None or act is None:
        return LineRefused(_wrapped_refusal(echo, fault or "seneca: message must be a JSON object") if sync else None)
    mid, cid = split_id(maybe_text(document["id"]) or "", fresh)
    sid = maybe_text(origin) or maybe_text(side.get("sid")) or UNKNOWN_SENDER
    told = Told(
        mid, cid, sid, sync, sent_ms=read_time(sent), vin=read_version(side.get("vin")),
        pattern=maybe_text(side.get("pat")),
    )  # fmt: skip
    return make_call(Dialect.TCP, act, told, echo, read_track(track))


def _maybe_fault(document: Members) -> str | None:
    """Where a real listener is silent, and its caller waits in vain."""
    if maybe_text(document["kind"]) != "act":
        return "seneca: a line of this kind is not a message"
    if not maybe_text(document.get("id")):
        return "seneca: a message needs an id"
    if maybe_decoded(decode_any, document.get("error")) is not None:
        return "seneca: a message has no error"
    return None


def _wrapped_refusal(echo: Echo, message: str) -> bytes:
    error = encode_json({"code": "invalid_message", "seneca": True, "message": message, "name": "Error"})
    origin = b"" if echo.origin is None else b',"origin":%b' % echo.origin
    return b'{"id":%b,"kind":"res"%b,"sync":true,"res":null,"error":%b}\n' % (echo.id, origin, error)
