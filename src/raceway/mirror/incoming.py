"""From Kafka to the bus: records of topics that match, published over the console port.

Records are read as a consumer group, which `name` names, and the group's offsets are committed after the bus has stored
what was read. A process that is killed in between reads some records again; their `x-dedup-id`, which is their place in
Kafka, tells the bus that it has them.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from raceway.client.http import BATCH, HttpClient, in_batches
from raceway.errors import (
    ConnectionLostError,
    MirrorError,
    RacewayError,
    RemoteError,
    RequestTimeoutError,
    UnreachableError,
)
from raceway.kafka.brokers import NOT_PERMITTED, UNKNOWN_TOPIC, KafkaCluster
from raceway.mirror.records import IncomingRecord, Say, message_of
from raceway.model.topics import is_reserved, matches

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

# Kafka's own topics.
INTERNAL = "__"
# Wait between two attempts, and how often new topics are looked for.
RETRY_S, TOPICS_S = 1.0, 10.0
# After how long the group gives the partitions of a process to another: one that died, and one that cannot get rid of
# what it has, because the bus is away.
SESSION_MS, HEARTBEAT_MS, MAX_POLL_MS = 6_000, 2_000, 600_000
# Answers of the bus that may be others later; after the next ones no record would be taken.
PASSING = frozenset({"unavailable", "read_only", "disk_full", "low_space", "busy", "draining", "too_slow"})
FORBIDDING = frozenset({"forbidden", "unauthenticated", "too_many_failures"})


class IncomingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a mirror from Kafka.

    `name` is part of the name of the consumer group. `prefix` begins the names of topics on the bus. `start`: where a
    new mirror begins, at the first or the next record. `once`: end when all that is there is published.
    `skip_refused`: leave out what the bus refuses.
    """

    patterns: Sequence[str]
    name: str
    prefix: str = ""
    start: str = "first"
    once: bool = False
    skip_refused: bool = False
    interval_s: float = 0.2


