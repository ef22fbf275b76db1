"""Answers to MB's system topics: the exact bytes."""

from __future__ import annotations

import pytest

from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Metric,
    Metrics,
    PatternRow,
    Patterns,
    PeerOutcome,
    PeerRow,
    Peers,
    SubscriberRow,
    SubscriptionList,
    SubscriptionRow,
)
from raceway.wires.mb.codec.encode import tcp_frame
from raceway.wires.mb.codec.header import MbHeader
from raceway.wires.mb.codec.system import log_record, system_reply
from tests.rigs.vectors.mb import I, P, frame

ID = I.encode()
NOW_US = 1_794_724_093_214_999
TIME = "2026-11-15T06:28:13.214Z"


def body(topic: bytes, outcome: PeerOutcome, show_all: bool = False) -> bytes:
    reply = system_reply(MbHeader(b"request", topic, b"2.0.0", ID), outcome, tcp_frame, show_all)
    header, _, payload = reply[4:].partition(b"\n")
    assert reply == frame(reply[4:])
    assert header == b"response:%b:2.0.0:%b:%b" % (topic, ID, ID)
    return payload


def test_success_and_failure() -> None:
    assert body(b"system.heartbeat", Done()) == b'{"status":"success"}'
    assert body(b"System.Topic.Unsubscribe", Done(changed=False)) == b'{"status":"failure"}'


def test_services_are_listed_with_five_members() -> None:
    row = PeerRow(id=P, name="n", description="d", connected_us=0, heard_us=NOW_US, wire="mb")
    expected = (
        f'{{"services":[{{"id":"{P}","name":"n","description":"d",'
        f'"connectedAt":"1970-01-01T00:00:00.000Z","lastHeartbeat":"{TIME}"}}]}}'
    )
    assert body(b"system.service.list", Peers((row,))) == expected.encode()
    assert body(b"system.service.list", Peers(())) == b'{"services":[]}'


def test_priority_is_shown_on_request_subscriptions_only() -> None:
    rows = (
        SubscriptionRow("publish", "a", 5),
        SubscriptionRow("request", "a", 1.5),
        SubscriptionRow("request", "b", 2.0),
    )
    assert body(b"system.service.subscriptions", SubscriptionList(rows)) == (
        b'{"subscriptions":[{"action":"publish","topic":"a"},{"action":"request","topic":"a","priority":1.5},'
        b'{"action":"request","topic":"b","priority":2}]}'
    )


@pytest.mark.parametrize(
    ("topic", "name"), [("system.topic.list", "topics"), ("System.Topic.List", "topics"),
                        ("system.topic.subscriptions", "subscriptions")],
)  # fmt: skip
def test_patterns_are_listed_under_the_name_of_the_topic_asked(topic: str, name: str) -> None:
    rows = (
        PatternRow("publish", "a", (SubscriberRow(P, 3),)),
        PatternRow("request", "a", (SubscriberRow(P, 3), SubscriberRow(I, 0))),
    )
    expected = (
        f'{{"{name}":[{{"action":"publish","topic":"a","subscribers":[{{"serviceId":"{P}"}}]}},'
        f'{{"action":"request","topic":"a","subscribers":[{{"serviceId":"{P}","priority":3}},'
        f'{{"serviceId":"{I}","priority":0}}]}}]}}'
    )
    assert body(topic.encode(), Patterns(rows)) == expected.encode()


def test_metrics_are_bare_values_or_all_there_is() -> None:
    metrics = Metrics(NOW_US, (Metric("a.b", "gauge", 5.0), Metric("c.{core:0}.d", "percent", 0.25, {"core": "0"})))
    assert body(b"system.metrics", metrics) == b'{"metrics":{"a.b":5,"c.{core:0}.d":0.25}}'
    expected = (
        f'{{"metrics":{{"a.b":{{"name":"a.b","type":"gauge","timestamp":"{TIME}","value":5}},'
        f'"c.{{core:0}}.d":{{"name":"c.{{core:0}}.d","type":"percent","timestamp":"{TIME}","value":0.25}}}}}}'
    )
    assert body(b"system.metrics", metrics, show_all=True) == expected.encode()
    assert body(b"system.metrics", Metrics(0, ())) == b'{"metrics":{}}'


def test_log_record_is_a_response_without_id_and_ends_with_the_three_fixed_members() -> None:
    expected = f'response:system.log:1.0.0\n{{"module":"mb","level":"warn","message":"a\\nb","timestamp":"{TIME}"}}'
    assert log_record("warn", "a\nb", NOW_US, {"module": "mb"}, tcp_frame) == frame(expected.encode())
