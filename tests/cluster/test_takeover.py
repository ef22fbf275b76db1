"""Nodes killed, paused and stopped, brokers killed: with real Kafka, three brokers and publishers that know nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.client.sync import connect
from raceway.cluster.status import cluster_status
from raceway.errors import RacewayError
from raceway.journal.kafka.journal import KafkaJournal
from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.cluster import PATIENCE_S, Publisher, new_cluster, running_nodes, until, wait_for_owner
from tests.rigs.journal import Clock
from tools.kafka import Kafka


def test_an_owner_that_is_killed_is_followed_by_a_standby(kafka: Kafka, tmp_path: Path) -> None:
    place, _ = new_cluster(kafka)
    with running_nodes(place, tmp_path) as nodes, Publisher(nodes, "a.b") as publisher:
        until(lambda: "127.0.0.1" in nodes[1].readiness()[1], "the standby says who owns the lane")
        assert "owns the lane (epoch 0)" in nodes[1].readiness()[1]
        publisher.wait_for(50)
        nodes[0].kill()
        assert wait_for_owner(nodes, but=nodes[0]) is nodes[1]
        publisher.wait_for(50)
        nodes[0].spawn()
        until(nodes[0].is_standby, "the killed node waits")
        nodes[1].kill()
        wait_for_owner(nodes, but=nodes[1])
        publisher.wait_for(50)
        publisher.__exit__()
        publisher.check(nodes[0])


def test_a_paused_owner_that_comes_back_acknowledges_nothing(kafka: Kafka, tmp_path: Path) -> None:
    place, _ = new_cluster(kafka)
    with running_nodes(place, tmp_path) as nodes, Publisher(nodes[::-1], "a.b") as publisher:
        publisher.wait_for(50)
        nodes[0].pause()
        wait_for_owner(nodes, but=nodes[0])
        publisher.wait_for(50)
        nodes[0].resume()
        # A publish at the zombie: taken by its memory, perhaps, and acknowledged by nobody.
        assert nodes[0].publish("a.b", "-1") not in (200, 201)
        until(nodes[0].is_standby, "the former owner waits")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", nodes[0].port("zbus")), 10)
        publisher.wait_for(50)
        nodes[1].kill()  # and it serves again, in the same process
        wait_for_owner(nodes, but=nodes[1])
        publisher.wait_for(50)
        publisher.__exit__()
        publisher.check(nodes[0])


def test_a_node_that_is_stopped_hands_over(kafka: Kafka, tmp_path: Path) -> None:
    # A session that would last: what is seen is no timeout.
    place, _ = new_cluster(kafka)
    with (
        running_nodes(place, tmp_path, RACEWAY_CLUSTER__SESSION_TIMEOUT_S=120) as nodes,
        Publisher(nodes, "a.b") as publisher,
    ):
        publisher.wait_for(50)
        nodes[0].stop()
        wait_for_owner(nodes, but=nodes[0])
        publisher.wait_for(50)
        publisher.__exit__()
        publisher.check(nodes[1])
        lane = cluster_status(place).lanes[0]
        assert lane.address.endswith(str(nodes[1].port("console")))
        assert lane.epoch > 0


def test_queues_and_subscriptions_go_on(kafka: Kafka, tmp_path: Path) -> None:
    place, _ = new_cluster(kafka)
    numbers = [b"%d" % number for number in range(10)]
    with running_nodes(place, tmp_path) as nodes:
        first, second = nodes
        with (
            connect(f"danube://127.0.0.1:{first.port('danube')}", wire="danube") as bus,
            bus.subscribe("orders", "s", type="shared", start="first", create_topic=True) as consumer,
        ):
            for number in numbers:
                bus.publish("orders", number)
            for expected in numbers[:4]:
                message = consumer.get(timeout_s=PATIENCE_S)
                assert message is not None
                assert message.payload == expected
                consumer.ack(message)
        with connect(f"zbus://127.0.0.1:{first.port('zbus')}", wire="zbus") as broker:
            broker.create_queue("jobs")
            broker.publish_many("jobs", numbers)
        first.kill()
        wait_for_owner(nodes, but=first)
        with (
            connect(f"danube://127.0.0.1:{second.port('danube')}", wire="danube") as bus,
            bus.subscribe("orders", "s", type="shared") as consumer,
        ):
            assert taken(consumer, 6) == numbers[4:]
        with connect(f"zbus://127.0.0.1:{second.port('zbus')}", wire="zbus") as broker, broker.consume("jobs") as queue:
            assert taken(queue, 10) == numbers


def taken(stream: Any, count: int) -> list[bytes]:
    """The payloads of the next messages."""
    return [stream.get(timeout_s=PATIENCE_S).payload for _ in range(count)]


def test_a_broker_that_is_killed_and_one_that_comes_back(kafka: Kafka, tmp_path: Path) -> None:
    place, _ = new_cluster(kafka)
    with running_nodes(place, tmp_path) as nodes, Publisher(nodes, "a.b") as publisher:
        publisher.wait_for(20)
        topics = place.brokers.metadata().topics or {}
        kafka.kill(topics[f"{place.name}.lanes"].partitions[0].leader)
        publisher.wait_for(50)
        kafka.mend()
        publisher.wait_for(50)
        publisher.__exit__()
        publisher.check(wait_for_owner(nodes))


def test_below_min_isr_it_is_read_only_and_recovers_by_itself(kafka: Kafka, tmp_path: Path) -> None:
    place, _ = new_cluster(kafka)
    with running_nodes(place, tmp_path, 1, RACEWAY_CLUSTER__COMMIT_TIMEOUT_S=4) as (node,):
        assert node.publish("a.b", "0") == 201
        leader = (place.brokers.metadata().topics or {})[f"{place.name}.lanes"].partitions[0].leader
        for number in kafka.numbers:
            if number != leader:
                kafka.pause(number)
        try:
            assert node.publish("a.b", "1", timeout_s=PATIENCE_S) == 503
            status, reason = node.readiness()
            assert status == 503
            assert "Kafka does not accept blocks" in reason
            assert [row["payload"] for row in node.stored("a.b")] == ["0"]
        finally:
            for number in kafka.numbers:
                kafka.resume(number)
        until(node.is_owner, "Kafka accepts blocks again")
        until(lambda: node.publish("a.b", "2") == 201, "a publish is taken")
        rows = node.stored("a.b")
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        assert [row["payload"] for row in rows if row["payload"] != "1"] == ["0", "2"]


def test_three_claimants_at_once(kafka: Kafka, tmp_path: Path) -> None:
    place, record = new_cluster(kafka, look_s=0.2)
    calls: list[Callable[[], None]] = []
    acknowledged: dict[str, list[bytes]] = {}

    def claim(name: str, into: list[KafkaJournal]) -> None:
        journal = place.open_journal(
            record, config.JournalSettings(folder=str(tmp_path / name)), place.claimant(name), calls.append, 0, Clock()
        )
        into.append(journal)

    journals: list[KafkaJournal] = []
    threads = [threading.Thread(target=claim, args=(f"n{number}", journals)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({journal.epoch for journal in journals}) == 3
    for number, journal in enumerate(journals):
        name = f"n{number}"
        acknowledged[name] = []
        payload = name.encode()

        def done(error: RacewayError | None, name: str = name, payload: bytes = payload) -> None:
            if error is None:
                acknowledged[name].append(payload)

        try:
            journal.append(Batch(1, topic=b"a", kind=PUBLISH, wire=MB, payload=[payload]), done)
            journal.flush()
        except RacewayError:  # it knows already
            continue

    def settled() -> bool:
        while calls:
            calls.pop(0)()
        return sum(journal.health().status == "lost" for journal in journals) == 2 and any(acknowledged.values())

    until(settled, "two have stood down, and one was acknowledged")
    owner = max(journals, key=lambda journal: journal.epoch)
    assert owner.health().status == "ok"
    (valid,) = [payload for found in acknowledged.values() for payload in found]
    found = [payload for batch in owner.read_topic("a", 0) for payload in batch.column("payload").to_pylist()]
    assert found == [valid]
    for journal in journals:
        journal.close()


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_large_messages_pass_in_parts(kafka: Kafka, tmp_path: Path, size: int) -> None:
    place, _ = new_cluster(kafka)
    with running_nodes(place, tmp_path) as nodes:
        payload = "x" * size
        assert nodes[0].publish("large", payload) == 201
        nodes[0].stop()
        owner = wait_for_owner(nodes, but=nodes[0])
        assert [row["payload"] for row in owner.stored("large")] == [payload]
