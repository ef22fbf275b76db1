"""Every message of the journal is one record, for real consumers, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raceway.client import sync
from tests.rigs.kafka import SILENT, make_topic, read_topic, set_topic
from tests.rigs.mirror import first_position, fresh_name, header, mirror, mirroring, sequences, stop, stored
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until
from tools.kafka import Kafka

PARTITIONS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def console(server: Server) -> str:
    return f"raceway://127.0.0.1:{server.port('console')}"


def url(kafka: Kafka) -> str:
    return f"kafka://{kafka.bootstrap}"


def options(kafka: Kafka, server: Server, topic: str) -> list[object]:
    return ["--data", server.data, "--topics", topic, "--to", url(kafka), "--name", topic, "--interval", 0.01]


def test_a_message_is_a_record_with_key_headers_and_time(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    began_ms = time.time_ns() // 1_000_000
    with sync.connect(console(server), wire="http") as client:
        client.publish_batch(topic, [b"\x00\xff", "text"], key="k-7", version="2.0.0", headers={"tenant": "acmé"})
        client.publish(f"{topic}.beside", b"not asked for")
    assert mirror(*options(kafka, server, topic), "--once", "--json").document["messages"] == 2
    first, second = read_topic(kafka, topic)
    assert [(each.key(), each.value()) for each in (first, second)] == [(b"k-7", b"\x00\xff"), (b"k-7", b"text")]
    assert {name: header(first, name) for name in ("tenant", "rw-topic", "rw-offset", "rw-lane", "rw-version")} == {
        "tenant": "acmé", "rw-topic": topic, "rw-offset": "0", "rw-lane": "0", "rw-version": "2.0.0",
    }  # fmt: skip
    assert header(second, "rw-offset") == "1"
    assert sequences([first, second]) == [place for place, _ in stored(server.data, topic)]
    assert header(first, "rw-message-id") != header(second, "rw-message-id")
    assert began_ms <= first.timestamp()[1] <= time.time_ns() // 1_000_000


def test_it_goes_on_where_it_stopped_and_follows_what_comes(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    with sync.connect(console(server), wire="http") as client:
        client.publish_many(topic, [b"%d" % number for number in range(100)])
        assert mirror(*options(kafka, server, topic), "--once", "--json").document["messages"] == 100
        with mirroring(*options(kafka, server, topic)) as process:
            client.publish_many(topic, [b"%d" % number for number in range(100, 200)])
            wait_until(lambda: len(read_topic(kafka, topic)) == 200, 30, "the records")
            assert "mirrored 100 messages" in stop(process)
    assert mirror(*options(kafka, server, topic), "--once", "--json").document["messages"] == 0
    assert [record.value() for record in read_topic(kafka, topic)] == [b"%d" % number for number in range(200)]


def test_every_message_is_there_once_and_in_order_over_kills(kafka: Kafka, server: Server) -> None:
    """SIGKILL at random moments, while messages come; keys keep their order over several partitions."""
    chance, topic = seeded("kills"), fresh_name("orders")
    make_topic(kafka, topic, PARTITIONS)
    with sync.connect(console(server), wire="http") as client:
        for number in range(rounds(4)):
            with mirroring(*options(kafka, server, topic)) as process:
                until = time.monotonic() + chance.uniform(0.0, 0.7)
                while time.monotonic() < until:
                    key = f"key-{chance.randrange(20)}"
                    client.publish_batch(topic, [f"{key} {number}"] * chance.randrange(1, 500), key=key)
                process.kill()
    assert mirror(*options(kafka, server, topic), "--once").status == 0
    parts = [read_topic(kafka, topic, partition) for partition in range(PARTITIONS)]
    found = [(place, record.value()) for part in parts for place, record in zip(sequences(part), part, strict=True)]
    assert sorted(found) == stored(server.data, topic)
    for part in parts:
        assert sequences(part) == sorted(sequences(part))
    assert not set.intersection(*({record.key() for record in part} for part in parts))


def test_what_a_killed_one_left_open_is_not_seen(kafka: Kafka, server: Server) -> None:
    """The first is stopped in the middle of its work, as if its machine hung; the second takes over, and the first,
    when it wakes, writes nothing more."""
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    with sync.connect(console(server), wire="http") as client, mirroring(*options(kafka, server, topic)) as sleeper:
        client.publish_many(topic, [b"x" * 1000] * 5000)
        os.kill(sleeper.pid, signal.SIGSTOP)
        with mirroring(*options(kafka, server, topic)) as second:
            client.publish_many(topic, [b"y"] * 100)
            wait_until(lambda: len(read_topic(kafka, topic)) == 5100, 60, "all records")
            os.kill(sleeper.pid, signal.SIGCONT)
            client.publish_many(topic, [b"z"] * 100)
            _, said = sleeper.communicate(timeout=60)
            assert sleeper.returncode == 1, said
            assert "another process has taken over this mirror" in said
            wait_until(lambda: len(read_topic(kafka, topic)) == 5200, 60, "all records")
            stop(second)
    records = read_topic(kafka, topic)
    assert sequences(records) == [place for place, _ in stored(server.data, topic)]


def test_it_waits_for_brokers_that_go_and_come_and_the_bus_does_not(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    with sync.connect(console(server), wire="http") as client, mirroring(*options(kafka, server, topic)) as process:
        client.publish_many(topic, [b"x" * 100] * 20_000)
        kafka.kill(1)
        try:
            client.publish_many(topic, [b"y"] * 100)
            assert process.poll() is None
        finally:
            kafka.start_broker(1)
            kafka.wait()
        wait_until(lambda: len(read_topic(kafka, topic)) == 20_100, 90, "all records")
        stop(process)
    assert sequences(read_topic(kafka, topic)) == [place for place, _ in stored(server.data, topic)]


def test_the_bus_does_not_wait_for_a_mirror_without_brokers(server: Server) -> None:
    """At the start it is an error, in one line."""
    told = mirror("--data", server.data, "--topics", "#", "--to", "kafka://127.0.0.1:1", "--timeout", 2)
    assert (told.status, told.stdout) == (3, "")
    assert told.stderr.count("\n") == 1
    assert "kafka://127.0.0.1:1 cannot be reached" in told.stderr


def test_a_topic_that_kafka_does_not_have_is_named_and_made_with_create(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    with sync.connect(console(server), wire="http") as client:
        client.publish(topic, b"x")
    told = mirror(*options(kafka, server, topic), "--once")
    assert told.status == 1
    assert f"has no topic {topic}" in told.stderr
    assert "--create" in told.stderr
    assert mirror(*options(kafka, server, topic), "--once", "--create", "--json").document["messages"] == 1


def test_names_that_kafka_cannot_spell_a_prefix_and_a_single_topic(kafka: Kafka, server: Server) -> None:
    name = fresh_name("orders")
    with sync.connect(console(server), wire="http") as client:
        client.publish(f"{name}.größe", b"1")
        client.publish(f"{name}.other", b"2")
    several = options(kafka, server, f"{name}.#")
    mirror(*several, "--once", "--create", "--prefix", "bus-")
    made = f"bus-{name}.gr__e"
    read = [record for partition in range(PARTITIONS) for record in read_topic(kafka, made, partition)]
    assert [header(record, "rw-topic") for record in read] == [f"{name}.größe"]
    make_topic(kafka, f"{name}-all")
    mirror(*several, "--name", "single", "--once", "--kafka-topic", f"{name}-all")
    assert [record.value() for record in read_topic(kafka, f"{name}-all")] == [b"1", b"2"]


def test_a_record_that_is_too_large_is_named_and_comes_when_it_may(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic, max_message_bytes="10000")
    with sync.connect(console(server), wire="http") as client:
        client.publish_many(topic, [b"before", b"x" * 50_000, b"after"])
    told = mirror(*options(kafka, server, topic), "--once")
    assert told.status == 1
    assert "50,000 bytes" in told.stderr
    assert f"max.message.bytes of its topic {topic}" in told.stderr
    assert read_topic(kafka, topic) == []
    set_topic(kafka, topic, max_message_bytes="100000")
    assert mirror(*options(kafka, server, topic), "--once", "--json").document["messages"] == 3
    assert [len(record.value() or b"") for record in read_topic(kafka, topic)] == [6, 50_000, 5]


def test_an_open_transaction_of_another_mirror_does_not_hide_a_position(kafka: Kafka, server: Server) -> None:
    """Positions of all mirrors share a partition, whose committed end stops at the first open transaction."""
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    other = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": fresh_name("other"), "logger": SILENT})
    other.init_transactions(30)
    with sync.connect(console(server), wire="http") as client, mirroring(*options(kafka, server, topic)) as process:
        other.begin_transaction()
        other.produce("raceway.mirror-positions", b"{}", b"other", partition=0)
        assert other.flush(30) == 0
        client.publish_many(topic, [b"x"] * 10)
        wait_until(lambda: len(read_topic(kafka, topic)) == 10, 30, "the records")
        stop(process)
    with ThreadPoolExecutor() as pool:
        again = pool.submit(mirror, *options(kafka, server, topic), "--once", "--json")
        # Committed behind the open transaction, so not to be seen before it ends.
        visible = len(read_topic(kafka, "raceway.mirror-positions"))
        assert visible < len(read_topic(kafka, "raceway.mirror-positions", committed=False))
        other.abort_transaction(30)
        assert again.result(60).document["messages"] == 0
    assert len(read_topic(kafka, topic)) == 10


def test_rows_that_retention_took_end_a_mirror_unless_it_may_lose_them(kafka: Kafka, tmp_path: Path) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    with (
        running_server(
            tmp_path / "data", RACEWAY_JOURNAL__SEGMENT_BYTES=1 << 20, RACEWAY_JOURNAL__RETENTION__MAX_BYTES=1 << 20,
            RACEWAY_JOURNAL__UPKEEP_S=0.1, RACEWAY_JOURNAL__SEAL="false",
        ) as server,
        sync.connect(console(server), wire="http") as client,
    ):  # fmt: skip
        client.publish(topic, b"first")
        assert mirror(*options(kafka, server, topic), "--once", "--json").document["messages"] == 1
        client.publish_many(topic, [os.urandom(100_000) for _ in range(50)])
        wait_until(lambda: first_position(server.data) > 2, 60, "retention")
        told = mirror(*options(kafka, server, topic), "--once")
        assert told.status == 1
        assert "was removed by retention" in told.stderr
        told = mirror(*options(kafka, server, topic), "--once", "--accept-loss", "--json")
        assert told.status == 0
        assert told.document["messages"] < 50
