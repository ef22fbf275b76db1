"""From the journal to Kafka: every message once, for readers with `isolation.level=read_committed`.

The journal's files are followed as any reader does: the bus does not know of it, and never waits. Rows are read in
order; the records of some thousand rows and the position behind them are one transaction. Whatever happens to the
process or to a broker, the position in Kafka says what is there. So every failure has the same remedy: a new session,
which fences the former one, ends its transaction, and goes on where Kafka says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pyarrow as pa

from raceway.config import MIB
from raceway.errors import MirrorError, MissingRowsError, RacewayError, TrimmedError, UnreachableError
from raceway.journal.read.reader import Reader
from raceway.kafka.brokers import FENCED, MAX_RECORD_BYTES, TOO_LARGE, KafkaCluster
from raceway.mirror.positions import COMPACTED, TOPIC, TRANSACTION_S, MirrorId, encode_position, maybe_position
from raceway.mirror.records import CLUSTER, COLUMNS, OutgoingRecord, Say, kafka_topic, record_of
from raceway.model.topics import matches

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin._metadata import TopicMetadata

# Rows and bytes of payload in a transaction, about. A commit takes some 50 ms, however little it has.
ROWS, BYTES = 10_000, 8 * MIB
# Shortest time between two positions without records: rows of other topics are not worth a transaction each.
KEEP_S = 10.0
# Wait between two attempts while brokers are away, and for the end of a transaction that failed.
RETRY_S, ABORT_S = 1.0, 5.0
# Topics whose Kafka topic is remembered.
KNOWN_TOPICS = 100_000
# Wait between two looks for the leaders of a new topic.
LEADERS_S = 0.1

# A record that was not written, and why.
KafkaRefusal: TypeAlias = "tuple[KafkaError, Message]"


class OutgoingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a mirror to Kafka.

    `single` is the Kafka topic for all messages; without it each topic has one, whose name begins with `prefix`.
    `create`: make Kafka topics that do not exist. `start`: where a new mirror begins, at the first or the next message.
    `once`: end when all that is committed is mirrored. `accept_loss`: go on behind rows that the journal does not have
    any more.
    """

    patterns: Sequence[str]
    prefix: str = ""
    single: str = ""
    create: bool = False
    start: str = "first"
    once: bool = False
    accept_loss: bool = False
    interval_s: float = 0.2


