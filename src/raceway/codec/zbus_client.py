"""zbus from a client's side: messages to a broker or tracker, and what these send.

Both spellings of a key are sent where brokers of different age know different ones. A value that cannot stand in a
header line raises MalformedError: nothing of a caller's data is changed silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from raceway.codec.zbus_encode import line_value, status_line
from raceway.codec.zbus_head import MIB, Refused, ZbusLimits, fold_name
from raceway.codec.zbus_shapes import VISIBLE, Run
from raceway.codec.zbus_stream import ZbusStream
from raceway.errors import MalformedError

POST = b"POST / HTTP/1.1\r\n"
GET = b"GET / HTTP/1.1\r\n"
Keys = Iterable[tuple[bytes, bytes]]

# More than any message a broker would take: a tracker's table of many brokers, a page of many queues, and a head whose
# lines are the attributes of another wire's message.
CLIENT_LIMITS = ZbusLimits(head_bytes=MIB, headers=1000, body_bytes=256 * MIB)


# ---- to a broker ----------------------------------------------------------------------------------------------------


def produce(
    mq: bytes,
    payload: bytes,
    msgid: bytes | None = None,
    token: bytes | None = None,
    ack: bool = True,
    topic: bytes | None = None,
    reply_to: bytes | None = None,
    keys: Keys = (),
) -> bytes:
    """One message for a queue. `keys` are further headers, for whoever consumes it."""
    head = _head(b"produce", mq, msgid, token) + _lines(((b"topic", topic), *_both_spellings(reply_to)))
    return _message(POST, head + _acknowledged(ack) + _lines(keys), payload)


def produces(mq: bytes, ids: list[bytes], payloads: list[bytes], token: bytes | None = None, ack: bool = True) -> bytes:
    """Many messages for one queue. Hot: one join for all."""
    # The id stands last, so everything before it is the same for all.
    start = POST + _head(b"produce", mq, None, token) + _acknowledged(ack) + b"msgid: "
    pieces: list[bytes] = [start] * (4 * len(ids))
    # Checked together; one by one only to find the culprit, or to let pass what is unusual.
    pieces[1::4] = map(_checked, ids) if b"".join(ids).translate(None, VISIBLE) or not all(ids) else ids
    pieces[2::4] = [b"\r\ncontent-length: %d\r\n\r\n" % len(payload) for payload in payloads]
    pieces[3::4] = payloads
    return b"".join(pieces)


def consume(
    mq: bytes, msgid: bytes, token: bytes | None = None, topics: Iterable[bytes] = (), window: int = 1
) -> bytes:
    """Arm this connection. `topics` are of publish/subscribe; they add up over the connection's life."""
    head = _head(b"consume", mq, msgid, token) + _lines(((b"topic", b",".join(topics)),))
    return _message(GET, head + (b"window: %d\r\n" % window if window != 1 else b""))


def request(
    mq: bytes,
    msgid: bytes,
    payload: bytes,
    token: bytes | None = None,
    reply_to: bytes | None = None,
    keys: Keys = (),
) -> bytes:
    """The answer comes under the same `msgid`."""
    head = _head(b"request", mq, msgid, token) + _lines(_both_spellings(reply_to))
    return _message(POST, head + _lines(keys), payload)


def answer_to(asked: Received, payload: bytes, status: int = 200, keys: Keys = ()) -> bytes:
    """A service's answer to a request that was delivered to it. The status line says how it went."""
    reply_to, raw_id = asked.key(b"mq-reply"), asked.key(b"msgid-raw")
    if reply_to is None or raw_id is None:
        raise MalformedError("the delivery names no reply queue")
    start = POST if status == 200 else status_line(status)
    return _message(start, _head(b"produce", reply_to, raw_id, None) + _acknowledged(False) + _lines(keys), payload)


def heartbeat() -> bytes:
    return _message(GET, b"cmd: heartbeat\r\n")


def admin(
    method: bytes, msgid: bytes | None = None, token: bytes | None = None, body: bytes = b"", keys: Keys = ()
) -> bytes:
    head = _lines(((b"cmd", b"admin"), (b"method", method), (b"sub_cmd", method), (b"msgid", msgid), (b"token", token)))
    return _message(POST, head + _lines(keys), body)


def track(command: bytes, msgid: bytes | None = None, token: bytes | None = None, body: bytes = b"") -> bytes:
    """`track_report` and `track_sub`, at top level: an old tracker knows them nowhere else."""
    return _message(POST, _lines(((b"cmd", command), (b"msgid", msgid), (b"token", token))), body)


def _head(cmd: bytes, mq: bytes, msgid: bytes | None, token: bytes | None) -> bytes:
    return _lines(((b"cmd", cmd), (b"mq", mq), (b"msgid", msgid), (b"token", token)))


def _both_spellings(reply_to: bytes | None) -> tuple[tuple[bytes, bytes | None], ...]:
    return (b"mq-reply", reply_to), (b"mq_reply", reply_to)


def _acknowledged(ack: bool) -> bytes:
    return b"" if ack else b"ack: 0\r\n"


def _lines(keys: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """Header lines; absent and empty values are left out."""
    return b"".join([b"%b: %b\r\n" % (_checked_name(name), _checked(value)) for name, value in keys if value])


def _checked_name(name: bytes) -> bytes:
    folded = fold_name(name)
    if folded in (b"content-length", b"transfer-encoding"):
        raise MalformedError(f"{folded.decode()} is not for a caller to say")
    return folded


def _checked(value: bytes) -> bytes:
    if not value or line_value(value) != value:
        raise MalformedError(f"{value!r} cannot stand in a header line")
    return value


def _message(start: bytes, head: bytes, body: bytes = b"") -> bytes:
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (start, head, len(body), body)


# ---- from a broker --------------------------------------------------------------------------------------------------


class Received(msgspec.Struct, frozen=True):
    """A reply or a delivery (`status`), or what came unasked (`status` 0). Do not change `keys`: others share it."""

    status: int
    msgid: bytes | None
    keys: dict[bytes, bytes]
    body: bytes

    def key(self, name: bytes) -> bytes | None:
        """By its newer spelling, whichever was sent. Not for `msgid`."""
        return self.keys.get(name)


class ZbusClientReceiver:
    """What a broker or tracker sends on one connection."""

    def __init__(self, limits: ZbusLimits = CLIENT_LIMITS) -> None:
        self._stream = ZbusStream(limits)

    def receive_data(self, data: bytes) -> list[Received]:
        """Bytes as they came. Raises MalformedError; the connection is of no use then."""
        received: list[Received] = []
        for found in self._stream.receive(data):
            if isinstance(found, Run):
                received += _messages(found)
            elif isinstance(found, Refused):
                raise MalformedError(found.text)
        return received


def _messages(run: Run) -> list[Received]:
    """Messages of a run; interim replies (`100 Continue`) are nobody's."""
    status = run.first.status or 0
    if 100 <= status < 200:
        return []
    keys = dict(run.keys)
    ids = keys.pop(b"msgid", None)
    if list not in map(type, keys.values()):
        shared = cast(dict[bytes, bytes], keys)
        each = cast(list[bytes | None], ids if type(ids) is list else [ids] * len(run.bodies))
        return [Received(status, msgid, shared, body) for msgid, body in zip(each, run.bodies, strict=True)]
    return [one for row in range(len(run.bodies)) for one in _messages(run.part(row, row + 1))]
