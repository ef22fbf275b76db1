"""The cluster that a URL names, `kafka://HOST:PORT,HOST:PORT/NAME`: make it, check it, open its lane."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from raceway import __version__, config
from raceway.chance import random_bytes
from raceway.cluster.topics import check_topics, create_topics, refuse_losses
from raceway.errors import ClusterError, ConfigError, FormatVersionError
from raceway.journal import wall_clock_us
from raceway.journal.contract import Post
from raceway.journal.identity import Identity, new_identity
from raceway.journal.kafka.client import KafkaLane, lanes_topic
from raceway.journal.kafka.journal import KafkaJournal
from raceway.journal.kafka.records import Claimant
from raceway.kafka.brokers import KAFKA_S, KafkaCluster, read_properties

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import TopicMetadata

FORMAT = 1
# The key of the cluster's own record, in the first partition of its values.
KEY = "cluster"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of a cluster, written once. `marker` begins its blocks, `source` names its journal to readers."""

    format: int
    name: str
    lanes: int
    marker: str
    source: str


class ClusterPlace:
    """A cluster by its URL. Nothing is asked before a method is called."""

    def __init__(self, settings: config.ClusterSettings, timeout_s: float = KAFKA_S) -> None:
        """Raises ConfigError for a URL or a file of properties that is not one, BrokersError without Kafka's client."""
        self.settings = settings
        brokers, self.name = split_url(settings.url)
        properties = read_properties(Path(settings.kafka_config)) if settings.kafka_config else {}
        self.brokers = KafkaCluster(brokers, properties, timeout_s)

    @property
    def url(self) -> str:
        return self.settings.url

    def lane(self, number: int = 0) -> KafkaLane:
        """Return a lane, which the caller closes."""
        return KafkaLane(
            self.brokers, self.name, number, record_bytes=self.settings.record_bytes,
            commit_timeout_s=self.settings.commit_timeout_s,
        )  # fmt: skip

    def init(self, lanes: int, replicas: int) -> ClusterRecord:
        """Make the cluster. Raises ClusterError, UnreachableError."""
        if lanes != 1:
            raise ClusterError(
                f"this release supports one lane, not {lanes}: give --lanes 1 (one node serves, others wait)"
            )
        self.brokers.metadata()  # says first that no broker is there
        identity = new_identity()
        record = ClusterRecord(
            format=FORMAT, name=self.name, lanes=lanes, marker=identity.marker, source=identity.source
        )
        create_topics(self.brokers, self.name, lanes, replicas)
        lane = self.lane()
        try:
            lane.put(KEY, msgspec.json.encode(record))
        finally:
            lane.close()
        return record

    def record(self) -> ClusterRecord:
        """Return the cluster's own record. Raises ClusterError, FormatVersionError, UnreachableError."""
        topics = self.brokers.metadata().topics or {}
        if lanes_topic(self.name) not in topics:
            raise ClusterError(self._not_there(sorted(topics)))
        return self._record_of(topics)

    def maybe_record(self) -> ClusterRecord | None:
        """Return the cluster's own record; None if there is no such cluster. Raises as `record` does."""
        topics = self.brokers.metadata().topics or {}
        return self._record_of(topics) if lanes_topic(self.name) in topics else None

    def _record_of(self, topics: Mapping[str, TopicMetadata]) -> ClusterRecord:
        topic = lanes_topic(self.name)
        lane = self.lane()
        try:
            value = lane.values().get(KEY)
        finally:
            lane.close()
        if value is None:
            raise ClusterError(
                f"{self.url} has the topics of a cluster, but not its record: `raceway cluster init` was interrupted; "
                f"remove the topics {self.name}.lanes and {self.name}.state, and run it again"
            )
        record = _decoded(value, self.url)
        if record.lanes != len(topics[topic].partitions):
            raise ClusterError(
                f"{self.url} has {record.lanes} lanes, but {topic} has {len(topics[topic].partitions)} partitions: "
                "the number of lanes never changes, so this topic cannot be used; restore it"
            )
        if record.lanes != 1:
            raise ClusterError(f"{self.url} has {record.lanes} lanes, and this release serves one: use a newer raceway")
        return record

    def check(self) -> ClusterRecord:
        """Return the record, if the cluster can be served. Raises ClusterError for settings that could lose data."""
        record = self.record()
        refuse_losses(check_topics(self.brokers, self.name, self.settings.record_bytes))
        return record

    def claimant(self, console: str) -> Claimant:
        """Return who this node is, with the URL of its console."""
        return Claimant(
            node=self.settings.advertise or socket.gethostname(), address=console, incarnation=random_bytes(8).hex(),
            version=__version__, time_us=wall_clock_us(),
        )  # fmt: skip

    def open_journal(
        self,
        record: ClusterRecord,
        journal: config.JournalSettings,
        claimant: Claimant,
        post: Post,
        owner: int,
        clock: Callable[[], int] = wall_clock_us,
    ) -> KafkaJournal:
        """Claim the lane and open its journal; in any thread. Raises UnavailableError, FormatVersionError."""
        lane = self.lane()
        identity = Identity(FORMAT, record.marker, record.source)
        try:
            return KafkaJournal(journal, self.settings, lane, identity, claimant, post, clock, owner=owner)
        except BaseException:
            lane.close()
            raise

    def _not_there(self, topics: list[str]) -> str:
        others = sorted(topic.removesuffix(".lanes") for topic in topics if topic.endswith(".lanes"))
        known = f"there are {', '.join(others)}" if others else "there is none"
        return (
            f"no cluster is called {self.name!r} at {self.brokers.url} ({known}): correct the name, or make it with "
            f"`raceway cluster init {self.url} --lanes 1`"
        )


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the brokers, and the name of the cluster. Raises ConfigError."""
    brokers, _, name = url.rpartition("/")
    if not url.startswith("kafka://") or brokers in ("kafka:/", "kafka:", "kafka://"):
        raise ConfigError("cluster.url", f"{url!r} must have the form kafka://HOST:PORT,HOST:PORT/NAME")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "cluster.url",
            f"{url!r} must end with the name of a cluster: letters, digits, '.', '_' and '-', at most 100",
        )
    return brokers, name


def _decoded(value: bytes, url: str) -> ClusterRecord:
    try:
        version = msgspec.json.decode(value, type=dict[str, object]).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise FormatVersionError(f"the cluster {url}", version, FORMAT)
        return msgspec.json.decode(value, type=ClusterRecord)
    except msgspec.DecodeError as error:
        raise ClusterError(
            f"the record of the cluster {url} cannot be read: {error}; has another program written to its topic?"
        ) from error
