"""Bodies of zbus administration: creating queues, and what brokers and trackers say of themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raceway.model.intents.queues import CreateQueue
from raceway.wires.zbus.codec.admin import (
    BrokerReport,
    ConsumerInfo,
    QueueInfo,
    TrackTable,
    bad_format,
    encode_description,
    maybe_report,
    read_create_queue,
)
from raceway.wires.zbus.codec.head import ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin


def created(body: Any = b"", **keys: str) -> CreateQueue | ZbusRefused:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_create_queue(Admin("create_mq", keys, data, b"m"))


@pytest.mark.parametrize(
    ("body", "queue"),
    [
        ({"mqName": "orders", "mqMode": "1", "accessToken": ""}, CreateQueue("orders", 1)),
        ({"mqName": "orders", "mqMode": 2, "accessToken": "open"}, CreateQueue("orders", 2, "open")),
        ({"mqName": "q9", "mqMode": "5"}, CreateQueue("q9", 5)),
        ({"mqName": "q", "mqMode": 0, "accessToken": None, "more": [1]}, CreateQueue("q", 0)),
    ],
)
def test_queue_is_created_from_json(body: Any, queue: CreateQueue) -> None:
    assert created(body) == queue


def test_queue_is_created_from_keys_when_there_is_no_body() -> None:
    assert created(mq_name="a", mq="b", mq_mode="2", access_token="t") == CreateQueue("a", 2, "t")
    assert created(mq="b", mq_mode="1") == CreateQueue("b", 1)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b'{"mqName":', "json"),
        (b"[]", "json"),
        (b"\xff", "json"),
        (b'{"mqName":"\xff"}', "json"),
        (b"[" * 100_000, "json"),
        ({}, "mqName"),
        ({"mqName": "", "mqMode": 1}, "mqName"),
        ({"mqName": 5, "mqMode": 1}, "mqName"),
        ({"mqName": "q"}, "mqMode"),
        ({"mqName": "q", "mqMode": None}, "mqMode"),
        ({"mqName": "q", "mqMode": "one"}, "mqMode"),
        ({"mqName": "q", "mqMode": ""}, "mqMode"),
        ({"mqName": "q", "mqMode": -1}, "mqMode"),
        ({"mqName": "q", "mqMode": 1.5}, "mqMode"),
        ({"mqName": "q", "mqMode": True}, "mqMode"),
        ({"mqName": "q", "mqMode": "٣"}, "mqMode"),
        ({"mqName": "q", "mqMode": "1" * 10}, "mqMode"),
        ({"mqName": "q", "mqMode": 1, "accessToken": 7}, "accessToken"),
        (b"", "mqName"),
    ],
)
def test_anything_else_is_refused_by_name(body: Any, what: str) -> None:
    assert created(body) == ZbusRefused(400, f"Bad format: {what}", b"m")


def test_queue_of_the_other_kind_is_a_mismatch() -> None:
    assert bad_format(Admin("create_mq", {}, msgid=b"k-3"), "kind mismatch") == ZbusRefused(
        400, "Bad format: kind mismatch", b"k-3"
    )


# ---- descriptions ---------------------------------------------------------------------------------------------------

INFO = QueueInfo("b:1", "orders", 1, "a:2", 5, 7, 1, (ConsumerInfo("c:3", "idle", ("sse",)), ConsumerInfo("d:4")), 0.5)


def test_report_has_the_names_that_clients_know() -> None:
    assert json.loads(encode_description(BrokerReport("b:1", 9, {"orders": INFO}))) == {
        "broker": "b:1",
        "lastUpdatedTime": 9,
        "mqTable": {
            "orders": {
                "broker": "b:1",
                "name": "orders",
                "mode": 1,
                "creator": "a:2",
                "createdTime": 5,
                "unconsumedMsgCount": 7,
                "consumerCount": 1,
                "consumerInfoList": [
                    {"remoteAddr": "c:3", "status": "idle", "topics": ["sse"]},
                    {"remoteAddr": "d:4"},
                ],
                "loadFactor": 0.5,
            }
        },
    }


def test_report_is_read_back() -> None:
    report = BrokerReport("b:1", 9, {"orders": INFO})
    assert maybe_report(encode_description(report)) == report


def test_report_of_another_age_is_read_as_far_as_it_goes() -> None:
    body = b'{"broker":"10.0.0.5:15555","mqTable":{"q":{"broker":"x","name":"q","mode":"2","@type":"evil"}},"more":1}'
    assert maybe_report(body) == BrokerReport("10.0.0.5:15555", 0, {"q": QueueInfo("x", "q", 2)})


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xff", b'{"broker":5}', b"[" * 100_000, b'{"broker":"b","mqTable":[]}']
)
def test_report_that_cannot_be_read_is_none(body: bytes) -> None:
    assert maybe_report(body) is None


def test_table_of_a_tracker_is_that_of_the_vector() -> None:
    assert encode_description(TrackTable()) == b'{"brokerTable":{},"mqTable":{}}'
    report = BrokerReport("10.0.0.5:15555", 1423000000000)
    assert encode_description(TrackTable.of({"10.0.0.5:15555": report})) == (
        b'{"brokerTable":{"10.0.0.5:15555":{"broker":"10.0.0.5:15555","lastUpdatedTime":1423000000000,"mqTable":{}}},'
        b'"mqTable":{}}'
    )


def test_queue_of_several_brokers_is_listed_for_each_in_full() -> None:
    reports = {name: BrokerReport(name, 0, {"q": QueueInfo(name, "q")}) for name in ("a:1", "b:2")}
    assert TrackTable.of(reports).mq_table == {"q": (QueueInfo("a:1", "q"), QueueInfo("b:2", "q"))}
