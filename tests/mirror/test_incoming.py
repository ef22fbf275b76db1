"""Records of Kafka are messages of the bus, once, whatever is killed meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from raceway.journal.read.reader import Reader
from tests.rigs.kafka import AUTHORITY, SILENT, USERS, make_topic, read_topic
from tests.rigs.mirror import Ended, fresh_name, mirror, mirroring, stop, stored
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until
from tools.kafka import Kafka

PAYMENT = '{"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "int"}]}'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def options(kafka: Kafka, server: Server, topic: str) -> list[object]:
    return ["--data", server.data, "--topics", topic, "--from", f"kafka://{kafka.bootstrap}", "--name", topic]


def bring_in(kafka: Kafka, server: Server, topic: str, *more: object) -> Ended:
    return mirror(*options(kafka, server, topic), "--once", "--json", *more)


def produce(kafka: Kafka, topic: str, values: Sequence[bytes | None], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "logger": SILENT, "partitioner": "murmur2_random"})
    for value in values:
        producer.produce(topic, value, **more)
    assert producer.flush(30) == 0


def rows(folder: Path, topic: str) -> list[dict[str, Any]]:
    reader = Reader(folder)
    try:
        found = [row for batch in reader.read(0) for row in batch.to_pylist(maps_as_pydicts="strict")]
    finally:
        reader.close()
    return [row for row in found if row["topic"] == topic and row["offset"] is not None]


def test_a_record_is_a_message_with_key_headers_and_place(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    produce(kafka, topic, [b"\x00\xff"], key=b"k", headers={"tenant": b"acme"}, timestamp=1_700_000_000_000)
    assert bring_in(kafka, server, topic).document == {"messages": 1, "refused": 0}
    (row,) = rows(server.data, topic)
    assert (row["payload"], row["routing_key"], row["wire"]) == (b"\x00\xff", "k", "http")
    attributes = row["attributes"]
    assert (attributes["tenant"], attributes["x-dedup-id"]) == ("acme", f"{topic}/0/0")
    assert attributes["x-kafka-timestamp"] == "1700000000000"


def test_it_goes_on_where_it_stopped_and_follows_what_comes(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    produce(kafka, topic, [b"%d" % number for number in range(1000)])
    assert bring_in(kafka, server, topic).document["messages"] == 1000
    with mirroring(*options(kafka, server, topic)) as process:
        produce(kafka, topic, [b"%d" % number for number in range(1000, 1200)])
        wait_until(lambda: len(stored(server.data, topic)) == 1200, 30, "the messages")
        assert "published 200 messages" in stop(process)
    assert [payload for _, payload in stored(server.data, topic)] == [b"%d" % number for number in range(1200)]


def test_every_record_is_there_once_and_in_order_over_kills(kafka: Kafka, server: Server, tmp_path: Path) -> None:
    """SIGKILL at random moments, when the mirror has its partitions; the bus, too, is killed and comes again."""
    chance, topic = seeded("kills"), fresh_name("orders")
    make_topic(kafka, topic, 2)
    quick = tmp_path / "client.properties"  # so that the group notices a death soon
    quick.write_text("session.timeout.ms=1000\nheartbeat.interval.ms=300\n")
    sent = 0
    for number in range(rounds(3)):
        with mirroring(*options(kafka, server, topic), "--kafka-config", quick) as process:
            before = len(stored(server.data, topic))
            until = time.monotonic() + 60
            while time.monotonic() < until:
                produce(kafka, topic, [b"%d" % each for each in range(sent, sent + 200)], key=b"%d" % number)
                sent += 200
                if until > time.monotonic() + 2 and len(stored(server.data, topic)) > before:
                    until = time.monotonic() + chance.uniform(0, 1)
                    if number % 2:
                        server.kill()
                        server.start()
            process.kill()
    assert bring_in(kafka, server, topic, "--kafka-config", quick).status == 0
    found = rows(server.data, topic)
    assert sorted(int(row["payload"]) for row in found) == list(range(sent))
    for partition in (0, 1):
        places = [row["attributes"]["x-dedup-id"].split("/") for row in found]
        offsets = [int(offset) for _, of, offset in places if int(of) == partition]
        assert offsets == sorted(offsets)


def test_what_the_registry_calls_a_schema_is_checked_behind_its_prefix(kafka: Kafka, server: Server) -> None:
    """Serializers whose registry is the bus: the bus knows the number in the prefix."""
    topic = fresh_name("payments")
    make_topic(kafka, topic)
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": f"http://127.0.0.1:{server.port('console')}"}) as registry:
        data = AvroSerializer(registry, PAYMENT)({"amount": 9}, context)
    assert data is not None
    assert data[:1] == b"\x00"
    binding = ["schema", "bind", topic, f"{topic}-value", "--policy", "enforce", "--validate"]
    assert run_raceway(*binding, "--data", str(server.data)) == 0
    produce(kafka, topic, [data, data[:5] + b"not a number", data])
    told = bring_in(kafka, server, topic)
    assert told.status == 1
    assert f"the bus refuses the record {topic}/0/1" in told.stderr
    assert "does not match version 1" in told.stderr
    told = bring_in(kafka, server, topic, "--skip-refused")
    assert told.document == {"messages": 2, "refused": 1}
    assert f"{topic}/0/1" in told.stderr
    found = rows(server.data, topic)
    assert [row["payload"] for row in found] == [data, data]
    assert [row["schema_version"] for row in found] == [1, 1]


def run_raceway(*words: str) -> int:
    from typer.testing import CliRunner

    from raceway.cli.app import app

    return CliRunner().invoke(app, words).exit_code


def test_what_came_from_kafka_does_not_go_back(kafka: Kafka, server: Server) -> None:
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    produce(kafka, topic, [b"x"])
    assert bring_in(kafka, server, topic).document["messages"] == 1
    place = ["--data", server.data, "--topics", topic, "--name", topic]
    out = mirror(*place, "--to", f"kafka://{kafka.bootstrap}", "--once", "--json")
    assert out.document["messages"] == 0
    assert len(read_topic(kafka, topic)) == 1


def test_topics_made_later_are_followed(kafka: Kafka, server: Server) -> None:
    name = fresh_name("orders")
    make_topic(kafka, f"{name}.one")
    with mirroring(*options(kafka, server, f"{name}.#"), "--prefix", "in-") as process:
        make_topic(kafka, f"{name}.two")
        produce(kafka, f"{name}.two", [b"x"])
        wait_until(lambda: len(stored(server.data, f"in-{name}.two")) == 1, 60, "the message")
        stop(process)


def test_no_topic_that_matches_and_no_broker_are_told_in_one_line(kafka: Kafka, server: Server) -> None:
    told = bring_in(kafka, server, "nosuch.#")
    assert told.status == 1
    assert "has no topic that matches nosuch.#" in told.stderr
    nowhere = ["--data", server.data, "--topics", "#", "--from", "kafka://127.0.0.1:1", "--name", "x"]
    told = mirror(*nowhere, "--timeout", 2)
    assert (told.status, told.stderr.count("\n")) == (3, 1)
    assert "kafka://127.0.0.1:1 cannot be reached" in told.stderr


def test_without_leave_it_says_what_may_not_be_done(
    kafka: Kafka, server: Server, certificates: Path, tmp_path: Path
) -> None:
    """The user may see the cluster, but not read: it sees no topics. Writing is refused by name."""
    topic = fresh_name("orders")
    make_topic(kafka, topic)
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\nsasl.username=reader\n"
        f"sasl.password={USERS['reader']}\nssl.ca.location={certificates / AUTHORITY}\n"
    )
    place = ["--data", server.data, "--topics", topic, "--kafka-config", file, "--name", topic, "--once"]
    told = mirror(*place, "--from", f"kafka://{kafka.secure_bootstrap}")
    assert told.status == 1
    assert "has no topic that matches" in told.stderr
    told = mirror(*place, "--to", f"kafka://{kafka.secure_bootstrap}")
    assert told.status == 1
    assert "no permission to" in told.stderr
