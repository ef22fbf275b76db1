"""Envelope to wire to envelope, and wire to journal to the same wire: every field that a wire can carry is kept.

The sending side is what a client writes, the receiving side what a broker reads; on the way back the broker writes and
the client reads. Between them lies a journal whose blocks are encoded and read as on disk.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from raceway import config
from raceway.broker.queues.queue import batch_of as batch_of_rows
from raceway.journal.memory import MemoryJournal
from raceway.model.envelope import ZBUS, Batch, Envelope
from raceway.model.intents.batches import Publish, Request
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.pb.danube_api_pb2 import MsgID, StreamMessage
from raceway.wires.danube.codec.rows import SendLimits, decode_sends
from raceway.wires.mb.codec import encode as mb
from raceway.wires.mb.codec.header import MbLimits
from raceway.wires.mb.codec.receiver import MbReceiver
from raceway.wires.seneca.codec.call import Call, Dialect
from raceway.wires.seneca.codec.call import batch_of as batch_of_call
from raceway.wires.seneca.codec.outgoing import call_http
from raceway.wires.seneca.codec.request import read_http
from raceway.wires.seneca.codec.rows import outgoing_of
from raceway.wires.zbus.codec import client as zbus_client
from raceway.wires.zbus.codec.encode import delivery, delivery_head, delivery_tail, sent_of
from raceway.wires.zbus.codec.head import ZbusLimits
from raceway.wires.zbus.codec.receiver import Produce, ZbusReceiver

BROKER = b"127.0.0.1:15555"
ADDRESS = b"http://127.0.0.1:6650"

uuids = st.builds(lambda number: str(uuid.UUID(int=number, version=4)), st.integers(0, 2**128 - 1))
words = st.text("abcdefghijklmnopqrstuvwxyzABC", min_size=1, max_size=8)
mb_topics = st.lists(words, min_size=1, max_size=4).map(".".join).filter(lambda name: not mb_is_system(name))
versions = st.tuples(*[st.integers(0, 99)] * 3).map(lambda parts: ".".join(map(str, parts)))
letters = st.characters(exclude_categories=["C", "Z"])
# What may stand in a header line, and comes back as it was.
line_texts = st.text(letters, min_size=1, max_size=12)
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=10).map(lambda name: f"x-{name}")
any_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
positive = st.integers(0, 2**53)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(any_texts, children, max_size=3),
    max_leaves=6,
)


def mb_is_system(name: str) -> bool:
    return name.split(".")[0].lower() in ("system", "raceway")


def through_journal(batch: Batch) -> Batch:
    """Appended, committed and read back."""
    calls: list[Callable[[], Any]] = []
    journal = MemoryJournal(config.JournalSettings(durability="memory"), calls.append, lambda: 1_700_000_000_000_000)
    journal.append(batch, None)
    journal.flush()
    while calls:
        calls.pop(0)()
    (found,) = journal.read(0, journal.committed + 1)
    journal.close()
    return batch_of_rows(found)


# ---- MB --------------------------------------------------------------------------------------------------------------

mb_messages = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["publish", "request"]),
        "topic": mb_topics,
        "version": versions,
        "message_id": uuids,
        "payload": st.binary(max_size=50),
    },
    optional={"parent_id": uuids, "timeout_ms": st.integers(0, 60_000)},
)


def to_mb(envelope: Envelope) -> bytes:
    """As a client writes it."""
    fields = [envelope.kind, envelope.topic, envelope.version, envelope.message_id]
    fields += [envelope.parent_id or "", "" if envelope.timeout_ms is None else str(envelope.timeout_ms)]
    header = ":".join(map(str, fields)).rstrip(":").encode()
    return mb.tcp_frame(len(header) + 1 + len(envelope.payload)) + header + b"\n" + envelope.payload


def from_mb(data: bytes) -> Batch:
    (event,) = MbReceiver(MbLimits(), framed=True).receive_data(data)
    assert isinstance(event, Publish | Request), event
    return event.batch


@given(mb_messages)
def test_mb_carries_every_field_of_its_own(fields: dict[str, Any]) -> None:
    if fields["kind"] == "publish":
        fields.pop("timeout_ms", None)
    sent = Envelope(wire="mb", correlation_id=fields["message_id"], **fields)
    found = from_mb(to_mb(sent)).row(0)
    assert found == msgspec.structs.replace(sent, attributes={}, hops=())


@given(mb_messages)
def test_mb_through_the_journal_to_mb_keeps_all_of_it(fields: dict[str, Any]) -> None:
    """S15 of the manual's page: version and text; the id is a new one for whoever receives it."""
    fields.pop("timeout_ms", None)
    kept = through_journal(from_mb(to_mb(Envelope(wire="mb", **fields))))
    row = kept.row(0)
    assert {name: getattr(row, name) for name in fields} == fields
    masked = b"00000000-0000-4000-8000-000000000000"
    topic, version = kept.item("topic", 0), kept.item("version", 0)
    if fields["kind"] == "publish":
        data = mb.deliveries(topic, version, [masked], kept.payload, mb.tcp_frame)  # type: ignore[arg-type]
    else:
        data = mb.forwarded(topic, version, masked, kept.item("payload", 0), mb.tcp_frame)
    again = from_mb(data).row(0)
    text = fields["payload"].decode("utf-8", "replace").encode()
    assert (again.kind, again.topic, again.version, again.payload) == (
        fields["kind"], fields["topic"], fields["version"], text,
    )  # fmt: skip


