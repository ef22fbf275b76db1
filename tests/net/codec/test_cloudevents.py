"""CloudEvents both ways, held against the `cloudevents` package of PyPI."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError
from raceway.model.envelope import PUBLISH, Envelope
from raceway.net.codec import cloudevents
from raceway.net.codec.http_message import HttpMessage

EVENT = {"specversion": "1.0", "id": "e1", "source": "/here", "type": "t"}

# CloudEvents' own String: no control characters, no surrogates, no noncharacters.
TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn"), max_codepoint=0x1FFFF), min_size=1, max_size=20)
NAMES = st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
    lambda name: name not in {
        "data", "id", "source", "type", "specversion", "subject", "time", "dataschema", "datacontenttype",
        "schemaid", "schemaversion", "traceparent", "tracestate",
    } and not name.startswith("raceway")
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def row_of(message: HttpMessage) -> dict[str, Any]:
    """The row as a reader of the journal gets it."""
    row: Envelope = message.batch("orders", PUBLISH).row(0)
    found = {name: getattr(row, name) for name in row.__struct_fields__}
    return found | {"producer": message.producer, "offset": 5, "time_us": 1_700_000_000_000_000}


def structured(event: dict[str, Any], **headers: str) -> HttpMessage:
    return cloudevents.read_structured(list(headers.items()), json.dumps(event).encode())


def read_back(message: HttpMessage) -> dict[str, Any]:
    from msgspec.json import encode

    found: dict[str, Any] = json.loads(encode(cloudevents.event_of(row_of(message))))
    return found


# ---- the oracle -----------------------------------------------------------------------------------------------------


@st.composite
def events(draw: st.DrawFn) -> CloudEvent:
    attributes: dict[str, Any] = {
        "id": draw(TEXT), "source": draw(TEXT), "type": draw(TEXT), "specversion": "1.0",
        "time": draw(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))),
    }  # fmt: skip
    if draw(st.booleans()):
        attributes["subject"] = draw(TEXT)
    attributes |= draw(st.dictionaries(NAMES, TEXT, max_size=4))
    data: Any
    kind = draw(st.sampled_from(["json", "text", "bytes"]))
    if kind == "json":
        attributes["datacontenttype"], data = (
            "application/json",
            draw(JSON_VALUES.filter(lambda value: value is not None)),
        )
    elif kind == "text":
        attributes["datacontenttype"], data = "text/plain", draw(TEXT)
    else:
        attributes["datacontenttype"], data = "application/octet-stream", draw(st.binary(min_size=1))
    return CloudEvent(attributes, data)


def same(ours: dict[str, Any], theirs: CloudEvent) -> None:
    for name, value in theirs.get_attributes().items():
        if name == "time":
            assert datetime.fromisoformat(ours[name]) == value
        else:
            assert ours[name] == value, name


@given(events())
def test_what_the_package_sends_in_structured_mode_comes_back_to_it_the_same(event: CloudEvent) -> None:
    sent = to_structured_event(event, JSONFormat())
    message = cloudevents.read_structured([], bytes(sent.body))
    shown = read_back(message)
    same(shown, event)
    again = from_http_event(
        HTTPMessage({"content-type": cloudevents.STRUCTURED}, json.dumps(shown).encode()), JSONFormat()
    )
    assert again.get_data() == event.get_data()


@given(events())
def test_what_the_package_sends_in_binary_mode_is_the_same_event(event: CloudEvent) -> None:
    sent = to_binary_event(event, JSONFormat())
    headers = [(name.lower(), value) for name, value in sent.headers.items()]
    message = cloudevents.read_binary(headers, bytes(sent.body))
    assert message.payload == bytes(sent.body)
    same(read_back(message), event)


# ---- mapping --------------------------------------------------------------------------------------------------------


def test_attributes_with_a_column_go_there_and_the_others_keep_their_header_names() -> None:
    message = structured(
        EVENT | {"subject": "s", "correlationid": "root", "causationid": "cause", "partitionkey": "k", "schemaid": 7,
                 "schemaversion": "2", "datacontenttype": "text/plain", "data": "hello"}
    )  # fmt: skip
    assert (message.message_id, message.correlation_id, message.parent_id) == ("e1", "root", "cause")
    assert (message.routing_key, message.schema_id, message.schema_version) == ("k", 7, 2)
    assert (message.encoding, message.payload, message.producer) == ("text/plain", b"hello", "/here")
    assert message.attributes == {"ce-specversion": "1.0", "ce-source": "/here", "ce-type": "t", "ce-subject": "s"}


@pytest.mark.parametrize(
    ("members", "payload"),
    [
        ({"data": {"a": [1, 2.50]}}, b'{"a": [1, 2.5]}'),
        ({"data": "text"}, b'"text"'),
        ({"data": None}, b"null"),
        ({"data": 5, "datacontenttype": "application/vnd.x+json"}, b"5"),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data_base64": "/wA="}, b"\xff\x00"),
        ({"data_base64": ""}, b""),
        ({}, b""),
    ],
)
def test_data_is_the_payload(members: dict[str, Any], payload: bytes) -> None:
    assert structured(EVENT | members).payload == payload


def test_numbers_keep_their_digits() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"n": 1.500000000000000000001}}'
    message = cloudevents.read_structured([], body)
    assert message.payload == b'{"n": 1.500000000000000000001}'


def test_extensions_keep_their_types_on_the_way_back() -> None:
    shown = read_back(structured(EVENT | {"count": 5, "flag": True, "text": "5"}))
    assert (shown["count"], shown["flag"], shown["text"]) == (5, True, "5")


def test_a_trace_in_the_event_is_the_messages_trace_unless_the_request_has_its_own() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert structured(EVENT | {"traceparent": parent}).attributes["traceparent"] == parent
    both = structured(EVENT | {"traceparent": parent}, traceparent=other)
    assert (both.attributes["traceparent"], both.attributes["ce-traceparent"]) == (other, parent)
    assert read_back(both)["traceparent"] == parent


def test_what_the_bus_says_itself_is_not_taken_from_senders() -> None:
    shown = read_back(structured(EVENT | {"racewaytopic": "forged", "racewayoffset": "9"}))
    assert (shown["racewaytopic"], shown["racewayoffset"]) == ("orders", "5")


@pytest.mark.parametrize(
    ("time", "sent_ms"),
    [
        ("2023-11-14T22:13:20.777Z", 1_700_000_000_777),
        ("2023-11-15T00:13:20.777+02:00", 1_700_000_000_777),
        ("1969-01-01T00:00:00Z", None),
        ("2016-12-31T23:59:60Z", None),
    ],
)
def test_the_time_of_an_event_is_its_senders_clock(time: str, sent_ms: int | None) -> None:
    message = structured(EVENT | {"time": time})
    assert message.sent_ms == sent_ms
    assert read_back(message)["time"] == time


@pytest.mark.parametrize(
    ("row", "event"),
    [
        ({"payload": b'{"a":1}'}, {"data": {"a": 1}}),
        ({"payload": b"hello"}, {"data": "hello", "datacontenttype": "text/plain"}),
        ({"payload": b"\xff"}, {"data_base64": "/w=="}),
        ({"payload": b"x", "encoding": "utf-8"}, {"data": "x", "datacontenttype": "text/plain; charset=utf-8"}),
        ({"payload": b"", "wire": "mb", "producer": "a b/é"}, {"source": "urn:raceway:mb:a%20b%2F%C3%A9"}),
        ({"attributes": {"ce-type": "x", "ce-id": "own"}}, {"type": "x", "id": "own"}),
        ({"sent_ms": 1 << 62}, {"time": "1970-01-01T00:00:00Z"}),
    ],
)
def test_every_row_can_be_read_as_an_event(row: dict[str, Any], event: dict[str, Any]) -> None:
    from msgspec.json import encode

    usual = {"topic": "t", "offset": 3, "time_us": 1, "kind": "publish", "wire": "zbus", "message_id": "m"}
    shown = json.loads(encode(cloudevents.event_of(usual | row)))
    assert event.items() <= shown.items()
    assert {"id", "source", "type", "specversion"} <= shown.keys()


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        {}, {"specversion": "1.0"}, EVENT | {"specversion": "0.3"}, EVENT | {"id": ""}, EVENT | {"type": None},
        EVENT | {"time": "yesterday"}, EVENT | {"time": "2023-13-14T22:13:20"}, EVENT | {"Upper": "x"},
        EVENT | {"with-dash": "x"}, EVENT | {"ext": {}}, EVENT | {"ext": 1.5}, EVENT | {"ext": 2**40},
        EVENT | {"ext": "a\u0007b"}, EVENT | {"subject": ""}, EVENT | {"datacontenttype": "nothing"},
        EVENT | {"data": 1, "data_base64": "AA=="}, EVENT | {"data_base64": "?"}, EVENT | {"data_base64": 5},
        EVENT | {"schemaid": "x"}, EVENT | {"id": "x" * 256}, EVENT | {"ext": "\ud800"},
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedError):
        structured(event)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with pytest.raises(MalformedError):
        cloudevents.read_structured([], body)


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=10) | JSON_VALUES, max_size=5))
def test_any_object_is_read_or_refused(members: dict[str, Any]) -> None:
    try:
        message = structured(EVENT | members)
    except MalformedError:
        return
    assert read_back(message)["specversion"] == "1.0"


@pytest.mark.parametrize("value", ["%ff", '"%c3%28"', "%C3"])
def test_header_values_that_are_no_text_are_refused(value: str) -> None:
    with pytest.raises(MalformedError):
        cloudevents.unescaped(value)


def test_header_values_are_unescaped() -> None:
    assert cloudevents.unescaped("a%20%C3%A9") == "a é"
    assert cloudevents.unescaped('"quoted \\" text"') == 'quoted " text'
    assert cloudevents.unescaped("100%") == "100%"


def test_deep_nesting_is_refused() -> None:
    body = json.dumps(EVENT)[:-1] + ',"data":' + "[" * 100_000 + "]" * 100_000 + "}"
    with pytest.raises(MalformedError):
        cloudevents.read_structured([], body.encode())


@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ({"content-type": "application/cloudevents+json; charset=utf-8"}, "structured"),
        ({"content-type": "Application/CloudEvents+JSON"}, "structured"),
        ({"content-type": "application/cloudevents-batch+json"}, "batch"),
        ({"content-type": "application/cloudevents+avro"}, "unknown"),
        ({"content-type": "application/json", "ce-specversion": "1.0"}, "binary"),
        ({"content-type": "application/json"}, None),
        ({}, None),
    ],
)
def test_the_mode_is_told_by_the_headers(headers: dict[str, str], mode: str | None) -> None:
    assert cloudevents.mode_of(headers) == mode
