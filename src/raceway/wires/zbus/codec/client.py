"""zbus from a client's side: messages to a broker or tracker, and what they send.

Keys that brokers of different versions spell differently are sent in both spellings. A value that cannot be a header
value raises MalformedError: a caller's data is never changed silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from raceway.errors import MalformedError
from raceway.wires.zbus.codec.encode import line_value, status_line
from raceway.wires.zbus.codec.head import MIB, ZbusLimits, ZbusRefused, fold_name
from raceway.wires.zbus.codec.shapes import VISIBLE, ShapedRun
from raceway.wires.zbus.codec.stream import ZbusStream

POST = b"POST / HTTP/1.1\r\n"
GET = b"GET / HTTP/1.1\r\n"
Keys = Iterable[tuple[bytes, bytes]]

# Larger than a broker's own limits: a tracker's table of many brokers, a page of many queues, and a head whose lines
# are the attributes of another wire's message.
CLIENT_LIMITS = ZbusLimits(head_bytes=MIB, headers=1000, body_bytes=256 * MIB)


# ---- to a broker ----------------------------------------------------------------------------------------------------


def produce(
    mq: bytes,
    payload: bytes,
    msgid: bytes | None = None,
    token: bytes | None = None,
    ack: bool = True,
    topic: bytes | None = None,
    keys: Keys = (),
) -> bytes:
    """Encode one message for a queue. `keys` are further headers, relayed to the consumer."""
    head = _head(b"produce", mq, msgid, token) + _lines(((b"topic", topic),))
    return _message(POST, head + _acknowledged(ack) + _lines(keys), payload)


def produces(mq: bytes, ids: list[bytes], payloads: list[bytes], token: bytes | None = None, ack: bool = True) -> bytes:
    """Encode many messages for one queue. Hot: one join for all."""
    # The id comes last, so everything before it is the same for all messages.
    start = POST + _head(b"produce", mq, None, token) + _acknowledged(ack) + b"msgid: "
    pieces: list[bytes] = [start] * (4 * len(ids))
    # All ids are checked at once; one by one only if some byte is not visible ASCII.
    pieces[1::4] = map(_checked, ids) if b"".join(ids).translate(None, VISIBLE) or not all(ids) else ids
    pieces[2::4] = [b"\r\ncontent-length: %d\r\n\r\n" % len(payload) for payload in payloads]
    pieces[3::4] = payloads
    return b"".join(pieces)


def consume(mq: bytes, msgid: bytes, token: bytes | None = None, topics: Iterable[bytes] = ()) -> bytes:
    """Encode a consume, which arms this connection. `topics` are of publish/subscribe; they add up over the
    connection's life."""
    return _message(GET, _head(b"consume", mq, msgid, token) + _lines(((b"topic", b",".join(topics)),)))


def request(mq: bytes, msgid: bytes, payload: bytes, token: bytes | None = None, keys: Keys = ()) -> bytes:
    """Encode a request; the answer comes under the same `msgid`."""
    return _message(POST, _head(b"request", mq, msgid, token) + _lines(keys), payload)


def answer_to(asked: Received, payload: bytes, status: int = 200, keys: Keys = ()) -> bytes:
    """Encode a service's answer to a request delivered to it."""
    # Protocol: the answer is a produce to `mq-reply` under the caller's own id, `msgid-raw`.
    reply_to, raw_id = asked.keys.get(b"mq-reply"), asked.keys.get(b"msgid-raw")
    if reply_to is None or raw_id is None:
        raise MalformedError("the delivery has no mq-reply or msgid-raw, so it cannot be answered")
    # A message may start with a status line; its status travels on to the caller.
    start = POST if status == 200 else status_line(status)
    return _message(start, _head(b"produce", reply_to, raw_id, None) + _acknowledged(False) + _lines(keys), payload)


def heartbeat() -> bytes:
    """Encode a heartbeat, which is never answered."""
    return _message(GET, b"cmd: heartbeat\r\n")


