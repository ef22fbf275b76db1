"""The page on conversions, made by asking the code.

A message with a mark in every place is given to each wire's codec, and the page says in which column each mark was
found; a row with a mark in every column is given to each wire's encoder, and the page says where in the message each
mark stands.

So the page cannot say what the code does not do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from docs.generate.markdown import page, table
from docs.generate.marks import Found, columns_of
from docs.generate.seneca_dialects import DIALECTS, dialects, from_seneca
from raceway.broker.runs import RowSpan, Run
from raceway.broker.topics import Topic
from raceway.model.envelope import COLUMNS, PUBLISH, Batch, Envelope, Hop, encode_attributes, encode_hops
from raceway.net.codec import cloudevents
from raceway.net.codec.http_message import HttpMessage, read_plain
from raceway.web.event_streams import shown
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.pb.danube_api_pb2 import MsgID, StreamMessage
from raceway.wires.danube.codec.rows import SendLimits, decode_sends
from raceway.wires.mb.codec.header import MbLimits
from raceway.wires.mb.codec.receiver import MbReceiver
from raceway.wires.mb.listen.peer import PublishEncoder
from raceway.wires.seneca.codec.rows import outgoing_of
from raceway.wires.zbus.codec import encode as zbus_encode
from raceway.wires.zbus.codec.head import ZbusLimits
from raceway.wires.zbus.codec.receiver import ZbusReceiver

ID = "550e8400-e29b-41d4-a716-446655440000"
PARENT = "123e4567-e89b-42d3-a456-426614174000"
FORWARDED = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
NUMBERS = {"offset": 7001, "time_us": 1_700_000_000_123_456, "sent_ms": 1_700_000_000_777, "answers": 7003,
           "timeout_ms": 7005, "producer_id": 7006, "schema_id": 7007, "schema_version": 7008}  # fmt: skip
WIRES = ("MB", "Danube", "zbus", "Seneca", "HTTP", "CloudEvents")


def conversions_page() -> str:
    head = ["column", *WIRES]
    return page(
        "Conversions",
        "What a message of each wire becomes, and what each wire is told of a message that came by another. Whatever",
        "a receiving wire has no place for stays in the journal, and comes back when the message returns to its own",
        "wire. What becomes of errors is a table of [errors](errors.md#on-the-wires).",
        "",
        "## From a wire into the row",
        "",
        *table(head, _matrix(WIRES, {wire: probe() for wire, probe in INCOMING.items()})),
        "Every row has `wire`, `kind`, `offset` and `time_us`; positions, `forwarded_id` and `answers` are given by",
        "the bus, and an answer has a hop with the bus's own times. A message without an id gets one, and without a",
        "parent its id is the correlation id. Over HTTP the address names the topic.",
        "",
        "### The dialects of Seneca",
        "",
        "Which dialect is which is told in [the Seneca wire](../understand/seneca-wire.md#dialects). A message that an",
        "attached pin matches goes to the pin's topic instead.",
        "",
        *table(["column", *DIALECTS], _matrix(DIALECTS, dialects())),
        "## From the row to another wire",
        "",
        "A publish that came by a different wire than the one in the head of the column.",
        "",
        *table(head, _matrix(WIRES, {wire: probe() for wire, probe in OUTGOING.items()})),
        "A payload is passed on byte for byte, except: MB shows what is no UTF-8 as U+FFFD; Seneca, which knows",
        "objects only, gets other payloads as `data` or `data_base64`. Foreign messages have the MB version `1.0.0`.",
        "Attributes that begin with `ce-` are attributes of the CloudEvent.",
    )


def _matrix(heads: Sequence[str], found: Mapping[str, Found]) -> list[list[str]]:
    every = {column: [found[head].get(column, "") for head in heads] for column in COLUMNS}
    return [[f"`{column}`", *cells] for column, cells in every.items() if any(cells)]


# ---- from wires -----------------------------------------------------------------------------------------------------


def _from_mb() -> Found:
    message = f"request:math.sum:4.5.6:{ID}:{PARENT}:7005\nthe payload".encode()
    (event,) = MbReceiver(MbLimits(), framed=False).receive_messages([message])
    marks = {"action": "request", "topic": "math.sum", "version": "4.5.6", "requestId": ID, "parentId": PARENT,
             "timeout": 7005, "after the LF": "the payload"}  # fmt: skip
    return columns_of(event.batch.row(0), marks)  # type: ignore[union-attr]


def _from_danube() -> Found:
    message = StreamMessage(
        request_id=7010, msg_id=MsgID(producer_id=7006, topic_name="/default/x", broker_addr="b", topic_offset=9),
        payload=b"the payload", publish_time=7011, producer_name="desk", attributes={
            "x-correlation-id": "the root", "x-parent-id": "the parent", "other": "another", "traceparent": "a trace"
        }, schema_id=7007, schema_version=7008, routing_key="the key",
    )  # fmt: skip
    sends = decode_sends([message.SerializeToString()], SendLimits())
    marks = {
        "`topic_name` `/default/x`": "x", "`producer_id`": 7006, "`producer_id`-`request_id`": "7010",
        "`publish_time`": 7011, "`payload`": "the payload", "attribute `x-correlation-id`": "the root",
        "attribute `x-parent-id`": "the parent", "every attribute": "another", "`schema_id`": 7007,
        "`schema_version`": 7008, "`routing_key`": "the key",
    }  # fmt: skip
    found = columns_of(sends.batch.row(0), marks)
    return found | {"attributes": "every attribute"}


def _from_zbus() -> Found:
    head = (
        "POST / HTTP/1.1\r\ncmd: produce\r\nmq: orders\r\nmsgid: an-id\r\n"
        "mq-reply: a-queue\r\nmsgid-raw: the-parent\r\n"
        "topic: a-subject\r\nrouting-key: the-key\r\nschema-id: 7007\r\nschema-version: 7008\r\n"
        "content-type: text/plain\r\nother: another\r\ncontent-length: 11\r\n\r\nthe payload"
    )
    (event,) = ZbusReceiver(ZbusLimits()).receive_data(head.encode())
    marks = {
        "`mq`": "orders", "`msgid`": "an-id", "`mq-reply`": "a-queue", "`msgid-raw`": "the-parent",
        "`topic` (as `zbus.topic`)": "a-subject", "`routing-key`": "the-key", "`schema-id`": 7007,
        "`schema-version`": 7008, "`content-type`, else `encoding`": "text/plain", "unknown headers": "another",
        "body": "the payload",
    }  # fmt: skip
    return columns_of(event.batch.row(0), marks)  # type: ignore[union-attr]


_HTTP_MARKS = {
    "`x-message-id`": "an-id", "`x-correlation-id`": "the-root", "`x-parent-id`": "the-parent",
    "`routing-key`": "the-key", "`schema-id`": 7007, "`schema-version`": 7008, "`timeout-ms`": 7005,
    "`content-type`": "text/plain", "other `x-` headers, `traceparent`": "another", "body": "the payload",
}  # fmt: skip


def _from_http() -> Found:
    headers = [
        ("x-message-id", "an-id"), ("x-correlation-id", "the-root"), ("x-parent-id", "the-parent"),
        ("routing-key", "the-key"), ("schema-id", "7007"), ("schema-version", "7008"), ("timeout-ms", "7005"),
        ("content-type", "text/plain"), ("x-other", "another"),
    ]  # fmt: skip
    return columns_of(_row(read_plain(headers, b"the payload")), _HTTP_MARKS) | {"producer": "remote address"}


def _row(message: HttpMessage) -> Envelope:
    return message.batch("x", PUBLISH).row(0)


def _from_cloudevents() -> Found:
    event = {
        "specversion": "1.0", "id": "an-id", "source": "/a/source", "type": "a.type", "subject": "a subject",
        "time": "2023-11-14T22:13:20.777Z", "datacontenttype": "text/plain", "correlationid": "the-root",
        "causationid": "the-parent", "partitionkey": "the-key", "schemaid": "7007", "schemaversion": "7008",
        "other": "another", "data": "the payload",
    }  # fmt: skip
    message = cloudevents.read_structured([], json.dumps(event).encode())
    marks = {
        "`id`": "an-id", "`time`": 1_700_000_000_777, "`datacontenttype`": "text/plain", "`correlationid`": "the-root",
        "`causationid`": "the-parent", "`partitionkey`": "the-key", "`schemaid`": 7007, "`schemaversion`": 7008,
        "`type` (as `ce-type`)": "a.type", "`source`": "/a/source", "`subject`": "a subject",
        "other extensions": "another", "`data`": "the payload",
    }  # fmt: skip
    found = columns_of(_row(message), marks)
    return found | ({"producer": "`source`"} if message.producer == "/a/source" else {})


INCOMING: dict[str, Callable[[], Found]] = {
    "MB": _from_mb, "Danube": _from_danube, "zbus": _from_zbus, "Seneca": from_seneca, "HTTP": _from_http,
    "CloudEvents": _from_cloudevents,
}  # fmt: skip


# ---- to wires -------------------------------------------------------------------------------------------------------

TEXTS = {
    "topic": "math.sum", "message_id": "the-id", "parent_id": "the-parent", "correlation_id": "the-root",
    "reply_to": "the-reply", "producer": "the-sender", "routing_key": "the-key", "encoding": "text/plain",
}  # fmt: skip
MARKS: dict[str, Any] = TEXTS | NUMBERS | {"forwarded_id": FORWARDED, "attributes": "another", "hops": "the-hop",
                                           "payload": "the payload"}  # fmt: skip


def _batch(wire: bytes) -> Batch:
    columns: dict[str, Any] = {name: [text.encode()] for name, text in TEXTS.items()}
    columns |= {name: [number] for name, number in NUMBERS.items()}
    hops = encode_hops((Hop(sid="the-hop", mid="m", tms=(1,)),))
    return Batch(
        1, wire=wire, kind=PUBLISH, attributes=[encode_attributes({"other": "another"})], hops=[hops],
        payload=[b"the payload"], forwarded_id=[FORWARDED.encode()], **columns,
    )  # fmt: skip


def _places(text_of: Mapping[str, str]) -> Found:
    """Column to the places whose text holds the column's mark."""
    found: Found = {}
    for column, mark in MARKS.items():
        marks = {str(mark), str(mark // 1000)} if column == "time_us" else {str(mark)}
        places = [place for place, text in text_of.items() if any(_stands(each, text) for each in marks)]
        if places:
            found[column] = ", ".join(places)
    return found


def _stands(mark: str, text: str) -> bool:
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(mark)}(?![0-9A-Za-z])", text) is not None


def _to_mb() -> Found:
    batch = _batch(b"zbus")
    topic = Topic("math.sum")
    run = Run(RowSpan(topic, b"math.sum", 0, 1), batch, [FORWARDED.encode()])
    header, _, payload = PublishEncoder(lambda length: b"")(run).decode().partition("\n")
    names = ("action", "topic", "version", "requestId", "parentId", "timeout")
    return _places(dict(zip(names, header.split(":"), strict=False)) | {"after the LF": payload})


def _to_danube() -> Found:
    (data,) = Deliverer(b"math.sum", b"a-subscription", b"an-address").encode(_batch(b"zbus"), [0])
    message = StreamMessage.FromString(data)
    texts = {
        "`topic_name`": message.msg_id.topic_name, "`producer_id`": str(message.msg_id.producer_id),
        "`topic_offset`": str(message.msg_id.topic_offset), "`payload`": message.payload.decode(),
        "`publish_time`": str(message.publish_time), "`producer_name`": message.producer_name,
        "`schema_id`": str(message.schema_id), "`schema_version`": str(message.schema_version),
        "`routing_key`": message.routing_key,
    }  # fmt: skip
    attributes = {f"attribute `{name}`": value for name, value in message.attributes.items() if name != "other"}
    return _places(texts | attributes | {"attributes": message.attributes.get("other", "")})


def _to_zbus() -> Found:
    sent = zbus_encode.sent_of(_batch(b"danube"), 0, b"a-broker")
    sent = msgspec.structs.replace(sent, mq=b"math.sum", cmd=b"produce")
    delivery = zbus_encode.delivery(
        b"a-consume", 200, zbus_encode.delivery_tail(b"the-id", zbus_encode.delivery_head(sent), b"the payload")
    )
    head, _, body = delivery.decode().partition("\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
    texts = {
        f"`{name}`": value for name, value in lines.items() if name not in ("other", "msgid_raw", "content-length")
    }
    return _places(texts | {"header of the same name": lines.get("other", ""), "body": body})


def _to_seneca() -> Found:
    outgoing, _ = outgoing_of(_batch(b"zbus"), 0, {}, lambda: "fresh", 1)
    custom = {name: bytes(value).decode() for name, value in outgoing.custom.items()}
    texts = {
        "`mid`": outgoing.mid, "`cid`": outgoing.cid, "`sid`": outgoing.sid,
        "`trk[].tms[0]`": str(outgoing.hops[-1].tms[0]) if outgoing.hops else "",
        "members, `data`": json.dumps({name: bytes(value).decode() for name, value in outgoing.members.items()}),
        "custom data": custom.get("other", ""),
    }  # fmt: skip
    named = {f"custom `{name}`": value for name, value in custom.items() if name != "other"}
    return _places(texts | named)


def _shown_row() -> dict[str, Any]:
    row = msgspec.structs.asdict(_batch(b"zbus").row(0))
    found: dict[str, Any] = msgspec.to_builtins(
        shown(row | {"hops": [msgspec.to_builtins(h) for h in row["hops"]]}, "rows")
    )
    return found


def _to_http() -> Found:
    return _places({f"`{name}`": json.dumps(value) for name, value in _shown_row().items()})


def _to_cloudevents() -> Found:
    row = msgspec.structs.asdict(_batch(b"zbus").row(0))
    event = json.loads(msgspec.json.encode(cloudevents.event_of(row)))
    found = _places({f"`{name}`": str(value) for name, value in event.items() if name != "time"})
    return found | {"sent_ms": "`time`"}


OUTGOING: dict[str, Callable[[], Found]] = {
    "MB": _to_mb, "Danube": _to_danube, "zbus": _to_zbus, "Seneca": _to_seneca, "HTTP": _to_http,
    "CloudEvents": _to_cloudevents,
}  # fmt: skip
