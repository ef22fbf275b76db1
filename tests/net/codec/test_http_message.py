from __future__ import annotations

import pytest

from raceway.errors import MalformedError, TooLargeError
from raceway.model.envelope import HTTP, PUBLISH, decode_attributes
from raceway.net.codec.http_message import HttpMessage, read_plain
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.pb.danube_api_pb2 import StreamMessage
from raceway.wires.seneca.codec.rows import outgoing_of
from raceway.wires.zbus.codec import encode as zbus_encode


def test_headers_have_their_columns_and_others_are_attributes() -> None:
    message = read_plain(
        [("x-message-id", "m"), ("x-correlation-id", "c"), ("x-parent-id", "p"), ("routing-key", "k"),
         ("schema-id", "7"), ("schema-version", "2"), ("timeout-ms", "50"), ("content-type", "text/plain"),
         ("x-shop", "north"), ("traceparent", "00-…"), ("user-agent", "curl"), ("x-forwarded-for", "10.0.0.1"),
         ("authorization", "Bearer secret"), ("cookie", "a=b")],
        b"body",
    )  # fmt: skip
    batch = message.batch("orders", PUBLISH)
    columns = ("message_id", "correlation_id", "parent_id", "routing_key", "encoding", "payload")
    assert [batch.item(name, 0) for name in columns] == [b"m", b"c", b"p", b"k", b"text/plain", b"body"]
    assert [batch.item(name, 0) for name in ("schema_id", "schema_version", "timeout_ms")] == [7, 2, 50]
    assert decode_attributes(batch.item("attributes", 0)) == {"x-shop": "north", "traceparent": "00-…"}
    assert (batch.wire, batch.kind, batch.topic) == (HTTP, PUBLISH, b"orders")


def test_what_curl_says_of_everything_says_nothing() -> None:
    assert read_plain([("content-type", "application/x-www-form-urlencoded")], b"{}").encoding is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("schema-id", "x"), ("schema-id", "-1"), ("timeout-ms", "1" * 19), ("schema-version", "१"), ("x-message-id", ""),
     ("x-message-id", "a" * 256), ("x-correlation-id", "a\x7fb")],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(name: str, value: str) -> None:
    with pytest.raises(MalformedError):
        read_plain([(name, value)], b"")


@pytest.mark.parametrize("attributes", [{f"x-{n}": "" for n in range(129)}, {"x-a": "é" * 33_000}])
def test_attributes_are_bounded(attributes: dict[str, str]) -> None:
    """L7"""
    with pytest.raises(TooLargeError):
        HttpMessage(attributes=attributes).batch("orders", PUBLISH)


def test_a_trace_context_is_custom_data_on_seneca_a_header_on_zbus_and_an_attribute_on_danube() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    batch = read_plain([("traceparent", parent), ("tracestate", "a=b")], b"{}").batch("orders", PUBLISH)
    batch.message_id, batch.time_us, batch.offset, batch.producer = [b"m"], 1, [0], b"desk"
    outgoing, _ = outgoing_of(batch, 0, {}, lambda: "fresh", 1)
    assert bytes(outgoing.custom["traceparent"]) == b'"%b"' % parent.encode()
    head = zbus_encode.delivery_head(zbus_encode.sent_of(batch, 0, b"broker"))
    assert b"traceparent: %b\r\ntracestate: a=b\r\n" % parent.encode() in head.lines
    (delivered,) = Deliverer(b"orders", b"reader", b"address").encode(batch, [0])
    assert StreamMessage.FromString(delivered).attributes["traceparent"] == parent
