"""Kafka topics of a cluster: what they must be so that nothing acknowledged is lost, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from raceway.errors import ClusterError
from raceway.journal.kafka.client import lanes_topic, state_topic
from raceway.kafka.brokers import KafkaCluster
from raceway.kafka.replicas import topic_settings
from raceway.model.clusters import KafkaVerdict

REPLICAS, IN_SYNC = 3, 2
_COMMON = {
    "unclean.leader.election.enable": "false", "compression.type": "producer", "message.timestamp.type": "CreateTime",
}  # fmt: skip
LANES = {**_COMMON, "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
STATE = {**_COMMON, "cleanup.policy": "compact"}


class TopicFinding(NamedTuple):
    """Finding about a Kafka topic. `bad`: acknowledged messages could be lost, or none is accepted."""

    verdict: KafkaVerdict
    topic: str
    text: str


class KafkaTopic(NamedTuple):
    """A topic as brokers tell it. `in_sync` is the smallest number of replicas in sync of a partition."""

    partitions: int
    replicas: int
    in_sync: int
    settings: dict[str, str]


def create_topics(brokers: KafkaCluster, name: str, lanes: int, replicas: int) -> None:
    """Make the topics of a cluster. Raises ClusterError if they exist, UnreachableError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewTopic

    in_sync = {"min.insync.replicas": str(min(IN_SYNC, replicas))}
    wanted = [
        NewTopic(topic, num_partitions=lanes, replication_factor=replicas, config=settings | in_sync)
        for topic, settings in ((lanes_topic(name), LANES), (state_topic(name), STATE))
    ]
    admin = brokers.admin()  # must outlive its answer
    for topic, answer in admin.create_topics(wanted).items():
        try:
            with brokers.failures_in_words(f"create the topic {topic}"):
                answer.result(brokers.timeout_s)
        except Exception as error:
            cause = error.__cause__
            code = cause.args[0].name() if isinstance(cause, KafkaException) else ""
            if code == "TOPIC_ALREADY_EXISTS":
                raise ClusterError(f"{brokers.url} has the topic {topic} already: choose another name") from error
            if code == "INVALID_REPLICATION_FACTOR":
                count = len(brokers.metadata().brokers or {})
                raise ClusterError(
                    f"{replicas} replicas need as many brokers, and {brokers.url} has {count}: start more, or give "
                    f"--replicas {count}, which survives fewer failures"
                ) from error
            raise


def maybe_facts(brokers: KafkaCluster, topic: str) -> KafkaTopic | None:
    """Return the facts of a topic; None if it does not exist. Raises UnreachableError, BrokersError."""
    known = (brokers.metadata().topics or {}).get(topic)
    if known is None or not known.partitions:
        return None
    partitions = known.partitions.values()
    return KafkaTopic(
        len(known.partitions),
        min(len(partition.replicas) for partition in partitions),
        min(len(partition.isrs) for partition in partitions),
        topic_settings(brokers, topic),
    )


def check_topics(brokers: KafkaCluster, name: str, record_bytes: int) -> list[TopicFinding]:
    """Return what is found about the topics of a cluster. Raises UnreachableError, BrokersError."""
    found: list[TopicFinding] = []
    for topic, wanted in ((lanes_topic(name), LANES), (state_topic(name), STATE)):
        facts = maybe_facts(brokers, topic)
        if facts is None:
            found.append(TopicFinding("bad", topic, "does not exist: `raceway cluster init` makes it"))
            continue
        faults = [TopicFinding(verdict, topic, text) for verdict, text in _faults(facts, wanted, record_bytes)]
        partitions = f"{facts.partitions} partition{'s' * (facts.partitions != 1)}"
        settings = f"{partitions}, {facts.replicas} replicas, {facts.in_sync} in sync"
        found += faults or [TopicFinding("ok", topic, settings)]
    return found


def _faults(facts: KafkaTopic, wanted: dict[str, str], record_bytes: int) -> Iterator[tuple[KafkaVerdict, str]]:
    """Yield what is wrong with a topic."""
    for key, (is_right, text) in _CHECKS.items():
        value = facts.settings.get(key)
        if key in wanted and value is not None and not is_right(value, wanted[key]):
            yield "bad", f"{key} is {value}, {text}: set it to {wanted[key]}"
    needed = int(facts.settings.get("min.insync.replicas", "1"))
    if facts.replicas == 1:
        yield "warning", "has one replica: its messages are lost with that broker; raise it to 3"
    elif needed < IN_SYNC:
        yield (
            "bad",
            (
                f"min.insync.replicas is {needed}, so a message may be acknowledged that one broker alone has: "
                f"set it to {IN_SYNC}"
            ),
        )
    elif facts.replicas < REPLICAS:
        yield (
            "warning",
            f"has {facts.replicas} replicas: while one broker is down no message is accepted; raise it to 3",
        )
    if facts.in_sync < needed:
        yield "bad", f"{facts.in_sync} of {facts.replicas} replicas are in sync, and {needed} are needed: start brokers"
    elif facts.in_sync < facts.replicas:
        yield "warning", f"{facts.in_sync} of {facts.replicas} replicas are in sync: a broker is down or behind"
    largest = int(facts.settings.get("max.message.bytes", str(record_bytes)))
    if largest < record_bytes:
        yield (
            "bad",
            (
                f"max.message.bytes is {largest}, less than cluster.record_bytes ({record_bytes}): raise the former, "
                "or lower the latter"
            ),
        )


def _is_equal(value: str, wanted: str) -> bool:
    return value.lower() == wanted.lower()


_CHECKS: dict[str, tuple[Callable[[str, str], bool], str]] = {
    "cleanup.policy": (_is_equal, "which removes records that are needed, or keeps all for ever"),
    "retention.ms": (_is_equal, "so Kafka removes messages by itself, acknowledged or not"),
    "retention.bytes": (_is_equal, "so Kafka removes messages by itself, acknowledged or not"),
    "unclean.leader.election.enable": (_is_equal, "so a broker may lead that lacks acknowledged messages"),
}


def refuse_losses(findings: list[TopicFinding]) -> None:
    """Raise ClusterError if settings could lose what is acknowledged. Brokers that are down are no reason."""
    for verdict, topic, text in findings:
        if verdict == "bad" and "in sync" not in text:
            raise ClusterError(f"the Kafka topic {topic} {_verbal(text)}")


def _verbal(text: str) -> str:
    return text if text.startswith("does not") else f"is not safe: {text}"
