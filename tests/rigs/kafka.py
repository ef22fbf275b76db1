"""Brokers of Apache Kafka for tests, and a client's view of what they hold."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.rigs.ports import free_port_base
from tests.rigs.tools import locked_jars
from tools.kafka import LOCK, Kafka, Secured, brokers

READ_S = 30.0
# Users of the port for passwords over TLS: the first may do everything, the second what it is given leave for. The
# certificate of the authority that clients trust.
USERS = {"administrator": "all-of-it", "reader": "a-secret"}
AUTHORITY = "authority.pem"
# Clients tell of brokers that tests have killed; nobody reads it.
SILENT = logging.getLogger("tests.kafka")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


@contextmanager
def running_kafka(count: int = 1, secured: Secured | None = None) -> Iterator[Kafka]:
    """Brokers that serve; their data are gone afterwards."""
    locked_jars(LOCK)
    with (
        tempfile.TemporaryDirectory(prefix="raceway-kafka-") as folder,
        brokers(Path(folder), count, free_port_base(), secured) as kafka,
    ):
        yield kafka


def make_topic(kafka: Kafka, name: str, partitions: int = 1, **settings: str) -> None:
    topic = NewTopic(name, num_partitions=partitions, config={key.replace("_", "."): v for key, v in settings.items()})
    client = admin(kafka)  # must outlive its answer
    client.create_topics([topic])[name].result(READ_S)


def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap}, logger=SILENT)


def set_topic(kafka: Kafka, name: str, **settings: str) -> None:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    client = admin(kafka)
    client.incremental_alter_configs([resource])[resource].result(READ_S)


def read_topic(kafka: Kafka, name: str, partition: int = 0, *, committed: bool = True) -> list[Message]:
    """All records of a partition, as a `read_committed` reader sees them now, from the first on."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap, "group.id": "tests", "enable.auto.commit": False, "logger": SILENT,
            "isolation.level": "read_committed" if committed else "read_uncommitted", "enable.partition.eof": True,
        }
    )  # fmt: skip
    found: list[Message] = []
    deadline = time.monotonic() + READ_S
    try:
        consumer.assign([TopicPartition(name, partition, 0)])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is None:
                found.append(message)
                continue
            assert error.name() == "_PARTITION_EOF", error
            return found
    finally:
        consumer.close()
    raise AssertionError(f"the end of {name} was not reached in {READ_S} s; {len(found)} records read")
