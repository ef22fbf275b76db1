"""A lane with Kafka's own client: a plain producer with a thread that polls it, and consumers that readers share.

Callbacks run in the polling thread and only pass on what they were told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from raceway.errors import BrokersError, UnavailableError, UnreachableError
from raceway.journal.kafka.lane import OnAppended
from raceway.journal.kafka.records import Record, RecordHeaders
from raceway.kafka.brokers import KafkaCluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

# Consumers group for reading; offsets are never committed, and nobody joins it.
_READERS = "raceway-lane"
_POLL_S = 0.1
# Headers and framing of a record beside its value.
_OVERHEAD = 64 * 1024
# Time for messages on their way when a lane is closed.
_FLUSH_S = 5.0
# How long a failed call waits for a better reason than that its time is over.
_REASON_S = 2.0
# Consumers that wait for the next read.
_IDLE_CONSUMERS = 2

_log = logging.getLogger("raceway.journal.kafka")


def lanes_topic(name: str) -> str:
    """Return the topic of the blocks of a cluster."""
    return f"{name}.lanes"


def state_topic(name: str) -> str:
    """Return the topic of the small values of a cluster."""
    return f"{name}.state"


class KafkaLane:
    """Lane `number` of the cluster `cluster_name`. See `Lane`."""

    def __init__(
        self, brokers: KafkaCluster, cluster_name: str, number: int, *, record_bytes: int, commit_timeout_s: float
    ) -> None:
        self.name = f"{cluster_name}/{number}"
        self._brokers, self._number = brokers, number
        self._lanes, self._state = lanes_topic(cluster_name), state_topic(cluster_name)
        self._record_bytes, self._commit_timeout_s = record_bytes, commit_timeout_s
        self._consumers: list[Consumer] = []
        self._lock = threading.Lock()
        self._term = 0
        self._producer: Producer | None = None  # made on use: most lanes are only read
        self._thread: threading.Thread | None = None
        self._values: Producer | None = None
        # All values up to an offset: they are asked for again and again, and by several threads.
        self._known_lock = threading.Lock()
        self._known: dict[str, bytes] = {}
        self._known_end = 0
        self._is_closed = False

    # ---- writing -----------------------------------------------------------------------------------------------------

    def append(self, headers: RecordHeaders, value: bytes, told: OnAppended) -> None:
        # Taken now: a report that comes after `begin_anew` is about a block that its writer has failed already.
        term = self._term

        def delivered(error: KafkaError | None, message: Message) -> None:
            if term == self._term:
                self._tell(told, error, message)

        try:
            # The partition is named, because a lane is one: a partitioner would spread records without a key.
            self._writing().produce(
                self._lanes, value=value, partition=self._number, headers=list(headers.items()), on_delivery=delivered
            )
        except (BufferError, RuntimeError) as error:
            told(None, UnavailableError(f"Kafka's client accepts no more records: {error}"))
        except Exception as error:  # noqa: BLE001  # KafkaException, which is imported on use
            told(None, UnavailableError(f"Kafka's client refuses a record: {error}"))

    def _tell(self, told: OnAppended, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            told(None, UnavailableError(str(self._brokers.translated(error, f"write to {self._lanes}"))))
            return
        offset = message.offset()
        # A duplicate after a repeated request is acknowledged without its offset.
        told(None if offset is None or offset < 0 else offset, None)

    def begin_anew(self) -> None:
        # First, so that reports of the former producer are ignored.
        self._term += 1
        former, self._producer = self._writing(), self._new_producer()
        former.purge(in_queue=True, in_flight=True, blocking=False)
        former.poll(0)

    def _writing(self) -> Producer:
        """Return the producer of blocks and claims, and have it polled."""
        if self._producer is None:
            self._producer = self._new_producer()
            self._thread = threading.Thread(target=self._poll, name="raceway-kafka-poll", daemon=True)
            self._thread.start()
        return self._producer

    def put(self, key: str, value: bytes | None) -> None:
        with self._in_words(f"write to {self._state}"):
            if self._values is None:
                self._values = self._new_producer()
            heard: list[KafkaError | None] = []
            self._values.produce(
                self._state, key=key, value=value, partition=self._number,
                on_delivery=lambda error, _: heard.append(error),
            )  # fmt: skip
            # A second longer than the message may take: at that time Kafka's client tells a better reason than ours.
            self._values.flush(self._commit_timeout_s + 1)
            if not heard:
                raise UnreachableError(self._brokers.url, f"{self._state} did not accept a value in time")
            if heard[0] is not None:
                raise self._brokers.translated(heard[0], f"write to {self._state}")

    def _new_producer(self) -> Producer:
        # acks=all is the commit: all replicas in sync have the record. Idempotence keeps the order when a request is
        # repeated, and drops the duplicate. No lingering and no batches: a block is a batch already.
        return self._brokers.producer(
            enable_idempotence=True, acks="all", linger_ms=0, batch_num_messages=1, partitioner="consistent",
            message_timeout_ms=int(self._commit_timeout_s * 1000),
            message_max_bytes=max(1_000_000, self._record_bytes + _OVERHEAD),
        )  # fmt: skip

    def _poll(self) -> None:
        while not self._is_closed:
            try:
                self._writing().poll(_POLL_S)
            except Exception:  # noqa: BLE001  # otherwise the thread would end unnoticed, and no commit be heard of
                _log.exception("polling Kafka failed")
                time.sleep(_POLL_S)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def extent(self) -> tuple[int, int]:
        return self._extent_of(self._lanes)

    def read(self, start: int, stop: int) -> Iterator[Record]:
        for message in self._read(self._lanes, start, stop):
            yield Record(message.offset() or 0, _headers(message), message.value() or b"")

    def values(self) -> Mapping[str, bytes]:
        with self._known_lock:
            low, end = self._extent_of(self._state)
            for message in self._read(self._state, max(low, self._known_end), end):
                key, value = (message.key() or b"").decode(), message.value()
                if value is None:
                    self._known.pop(key, None)
                else:
                    self._known[key] = value
            self._known_end = end
            return dict(self._known)

    def _extent_of(self, topic: str) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        with self._in_words(f"read {topic}"), self._consumer() as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, self._number), self._brokers.timeout_s)
            return low, high

    def _read(self, topic: str, start: int, stop: int) -> Iterator[Message]:
        """Yield records until the offset `stop`; compaction may have left gaps."""
        if start >= stop:
            return
        from confluent_kafka import KafkaException, TopicPartition

        with self._in_words(f"read {topic}"), self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, self._number, start)])
            try:
                deadline = time.monotonic() + self._brokers.timeout_s
                while True:
                    message = consumer.poll(_POLL_S)
                    if message is None:
                        if time.monotonic() > deadline:
                            raise UnreachableError(self._brokers.url, f"{topic} was not read up to {stop} in time")
                        continue
                    # The end of the partition is told as an error. It is needed: compaction may have removed the last
                    # records before `stop`, and then no record says that nothing more comes.
                    error, offset = message.error(), message.offset() or 0
                    if error is not None and error.name() != "_PARTITION_EOF":
                        if time.monotonic() < deadline and not error.fatal():
                            continue
                        raise KafkaException(error)
                    if offset >= stop:
                        return
                    if error is None:
                        # For the next record, not for all of them: a long read is not late while records come.
                        deadline = time.monotonic() + self._brokers.timeout_s
                        yield message
                        if offset + 1 >= stop:
                            return
            finally:
                consumer.unassign()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        """A consumer for one read: one that waits, or a new one."""
        with self._lock:
            consumer = self._consumers.pop() if self._consumers else None
        if consumer is None:
            consumer = self._brokers.consumer(
                group_id=_READERS, enable_auto_commit=False, enable_partition_eof=True, auto_offset_reset="earliest",
                check_crcs=True, fetch_wait_max_ms=100, fetch_error_backoff_ms=100,
            )  # fmt: skip
        # Not kept after an error, nor when a reader stops early: it may be disconnected, or hold records of that read.
        is_kept = False
        try:
            yield consumer
            is_kept = True
        finally:
            with self._lock:
                is_kept = is_kept and not self._is_closed and len(self._consumers) < _IDLE_CONSUMERS
                if is_kept:
                    self._consumers.append(consumer)
            if not is_kept:
                consumer.close()

    # ---- the rest ----------------------------------------------------------------------------------------------------

    def trim(self, before: int) -> None:
        from confluent_kafka import TopicPartition

        admin = self._brokers.admin()  # must outlive its answer
        with self._in_words(f"remove records of {self._lanes}"):
            for answer in admin.delete_records([TopicPartition(self._lanes, self._number, before)]).values():
                answer.result(self._brokers.timeout_s)

    def maybe_reason(self) -> str | None:
        from raceway.kafka.replicas import maybe_short_of_replicas

        try:
            return maybe_short_of_replicas(self._brokers.within(_REASON_S), self._lanes, self._number)
        except (BrokersError, UnavailableError):
            return None

    def close(self) -> None:
        if self._is_closed:
            return
        if self._producer is not None:
            self._producer.flush(_FLUSH_S)
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            consumers, self._consumers = self._consumers, []
        for consumer in consumers:
            consumer.close()

    @contextmanager
    def _in_words(self, doing: str) -> Iterator[None]:
        """Translate errors of Kafka's client to UnavailableError: whatever it is, the lane cannot be used now."""
        try:
            with self._brokers.failures_in_words(doing):
                yield
        except BrokersError as error:
            raise UnavailableError(str(error)) from error


def _headers(message: Message) -> RecordHeaders:
    """Return the headers of a record by name. Kafka gives them as pairs."""
    return {str(pair[0]): bytes(pair[1] or b"") for pair in message.headers() or ()}  # type: ignore[arg-type]
