"""Queues as wires see them."""

from __future__ import annotations

from raceway.broker.door import Door
from raceway.model.intents.queues import QueueConsumerRow, QueueSummary
from tests.rigs.queues import MQ, PUBSUB, QueueBench


def test_queues_are_shown_with_their_backlog_and_consumers() -> None:
    bench = QueueBench()
    bench.create("orders", token="s3cret")
    bench.create("ticks", PUBSUB)
    peer = bench.peer()
    bench.arm(peer, "orders")
    bench.produce(b"1", b"2", name="orders")
    bench.arm(peer, "ticks", topics="b a")
    bench.settle()
    made_ms = bench.loop.wall_us() // 1000
    assert list(Door(bench.broker).view.queues) == [
        QueueSummary("orders", MQ, "127.0.0.1:1", made_ms, True, 2, (QueueConsumerRow("", False, None),)),
        QueueSummary("ticks", PUBSUB, "127.0.0.1:1", made_ms, False, 0, (QueueConsumerRow("", True, ("a", "b")),)),
    ]


def test_who_subscribes_and_who_only_consumes() -> None:
    bench, queues = QueueBench(), ["orders", "ticks"]
    view = Door(bench.broker).view.queues
    for name, mode in zip(queues, (MQ, PUBSUB), strict=True):
        bench.create(name, mode)
    peers = [bench.peer() for _ in queues]
    for name, peer in zip(queues, peers, strict=True):
        bench.arm(peer, name)
    assert [(view.is_subscriber(peer), view.is_behind(peer)) for peer in peers] == [(False, False), (True, False)]