class OutgoingMirror:
    """See the module. `told` gets a sentence when something happens that an operator should know."""

    def __init__(self, reader: Reader, cluster: KafkaCluster, mirror: MirrorId, plan: OutgoingPlan, told: Say) -> None:
        self._reader, self._cluster, self._mirror, self._plan, self._told = reader, cluster, mirror, plan, told
        self.stopping = threading.Event()
        self.messages = self.position = 0
        self._kept, self._kept_at = -1, time.monotonic()
        self._topics: set[str] = set()
        self._refused: KafkaRefusal | None = None
        self._target = lru_cache(KNOWN_TOPICS)(self._find_target)

    def run(self, ready: Callable[[], None]) -> None:
        """Mirror until `stopping`, or with `once` to the end. `ready` is called when the position is known.

        Raises UnreachableError if no broker answers at first; later it waits for them. Raises MirrorError,
        TrimmedError, MissingRowsError.
        """
        producer: Producer | None = self._session()
        ready()
        said = ""
        while True:
            try:
                self._follow(producer or self._session())
                return
            except UnreachableError as error:
                producer = None
                if str(error) != said:
                    said = str(error)
                    self._told(f"{said}; the mirror tries again until they answer")
                if self.stopping.wait(RETRY_S):
                    return

    # ---- session -----------------------------------------------------------------------------------------------------

    def _session(self) -> Producer:
        """Take the mirror over from whoever has it, and find its position."""
        metadata = self._cluster.metadata()
        self._cluster_id, self._topics = metadata.cluster_id or "", set(metadata.topics or ())
        if TOPIC not in self._topics:
            self._create(TOPIC, 1, COMPACTED)
        producer = self._cluster.producer(
            transactional_id=self._mirror.transactional_id, transaction_timeout_ms=TRANSACTION_S * 1000,
            message_max_bytes=MAX_RECORD_BYTES, partitioner="murmur2_random",
        )  # fmt: skip
        with self._cluster.failures_in_words("begin transactions"):
            producer.init_transactions(self._cluster.timeout_s)
        found = maybe_position(self._cluster, self._mirror)
        self.position = self._first() if found is None else self._going_on(found)
        self._kept, self._refused = self.position, None
        if found is None:  # from here on, wherever it began, it goes on there
            self._commit(producer, ())
        return producer

    def _first(self) -> int:
        self._reader.follow()
        return self._reader.first_position() if self._plan.start == "first" else self._reader.committed() + 1

    def _going_on(self, position: int) -> int:
        committed = self._reader.committed()
        if position > committed + 1:
            raise MirrorError(
                f"{self._cluster.url} has this journal up to position {position - 1}, but it ends at {committed}: the "
                "data folder seems to be an older copy; mirror it under another --name"
            )
        return position

    def _create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic, with the replicas that the brokers give by default."""
        from confluent_kafka import KafkaException
        from confluent_kafka.cimpl import NewTopic

        admin = self._cluster.admin()  # must outlive its answer
        made = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(settings))
        with self._cluster.failures_in_words(f"create the topic {topic}"):
            try:
                admin.create_topics([made])[topic].result(self._cluster.timeout_s)
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
        deadline = time.monotonic() + self._cluster.timeout_s
        while topic not in self._topics:
            if time.monotonic() > deadline:
                raise UnreachableError(self._cluster.url, f"the new topic {topic} has no leader yet")
            found = self._cluster.metadata().topics or {}
            self._topics |= {name for name, facts in found.items() if _has_leaders(facts)}
            self.stopping.wait(LEADERS_S)

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _follow(self, producer: Producer) -> None:
        """Mirror what is there and what comes, until `stopping`."""
        while not self.stopping.is_set():
            if self._step(producer):
                continue
            if self._plan.once:
                break
            self.stopping.wait(self._plan.interval_s)
        if self.position != self._kept:
            self._commit(producer, ())

    def _step(self, producer: Producer) -> bool:
        """Mirror the next rows; return whether there were any."""
        end = min(self.position + ROWS, self._reader.committed() + 1)
        if end <= self.position:
            return False
        records, following = self._read(end)
        self.position = following
        if records or time.monotonic() - self._kept_at >= KEEP_S:
            self._commit(producer, records)
        return True

    def _read(self, end: int) -> tuple[list[OutgoingRecord], int]:
        """Return the records of the next rows, up to `end` or the limit of a transaction, and where they end."""
        records: list[OutgoingRecord] = []
        following, size = self.position, 0
        try:
            for batch in self._reader.read(self.position, end, COLUMNS):
                following = self._checked(batch, following)
                found = list(self._records(batch))
                records += found
                size += sum(len(record.value) for record in found)
                if size >= BYTES:
                    return records, following
        except TrimmedError as error:
            if not self._plan.accept_loss:
                raise
            self._told(f"{error}: rows before it are not mirrored")
            return records, error.first
        if following != end:
            self._note_loss(following, end - 1)
        return records, end

    def _checked(self, batch: pa.RecordBatch, following: int) -> int:
        """Return the position behind a batch. Raises MissingRowsError if it does not go on at `following`."""
        first, last = batch.column("sequence")[0].as_py(), batch.column("sequence")[-1].as_py()
        if last - following + 1 != batch.num_rows:
            self._note_loss(following, first - 1 if first > following else last)
        return int(last) + 1

    def _note_loss(self, first: int, last: int) -> None:
        error = MissingRowsError(first, last, last - first + 1, "see `raceway journal verify`")
        if not self._plan.accept_loss:
            raise error
        self._told(f"{error}; the mirror continues after them")

    def _records(self, batch: pa.RecordBatch) -> Iterator[OutgoingRecord]:
        topics, offsets = batch.column("topic").to_pylist(), batch.column("offset").to_pylist()
        chosen = [
            row for row, topic in enumerate(topics) if offsets[row] is not None and self._target(topic) is not None
        ]
        for row in batch.take(pa.array(chosen, pa.int64())).to_pylist(maps_as_pydicts="strict"):
            # What came from this cluster is there already, and would come again for ever.
            if (row["attributes"] or {}).get(CLUSTER) != self._cluster_id:
                yield record_of(row, self._target(row["topic"]) or "")

    def _find_target(self, topic: str) -> str | None:
        """Return the Kafka topic of a topic; None if it is not mirrored."""
        if not any(matches(pattern, topic) for pattern in self._plan.patterns):
            return None
        return self._plan.single or kafka_topic(topic, self._plan.prefix)

    # ---- transactions ------------------------------------------------------------------------------------------------

    def _commit(self, producer: Producer, records: Sequence[OutgoingRecord]) -> None:
        """Write records and the position in one transaction."""
        from confluent_kafka import KafkaException

        self._check_topics({record.topic for record in records})
        try:
            producer.begin_transaction()
            self._produce(producer, records)
            producer.produce(TOPIC, encode_position(self.position), self._mirror.key, partition=0)
            producer.commit_transaction(self._cluster.timeout_s)
        except KafkaException as error:
            # Before the abort, which refuses all that is left.
            refused = self._refused
            raise self._failure(error.args[0], refused, self._maybe_abort(producer)) from error
        self.messages += len(records)
        self._kept, self._kept_at = self.position, time.monotonic()

    def _failure(self, error: KafkaError, refused: KafkaRefusal | None, aborting: KafkaError | None) -> RacewayError:
        """Return the error for a transaction that failed: the reason, of those that the client gives."""
        if error.name() == "_FATAL" and aborting is not None:
            error = aborting
        if refused is not None and error.name() not in FENCED:
            return self._refusal(*refused)
        return self._cluster.translated(error, "write records")

    def _maybe_abort(self, producer: Producer) -> KafkaError | None:
        """Abort; return the error if that cannot be. Readers then wait until the next session, or Kafka, does it."""
        from confluent_kafka import KafkaException

        try:
            producer.purge()
            producer.abort_transaction(ABORT_S)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]  # the library's
        return None

    def _produce(self, producer: Producer, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            while True:
                try:
                    producer.produce(
                        record.topic, record.value, record.key, headers=record.headers, timestamp=record.timestamp_ms,
                        on_delivery=self._delivered,
                    )  # fmt: skip
                    break
                except BufferError:  # its queue is full: wait until some are written
                    producer.poll(1.0)

    def _check_topics(self, wanted: Iterable[str]) -> None:
        """Make sure that the Kafka topics exist. Raises MirrorError."""
        missing = set(wanted) - self._topics
        if missing:
            self._topics |= set(self._cluster.metadata().topics or ())
        for topic in sorted(missing - self._topics):
            if not self._plan.create:
                raise MirrorError(
                    f"{self._cluster.url} has no topic {topic}: create it there, or let the mirror do it with --create"
                )
            self._create(topic, -1, {})

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        # Of a batch that is too large, the largest record is what matters.
        if error is not None and (self._refused is None or _size(record) > _size(self._refused[1])):
            self._refused = (error, record)

    def _refusal(self, error: KafkaError, record: Message) -> RacewayError:
        """Return the error for a record that was not written."""
        topic = record.topic()
        if error.name() in TOO_LARGE:
            return MirrorError(
                f"a record of {_size(record):,} bytes before position {self.position}, or the batch that it is in, is "
                f"more than Kafka accepts: raise max.message.bytes of its topic {topic}, or lower batch.size in "
                "--kafka-config"
            )
        return self._cluster.translated(error, f"write to the topic {topic}")


def _size(record: Message) -> int:
    return len(record.value() or b"")


def _has_leaders(topic: TopicMetadata) -> bool:
    return bool(topic.partitions) and all(part.leader >= 0 for part in topic.partitions.values())