class IncomingMirror:
    """See the module. `told` gets a sentence when something happens that an operator should know."""

    def __init__(self, client: HttpClient, cluster: KafkaCluster, plan: IncomingPlan, told: Say) -> None:
        self._client, self._cluster, self._plan, self._told = client, cluster, plan, told
        self.stopping = asyncio.Event()
        self.messages = self.refused = 0
        self._topics: list[str] = []
        # Partitions whose end was reached, with `once`.
        self._ended: set[tuple[str, int]] = set()
        self._said = ""

    async def run(self, ready: Callable[[], None]) -> None:
        """Bring records in until `stopping`, or with `once` to the end. `ready` is called when the topics are known.

        Raises UnreachableError if no broker answers at first; later it waits for them. Raises MirrorError.
        """
        await asyncio.to_thread(self._find_topics)
        if not self._topics:
            wanted = ", ".join(self._plan.patterns)
            raise MirrorError(f"{self._cluster.url} has no topic that matches {wanted}, or shows none to this user")
        consumer = self._cluster.consumer(
            group_id=f"raceway-mirror-{self._plan.name}", isolation_level="read_committed", enable_auto_commit=False,
            auto_offset_reset="earliest" if self._plan.start == "first" else "latest", enable_partition_eof=True,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, max_poll_interval_ms=MAX_POLL_MS,
            partition_assignment_strategy="cooperative-sticky",
        )  # fmt: skip
        try:
            consumer.subscribe(self._topics)
            ready()
            await self._follow(consumer)
        finally:
            await asyncio.to_thread(consumer.close)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def _find_topics(self) -> bool:
        """Look for topics that match; return whether there are others than before."""
        metadata = self._cluster.metadata()
        self._cluster_id = metadata.cluster_id or ""
        found = metadata.topics or {}
        if self._plan.once:
            self._partitions = {(name, number) for name in found for number in found[name].partitions or ()}
        topics = sorted(name for name in found if self._is_wanted(name))
        is_new, self._topics = topics != self._topics, topics
        return is_new

    def _is_wanted(self, topic: str) -> bool:
        if topic.startswith(INTERNAL) or is_reserved(self._plan.prefix + topic):
            return False
        return any(matches(pattern, topic) for pattern in self._plan.patterns)

    async def _look_again(self, consumer: Consumer) -> None:
        """Follow topics that were made since, too."""
        try:
            if await asyncio.to_thread(self._find_topics):
                consumer.subscribe(self._topics)
            self._note("")
        except UnreachableError as error:
            self._note(f"{error}; the mirror tries again until they answer")

    # ---- records -----------------------------------------------------------------------------------------------------

    async def _follow(self, consumer: Consumer) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while not (self.stopping.is_set() or self._is_done()):
            found = await asyncio.to_thread(consumer.consume, BATCH, self._plan.interval_s)
            records = [record for message in found if (record := self._maybe_record(message)) is not None]
            if records and await self._publish(records):
                await asyncio.to_thread(self._commit, consumer, records)
            if loop.time() - looked_at >= TOPICS_S and not self._plan.once:
                looked_at = loop.time()
                await self._look_again(consumer)

    def _is_done(self) -> bool:
        if not self._plan.once:
            return False
        return {place for place in self._partitions if place[0] in self._topics} <= self._ended

    def _maybe_record(self, message: Message) -> IncomingRecord | None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is None:
            self._ended.discard((topic, partition))
            return IncomingRecord(
                topic, partition, offset, _bytes(message.key()), _bytes(message.value()),
                list(dict(message.headers() or ()).items()), message.timestamp()[1],
            )  # fmt: skip
        if error.name() == "_PARTITION_EOF":
            self._ended.add((topic, partition))
            return None
        failure = self._cluster.translated(error, f"read the topic {topic}")
        # A topic that was removed is no reason to end: others go on.
        if not isinstance(failure, UnreachableError) and error.name() not in UNKNOWN_TOPIC:
            raise failure
        self._note(f"{failure}; the mirror tries again")
        return None

    def _commit(self, consumer: Consumer, records: Sequence[IncomingRecord]) -> None:
        """Commit the offsets behind these records. Without it they are read again, and known by their ids."""
        from confluent_kafka import KafkaException, TopicPartition

        following = {(record.topic, record.partition): record.offset + 1 for record in records}
        try:
            consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in following.items()], asynchronous=False
            )
        except KafkaException as error:
            failure = self._cluster.translated(error.args[0], "commit offsets")
            if error.args[0].name().endswith(NOT_PERMITTED):
                raise failure from error
            self._note(f"{failure}; records read since then are read again, and not stored twice")

    # ---- publishing --------------------------------------------------------------------------------------------------

    async def _publish(self, records: Sequence[IncomingRecord]) -> bool:
        """Publish records in order; return whether all are stored (False: stopped before)."""
        by_topic: dict[str, list[IncomingRecord]] = defaultdict(list)
        for record in records:
            by_topic[record.topic].append(record)
        for topic, some in by_topic.items():
            for part in in_batches(some, _length):
                if not await self._publish_part(self._plan.prefix + topic, part):
                    return False
        return True

    async def _publish_part(self, topic: str, records: Sequence[IncomingRecord]) -> bool:
        """Publish records of one topic, all with one request, or each with its own if one of them is refused."""
        documents = [message_of(record, self._cluster_id) for record in records]
        try:
            if not await self._stored(topic, documents):
                return False
        except RemoteError as error:
            if len(records) > 1:
                return all([await self._publish_part(topic, [record]) for record in records])
            self._refuse(records[0], error)
            return True
        self.messages += len(records)
        return True

    async def _stored(self, topic: str, documents: Sequence[Mapping[str, Any]]) -> bool:
        """Publish until the bus has an answer; return False if stopped before. Raises RemoteError for a refusal."""
        while not self.stopping.is_set():
            try:
                await self._client.publish_documents(topic, documents)
                self._note("")
                return True
            except RemoteError as error:
                if error.reported in FORBIDDING:
                    raise MirrorError(f"the bus refuses the mirror: {error}; see --token") from error
                if error.reported not in PASSING:
                    raise
                self._wait_for_bus(error)
            except (ConnectionLostError, RequestTimeoutError) as error:
                self._wait_for_bus(error)
            await self._rest()
        return False

    def _refuse(self, record: IncomingRecord, error: RacewayError) -> None:
        if not self._plan.skip_refused:
            raise MirrorError(
                f"the bus refuses the record {record.place}: {error}; --skip-refused skips such records"
            ) from error
        self.refused += 1
        self._told(f"skipped, since the bus refuses it: {record.place}: {error}")

    def _wait_for_bus(self, error: RacewayError) -> None:
        self._note(f"the bus accepts no messages ({error}); the mirror tries again until it does")

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self.stopping.wait(), RETRY_S)
        except TimeoutError:
            return

    def _note(self, text: str) -> None:
        """Tell what hinders the mirror, once; nothing does with an empty text."""
        if text and text != self._said:
            self._told(text)
        self._said = text


def _length(record: IncomingRecord) -> int:
    return len(record.value or b"")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
