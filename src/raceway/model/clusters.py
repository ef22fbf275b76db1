"""Status of a cluster, as commands and the console show it."""

from __future__ import annotations

from typing import Literal

import msgspec

KafkaVerdict = Literal["ok", "warning", "bad"]


class LaneStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a lane. `node` is empty if nobody owns it; `epoch` is -1 if nobody did so far.

    `end` is the offset in Kafka that the next record gets; `behind_snapshot` counts the records that a new owner would
    have to replay.
    """

    lane: int
    node: str
    address: str
    version: str
    epoch: int
    since_us: int
    first_offset: int
    end: int
    behind_snapshot: int


class MemberStatus(msgspec.Struct, frozen=True):
    """A node in the cluster's group: the URL of its console, and the host from which Kafka knows it."""

    address: str
    host: str


class BrokerStatus(msgspec.Struct, frozen=True):
    """A broker that answers."""

    id: int
    address: str


class TopicVerdict(msgspec.Struct, frozen=True):
    """Finding about a Kafka topic, as text."""

    verdict: KafkaVerdict
    topic: str
    text: str


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a cluster. `nodes` counts the `members` of its group, the owner and standbys."""

    name: str
    url: str
    source: str
    lanes: list[LaneStatus]
    brokers: list[BrokerStatus]
    nodes: int
    members: list[MemberStatus]
    topics: list[TopicVerdict]

    @property
    def is_healthy(self) -> bool:
        return all(finding.verdict != "bad" for finding in self.topics)
