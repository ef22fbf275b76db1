"""Fuzz target of the zbus receiver. Not part of the tests; its finds are, in `tests/rigs/vectors/zbus_corpus`.

    python -m tests.fuzz zbus_receiver tests/rigs/vectors/zbus_corpus -max_len=1500 -max_total_time=600

Whatever the bytes are: read whole, byte by byte and cut in two they give the same events; so they do when shapes of
heads are learned; and whatever the broker writes because of them is exactly one message to a client.
"""

from __future__ import annotations

from typing import Any

from raceway.wires.zbus.codec.client import Received, ZbusClientReceiver
from raceway.wires.zbus.codec.encode import (
    SentFacts,
    acknowledgements,
    answer,
    delivery,
    delivery_head,
    delivery_tail,
    page,
    refusal_reply,
)
from raceway.wires.zbus.codec.head import ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin, Ask, Consume, Produce, ZbusEvent
from raceway.wires.zbus.codec.shapes import ALIKE
from tests.rigs.zbus_events import curious, flat, received_bytewise, strict

# Small, so that short inputs reach them.
LIMITS = ZbusLimits(head_bytes=600, headers=16, body_bytes=300)
BROKER = b"127.0.0.1:15555"
COLUMNS = ("reply_to", "encoding", "routing_key", "schema_id", "schema_version", "attributes")


def check(data: bytes) -> None:
    """Raises if anything is amiss. The first byte says where to cut."""
    cut, data = data[0] if data else 0, data[1:]
    whole = strict(LIMITS)
    events = whole.receive_data(data)
    expected = flat(events)
    assert received_bytewise(strict(LIMITS), data) == expected
    halves = curious(LIMITS)
    assert flat(halves.receive_data(data[:cut]) + halves.receive_data(data[cut:])) == expected
    if whole.pending == 0 and not _has_closed(events):
        _check_learned(data, expected)
    for event in events:
        _check_written(event)


def _has_closed(events: list[ZbusEvent]) -> bool:
    return any(isinstance(event, ZbusRefused) and event.close for event in events)


def _check_learned(data: bytes, expected: list[Any]) -> None:
    learned = curious(LIMITS)
    for times in (3, 2, 2 * ALIKE if len(data) < 400 else 1, ALIKE + 1 if len(data) < 400 else 1):
        assert flat(learned.receive_data(data * times)) == expected * times
    assert learned.pending == 0


def _check_written(event: ZbusEvent) -> None:
    if isinstance(event, Produce | Ask):
        _check_relayed(event)
    elif isinstance(event, ZbusRefused):
        reply = read(refusal_reply(event))
        assert (reply.status, reply.msgid, reply.body) == (event.status, event.msgid, event.text.encode())
    elif isinstance(event, Consume | Admin):
        assert read(page(event.msgid, b"<html>")).msgid == event.msgid
        assert event.token is None or isinstance(event, Admin) or event.token not in repr(event.topics).encode()


def _check_relayed(event: Produce | Ask) -> None:
    batch = event.batch
    ids = [batch.item("message_id", row) or b"made" for row in range(batch.count)]
    acknowledged = ZbusClientReceiver().receive_data(acknowledgements(ids, 1423000000000))
    assert [each.msgid for each in acknowledged] == ids
    for row in range(batch.count):
        columns = {name: batch.item(name, row) for name in COLUMNS}
        sent = SentFacts(BROKER, batch.item("topic", row), b"produce", remote_addr=b"127.0.0.1:1", **columns)
        _check_delivery(event, row, ids[row], sent)


def _check_delivery(event: Produce | Ask, row: int, raw_id: bytes, sent: SentFacts) -> None:
    body = event.batch.item("payload", row)
    status = event.status[row] if type(event.status) is list else event.status
    for for_browser in (False, True):
        head = delivery_head(sent, for_browser)
        assert head.status == (status or 200)
        found = read(delivery(b"c-1", head.status, delivery_tail(raw_id, head, body)))
        assert (found.status, found.msgid, found.keys.get(b"msgid-raw"), found.body) == (
            head.status,
            b"c-1",
            raw_id,
            body,
        )
        assert found.keys.get(b"mq-reply") == sent.reply_to
        assert found.keys.get(b"broker") == BROKER
        assert b"token" not in found.keys
        assert read(answer(b"r-1", head, body)).body == body


def read(data: bytes) -> Received:
    """The one message that a client sees in these bytes."""
    client = ZbusClientReceiver()
    (found,) = client.receive_data(data)
    assert client._stream.pending == 0
    return found