# ---- Danube ----------------------------------------------------------------------------------------------------------

danube_messages = st.fixed_dictionaries(
    {
        "request_id": positive,
        "payload": st.binary(max_size=50),
        "publish_time": positive,
        "producer_name": st.just("p"),
        "attributes": st.dictionaries(
            any_texts | st.sampled_from(["x-parent-id", "x-correlation-id"]), any_texts, max_size=4
        ),
    },
    optional={"schema_id": positive, "schema_version": st.integers(0, 2**31 - 1), "routing_key": any_texts},
)


def to_danube(fields: dict[str, Any]) -> StreamMessage:
    identity = MsgID(producer_id=7, topic_name="/default/events", broker_addr=ADDRESS.decode())
    return StreamMessage(msg_id=identity, **fields)


@given(danube_messages)
def test_danube_carries_every_field_of_its_own(fields: dict[str, Any]) -> None:
    row = decode_sends([to_danube(fields).SerializeToString()], SendLimits()).batch.row(0)
    assert (row.topic, row.producer_id, row.message_id) == ("events", 7, f"7-{fields['request_id']}")
    assert (row.payload, row.sent_ms, row.attributes) == (
        fields["payload"],
        fields["publish_time"],
        fields["attributes"],
    )
    assert (row.schema_id, row.schema_version) == (fields.get("schema_id"), fields.get("schema_version"))
    assert row.routing_key == fields.get("routing_key")
    assert row.parent_id == (fields["attributes"].get("x-parent-id") or None)
    assert row.correlation_id == (fields["attributes"].get("x-correlation-id") or row.message_id)


@given(st.lists(danube_messages, min_size=1, max_size=3))
def test_danube_through_the_journal_to_danube_keeps_all_of_it(several: list[dict[str, Any]]) -> None:
    """The receiver's message is the sender's, completed by offset and subscription."""
    messages = [to_danube(fields) for fields in several]
    batch = decode_sends([message.SerializeToString() for message in messages], SendLimits()).batch
    batch.producer = b"p"
    kept = through_journal(batch)
    delivered = Deliverer(b"events", b"billing", ADDRESS).encode(kept, range(kept.count))
    for offset, (message, data) in enumerate(zip(messages, delivered, strict=True)):
        message.msg_id.topic_offset, message.subscription_name = offset, "billing"
        assert StreamMessage.FromString(data) == message


# ---- zbus ------------------------------------------------------------------------------------------------------------

zbus_messages = st.fixed_dictionaries(
    {"msgid": line_texts, "body": st.binary(max_size=50), "keys": st.dictionaries(names, line_texts, max_size=4)},
    optional={
        "topic": line_texts,
        "mq-reply": line_texts,
        "msgid-raw": line_texts,
        "routing-key": line_texts,
        "encoding": st.sampled_from(["utf-8", "gbk"]),
        "content-type": st.sampled_from(["text/plain", "application/json; charset=utf-8"]),
        "schema-id": st.integers(0, 2**31).map(str),
        "schema-version": st.integers(0, 1000).map(str),
        "reply-code": st.sampled_from(["404", "500", "302"]),
    },
)
OWN_KEYS = (
    "mq-reply",
    "msgid-raw",
    "routing-key",
    "encoding",
    "content-type",
    "schema-id",
    "schema-version",
    "reply-code",
)


def to_zbus(fields: dict[str, Any]) -> bytes:
    keys = [(name, fields[name]) for name in OWN_KEYS if name in fields] + list(fields["keys"].items())
    return zbus_client.produce(
        b"events", fields["body"], fields["msgid"].encode(),
        topic=fields["topic"].encode() if "topic" in fields else None,
        keys=[(name.encode(), value.encode()) for name, value in keys],
    )  # fmt: skip


