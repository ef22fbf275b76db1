from __future__ import annotations

from typing import Any

import pytest

from raceway.mirror.records import COLUMNS, IncomingRecord, OutgoingRecord, kafka_topic, message_of, record_of

EMPTY: dict[str, Any] = dict.fromkeys(COLUMNS)
ROW = EMPTY | {
    "topic": "orders.eu", "offset": 3, "partition": 0, "sequence": 17, "kind": "publish", "wire": "mb",
    "time_us": 5_999, "message_id": "m-1", "payload": b"\x00\xff",
    "attributes": {"tenant": "acme", "rw-topic": "somebody else's"},
}  # fmt: skip


def test_a_row_becomes_a_record_without_headers_for_what_it_has_not() -> None:
    assert record_of(ROW, "t") == OutgoingRecord(
        "t", None, b"\x00\xff",
        [
            ("rw-topic", "orders.eu"), ("rw-offset", "3"), ("rw-lane", "0"), ("rw-sequence", "17"),
            ("rw-kind", "publish"), ("rw-wire", "mb"), ("rw-message-id", "m-1"), ("tenant", "acme"),
        ],
        5,
    )  # fmt: skip


def test_a_row_without_payload_and_attributes() -> None:
    record = record_of(ROW | {"payload": None, "attributes": None, "routing_key": "k"}, "t")
    assert (record.value, record.key, "tenant" in dict(record.headers)) == (b"", "k", False)


@pytest.mark.parametrize(
    ("name", "prefix", "found"),
    [
        ("orders.eu", "", "orders.eu"),
        ("orders", "bus-", "bus-orders"),
        ("/billing/orders", "", "billing.orders"),
        ("straße", "", "stra_e"),
        ("o" * 255, "", "o" * 249),
    ],
)
def test_topics_as_kafka_can_spell_them(name: str, prefix: str, found: str) -> None:
    assert kafka_topic(name, prefix) == found


def record(**changes: Any) -> IncomingRecord:
    return IncomingRecord("orders", 2, 9, None, b"text", [], 1_700_000_000_000)._replace(**changes)


def test_a_record_becomes_a_message_that_names_its_place() -> None:
    assert message_of(record(), "cluster") == {
        "payload": "text",
        "attributes": {
            "x-dedup-id": "orders/2/9", "x-kafka-cluster": "cluster", "x-kafka-timestamp": "1700000000000",
        },
    }  # fmt: skip


def test_headers_become_attributes_but_for_those_of_another_bus() -> None:
    headers = [
        ("tenant", b"acme"), ("bytes", b"\xff"), ("none", None), ("rw-message-id", b"m-1"), ("rw-encoding", b"json"),
        ("rw-sequence", b"4"), ("x-dedup-id", b"forged"),
    ]  # fmt: skip
    message = message_of(record(headers=headers), "c")
    assert {name: message[name] for name in ("message_id", "encoding")} == {"message_id": "m-1", "encoding": "json"}
    attributes = message["attributes"]
    assert (attributes["tenant"], attributes["bytes-base64"], attributes["none"]) == ("acme", "/w==", "")
    assert attributes["x-dedup-id"] == "orders/2/9"
    assert not [name for name in attributes if name.startswith("rw-")]


def test_keys_and_values_that_are_not_text() -> None:
    message = message_of(record(key=b"\xff", value=b"\x00\xff"), "c")
    assert (message["routing_key"], message["attributes"]["x-kafka-key"]) == ("/w==", "base64")
    assert message["payload_base64"] == "AP8="
    tombstone = message_of(record(key=b"k", value=None), "c")
    assert (tombstone["routing_key"], tombstone["payload"]) == ("k", "")
    assert tombstone["attributes"]["x-kafka-null"] == "true"
