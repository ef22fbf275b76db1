"""Rows of the journal as records of Kafka, and records as messages of the bus.

A record has the payload as its value, the routing key as its key, the time at which the bus took the message, and as
headers the attributes under their own names and what else the journal knows:

    rw-topic  rw-offset      the message's place in its topic
    rw-lane   rw-sequence    its place in the journal
    rw-kind   rw-wire  rw-producer  rw-message-id  rw-correlation-id  rw-parent-id
    rw-schema-id  rw-schema-version  rw-version  rw-encoding
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from raceway.net.codec.message_documents import payload_fields

# Headers of ours begin so; attributes that do are left out.
OURS = "rw-"
HEADERS = {
    "rw-topic": "topic", "rw-offset": "offset", "rw-lane": "partition", "rw-sequence": "sequence", "rw-kind": "kind",
    "rw-wire": "wire", "rw-producer": "producer", "rw-message-id": "message_id",
    "rw-correlation-id": "correlation_id", "rw-parent-id": "parent_id", "rw-schema-id": "schema_id",
    "rw-schema-version": "schema_version", "rw-version": "version", "rw-encoding": "encoding",
}  # fmt: skip
COLUMNS = (*HEADERS.values(), "time_us", "routing_key", "attributes", "payload")
# Headers that a record from another bus gives back to the message. Schema ids are not among them: they are a bus's own.
RESTORED = ("rw-message-id", "rw-correlation-id", "rw-parent-id", "rw-version", "rw-encoding")
# Attributes of a message that came from Kafka.
DEDUP_ID, CLUSTER, TIMESTAMP = "x-dedup-id", "x-kafka-cluster", "x-kafka-timestamp"
NULL, BINARY_KEY, BINARY_SUFFIX = "x-kafka-null", "x-kafka-key", "-base64"
# Kafka: names of topics have at most 249 of these characters.
MAX_TOPIC_LENGTH = 249
_NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")

# As Kafka's client has them.
KafkaHeaders = list[tuple[str, str | bytes | None]]
# Prints a line about a mirror's progress or a problem.
Say = Callable[[str], None]


class OutgoingRecord(NamedTuple):
    """A record to write."""

    topic: str
    key: str | None
    value: bytes
    headers: KafkaHeaders
    timestamp_ms: int


class IncomingRecord(NamedTuple):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: KafkaHeaders
    timestamp_ms: int

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def kafka_topic(name: str, prefix: str = "") -> str:
    """Return the Kafka topic for a topic of the bus: `/space/topic` as `space.topic`, with `_` where Kafka has no
    such character."""
    return (prefix + _NOT_IN_TOPICS.sub("_", name.lstrip("/").replace("/", ".")))[:MAX_TOPIC_LENGTH]


def record_of(row: Mapping[str, Any], topic: str) -> OutgoingRecord:
    """Return a row as a record of this Kafka topic."""
    own: KafkaHeaders = [(name, str(row[column])) for name, column in HEADERS.items() if row[column] is not None]
    attributes = row["attributes"] or {}
    others = [(name, value) for name, value in attributes.items() if not name.startswith(OURS)]
    return OutgoingRecord(topic, row["routing_key"], row["payload"] or b"", own + others, row["time_us"] // 1000)


def message_of(record: IncomingRecord, cluster: str) -> dict[str, Any]:
    """Return a record as the document of a message (`net.codec.message_documents`)."""
    document: dict[str, Any] = {**payload_fields(record.value or b"")}
    attributes: dict[str, str] = {}
    for name, value in record.headers:
        content = value.encode() if isinstance(value, str) else value or b""
        text = _maybe_text(content)
        if name in RESTORED and text:
            document[HEADERS[name]] = text
        elif not name.startswith(OURS):
            attributes |= {name: text} if text is not None else {f"{name}{BINARY_SUFFIX}": _base64(content)}
    attributes |= {DEDUP_ID: record.place, CLUSTER: cluster, TIMESTAMP: str(record.timestamp_ms)}
    if record.value is None:
        attributes[NULL] = "true"
    if record.key is not None:
        key = _maybe_text(record.key)
        document["routing_key"] = _base64(record.key) if key is None else key
        attributes |= {BINARY_KEY: "base64"} if key is None else {}
    document["attributes"] = attributes
    return document


def _maybe_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
