"""How far a mirror has come: a record in a compacted topic of Kafka, written in the transaction of what it covers.

Offsets of a consumer group would be forgotten when a mirror rests for some days (`offsets.retention.minutes`).
"""

from __future__ import annotations

import time

import msgspec

from raceway.errors import UnreachableError
from raceway.kafka.brokers import KafkaCluster

# A name that the bus reserves for itself, so that no topic of a bus is mirrored to it.
TOPIC = "raceway.mirror-positions"
COMPACTED = {"cleanup.policy": "compact"}
# The journal's only lane. A position is the sequence of the first row that is not mirrored yet.
LANE = "0"
# How long a transaction may take before Kafka aborts it. Readers wait for an open one at most so long.
TRANSACTION_S = 30


class MirrorId(msgspec.Struct, frozen=True):
    """Identity of a mirror: the journal's source id, and the name that the user gave."""

    source: str
    name: str

    @property
    def key(self) -> bytes:
        return f"{self.source}/{self.name}".encode()

    @property
    def transactional_id(self) -> str:
        return f"raceway-mirror-{self.source}-{self.name}"


def encode_position(position: int) -> bytes:
    return msgspec.json.encode({LANE: position})


def maybe_position(cluster: KafkaCluster, mirror: MirrorId) -> int | None:
    """Return the position that was last committed; None if there is none. Raises UnreachableError, MirrorError.

    Call it after `init_transactions`, which ends what a killed predecessor left open.
    """
    from confluent_kafka import KafkaException, TopicPartition

    # Not the end of what is committed: behind an open transaction of another mirror may be a commit of this one.
    end = _end(cluster)
    consumer = cluster.consumer(
        group_id="raceway-mirror", enable_auto_commit=False, isolation_level="read_committed", enable_partition_eof=True
    )
    found, limit_s = None, cluster.timeout_s + TRANSACTION_S
    deadline = time.monotonic() + limit_s
    try:
        with cluster.failures_in_words(f"read {TOPIC}"):
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            while time.monotonic() < deadline:
                record = consumer.poll(0.5)
                if record is None:
                    continue
                if (error := record.error()) is None:
                    if record.key() == mirror.key:
                        found = _decoded(record.value())
                elif error.name() != "_PARTITION_EOF":
                    raise KafkaException(error)
                elif (record.offset() or 0) >= end:
                    return found
    finally:
        consumer.close()
    raise UnreachableError(cluster.url, f"{TOPIC} was not read to its end within {limit_s:g} s")


def _end(cluster: KafkaCluster) -> int:
    from confluent_kafka import TopicPartition

    consumer = cluster.consumer(group_id="raceway-mirror", isolation_level="read_uncommitted")
    try:
        with cluster.failures_in_words(f"read {TOPIC}"):
            return consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), cluster.timeout_s)[1]
    finally:
        consumer.close()


def _decoded(value: bytes | None) -> int | None:
    return msgspec.json.decode(value, type=dict[str, int])[LANE] if value else None
