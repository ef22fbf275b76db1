"""Which node should own the lane: the one that a consumer group assigns its partition to.

The group only says who *should*; claims alone decide who may. So a node that the group has lost sight of goes on until
it finds a claim of another, or the group gives the lane to somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from raceway.journal.kafka.client import lanes_topic
from raceway.journal.log import log
from raceway.kafka.brokers import KafkaCluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_POLL_S = 0.2
# Longest wait for the coordinator when a node leaves the group.
_CLOSE_S = 10.0


class Ownership:
    """Member of a cluster's group, which others see as `member`. Callbacks run in its own thread.

    `should(True)`: this node should own the lane; `should(False)`: another one should, which waits until `release` is
    called, or `release_s` have passed. `suspect`: the group has lost sight of this node, and another may own the lane.
    """

    def __init__(
        self,
        brokers: KafkaCluster,
        name: str,
        member: str,
        session_timeout_s: float,
        release_s: float,
        should: Callable[[bool], None],
        suspect: Callable[[], None],
    ) -> None:
        self._topic, self._should, self._suspect, self._release_s = lanes_topic(name), should, suspect, release_s
        self._is_ours = False
        self._released, self._stopping = threading.Event(), threading.Event()
        self._consumer: Consumer = brokers.consumer(
            group_id=name, client_id=member, enable_auto_commit=False, auto_offset_reset="latest",
            partition_assignment_strategy="cooperative-sticky", session_timeout_ms=int(session_timeout_s * 1000),
            heartbeat_interval_ms=int(session_timeout_s * 1000 / 3), max_poll_interval_ms=300_000,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="raceway-ownership", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def release(self) -> None:
        """Say that this node does not use the lane any more."""
        self._released.set()

    def take(self) -> None:
        """Say that this node uses the lane from now on."""
        self._released.clear()

    def close(self) -> None:
        """Leave the group, which gives the lane to another node at once. Blocks."""
        self._released.set()
        self._stopping.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        self._released.set()
        self._consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._stopping.is_set():
            try:
                # Partitions are paused, so there are no records; errors mend themselves or are told by the journal.
                self._consumer.poll(_POLL_S)
            except Exception as error:  # noqa: BLE001  # otherwise the thread would end unnoticed
                log().warning("polling the cluster's group failed", reason=str(error))
                self._stopping.wait(_POLL_S)
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
            self._is_ours = True
            self._should(True)
        elif (
            self._is_ours and not consumer.assignment()
        ):  # assigned to another node while the group had lost sight of this one
            self._give_up()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and self._is_ours:
            self._give_up()
        consumer.incremental_unassign(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        log().warning("node removed from the cluster's group")
        consumer.incremental_unassign(partitions)
        if partitions:
            self._suspect()

    def _give_up(self) -> None:
        self._is_ours = False
        self._should(False)
        # The next owner is assigned when this returns; what it claims before makes void what is not flushed yet.
        self._released.wait(self._release_s)