def from_zbus(data: bytes) -> Batch:
    (event,) = ZbusReceiver(ZbusLimits()).receive_data(data)
    assert isinstance(event, Produce), event
    event.batch.wire = ZBUS
    event.batch.kind = b"publish"
    event.batch.message_id = [event.batch.item("message_id", 0)]
    return event.batch


@given(zbus_messages)
def test_zbus_carries_every_field_of_its_own(fields: dict[str, Any]) -> None:
    row = from_zbus(to_zbus(fields)).row(0)
    assert (row.topic, row.message_id, row.payload) == ("events", fields["msgid"], fields["body"])
    assert (row.reply_to, row.parent_id) == (fields.get("mq-reply"), fields.get("msgid-raw"))
    assert row.routing_key == fields.get("routing-key")
    assert fields["keys"].items() <= row.attributes.items()
    assert row.attributes.get("zbus.topic") == fields.get("topic")


@given(zbus_messages)
def test_zbus_through_the_journal_to_zbus_keeps_all_of_it(fields: dict[str, Any]) -> None:
    """Every header, the status, and the sender's id beside that of the consume."""
    kept = through_journal(from_zbus(to_zbus(fields)))
    sent = msgspec.structs.replace(sent_of(kept, 0, BROKER), mq=b"events", reply_to=kept.item("reply_to", 0))
    head = delivery_head(sent)
    data = delivery(b"c1", head.status, delivery_tail(kept.item("message_id", 0), head, kept.item("payload", 0)))
    (found,) = zbus_client.ZbusClientReceiver().receive_data(data)
    keys = {name.decode(): value.decode() for name, value in found.keys.items()}
    assert (found.status, found.msgid, found.body) == (int(fields.get("reply-code", 200)), b"c1", fields["body"])
    assert keys["msgid-raw"] == fields["msgid"]
    wanted = {name: fields[name] for name in fields if name not in ("msgid", "body", "keys", "msgid-raw", "reply-code")}
    assert (fields["keys"] | wanted).items() <= keys.items()


# ---- Seneca ----------------------------------------------------------------------------------------------------------

plain_names = any_texts.filter(lambda name: not name.endswith("$"))
seneca_messages = st.fixed_dictionaries(
    {
        "mid": words,
        "cid": words,
        "sid": words,
        "sync": st.booleans(),
        "data": st.dictionaries(plain_names, json_values, max_size=4),
        "custom": st.dictionaries(plain_names, json_values, max_size=4),
        "vin": st.integers(1, 9),
        "pattern": st.none() | words,
        "sent_ms": positive,
        "ancestors": st.lists(words, max_size=3, unique=True),
    }
)


def to_seneca(fields: dict[str, Any]) -> dict[str, Any]:
    trk = [{"sid": "s", "rid": "r", "mid": f"h-{mid}", "tms": [1, 2]} for mid in fields["ancestors"]]
    meta = {name: fields[name] for name in ("mid", "cid", "sid", "vin")}
    meta |= {"act": True, "snc": fields["sync"], "pat": fields["pattern"], "extra": {"kept": 1}}
    meta["trk"] = [*trk, {"sid": fields["sid"], "mid": fields["mid"], "tms": [fields["sent_ms"]]}]
    return {**fields["data"], "meta$": meta | ({"ctm": fields["custom"]} if fields["custom"] else {})}


def from_seneca(document: dict[str, Any]) -> Batch:
    call = read_http({}, json.dumps(document).encode(), lambda: "fresh")
    assert isinstance(call, Call), call
    return batch_of_call(call, b"events")


@given(seneca_messages)
def test_seneca_carries_every_field_of_its_own(fields: dict[str, Any]) -> None:
    row = from_seneca(to_seneca(fields)).row(0)
    assert (row.message_id, row.correlation_id, row.producer) == (fields["mid"], fields["cid"], fields["sid"])
    assert (row.kind, row.sent_ms) == ("request" if fields["sync"] else "publish", fields["sent_ms"])
    assert json.loads(row.payload) == fields["data"]
    assert [hop.mid for hop in row.hops] == [*[f"h-{mid}" for mid in fields["ancestors"]], fields["mid"]]
    assert row.parent_id == (f"h-{fields['ancestors'][-1]}" if fields["ancestors"] else None)


@given(seneca_messages)
def test_seneca_through_the_journal_to_seneca_keeps_all_of_it(fields: dict[str, Any]) -> None:
    """The very document, meta data that nobody knows included."""
    document = to_seneca(fields)
    kept = through_journal(from_seneca(document))
    outgoing, _ = outgoing_of(kept, 0, {}, lambda: "fresh", 0)
    assert json.loads(call_http(Dialect.SEED, outgoing).body) == document