def admin(method: bytes, msgid: bytes | None = None, token: bytes | None = None, body: bytes = b"") -> bytes:
    """Encode an administration command."""
    # `method` is the protocol text's name, `sub_cmd` that of 5.1 to 6.1.
    head = _lines(((b"cmd", b"admin"), (b"method", method), (b"sub_cmd", method), (b"msgid", msgid), (b"token", token)))
    return _message(POST, head, body)


def track(command: bytes, msgid: bytes | None = None, token: bytes | None = None, body: bytes = b"") -> bytes:
    """Encode `track_report` or `track_sub` at top level: the real tracker knows them nowhere else."""
    return _message(POST, _lines(((b"cmd", command), (b"msgid", msgid), (b"token", token))), body)


def _head(cmd: bytes, mq: bytes, msgid: bytes | None, token: bytes | None) -> bytes:
    """The lines that every command about a queue has."""
    return _lines(((b"cmd", cmd), (b"mq", mq), (b"msgid", msgid), (b"token", token)))


def _acknowledged(ack: bool) -> bytes:
    """The line that turns acknowledgement off; on is the default."""
    return b"" if ack else b"ack: 0\r\n"


def _lines(keys: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """Encode header lines; absent and empty values are left out."""
    return b"".join([b"%b: %b\r\n" % (_checked_name(name), _checked(value)) for name, value in keys if value])


def _checked_name(name: bytes) -> bytes:
    """Check and fold a header name; refuse those that frame the message."""
    folded = fold_name(name)
    # RFC 9112, 6.3: these two decide where the message ends, so only `_message` writes them.
    if folded in (b"content-length", b"transfer-encoding"):
        raise MalformedError(f"{folded.decode()} is set by the client itself and cannot be a key")
    return folded


def _checked(value: bytes) -> bytes:
    """Refuse a value that is not a header value as it stands."""
    if not value or line_value(value) != value:
        raise MalformedError(f"{value!r} is not a valid header value")
    return value


def _message(start: bytes, head: bytes, body: bytes = b"") -> bytes:
    """Serialize a message. `content-length` is sent for an empty body as well."""
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (start, head, len(body), body)


# ---- from a broker --------------------------------------------------------------------------------------------------


class Received(msgspec.Struct, frozen=True):
    """A reply or delivery (`status`), or a message pushed unasked (`status` 0).

    `keys` are by their newer spelling, whichever was sent, without `msgid`. Do not modify them: messages share them.
    """

    status: int
    msgid: bytes | None
    keys: dict[bytes, bytes]
    body: bytes


class ZbusClientReceiver:
    """Receiver of one connection to a broker or tracker."""

    def __init__(self, limits: ZbusLimits = CLIENT_LIMITS) -> None:
        self._stream = ZbusStream(limits)

    def receive_data(self, data: bytes) -> list[Received]:
        """Add received bytes; return complete messages. Raises MalformedError, after which the connection is
        unusable."""
        received: list[Received] = []
        for found in self._stream.receive(data):
            if isinstance(found, ShapedRun):
                received += _messages(found)
            elif isinstance(found, ZbusRefused):
                raise MalformedError(found.text)
        return received


def _messages(run: ShapedRun) -> list[Received]:
    """The messages of a run, without interim replies."""
    status = run.first.status or 0
    # RFC 9110, 15.2: a 1xx reply is interim; the final one follows.
    if 100 <= status < 200:
        return []
    keys = dict(run.keys)
    ids = keys.pop(b"msgid", None)
    # Fast path: only ids differ, so all messages share one dictionary.
    if list not in map(type, keys.values()):
        shared = cast(dict[bytes, bytes], keys)
        each = cast(list[bytes | None], ids if type(ids) is list else [ids] * len(run.bodies))
        return [Received(status, msgid, shared, body) for msgid, body in zip(each, run.bodies, strict=True)]
    return [one for row in range(len(run.bodies)) for one in _messages(run.part(row, row + 1))]
