"""Intents about subscriptions of a topic, their consumers and streams. Outcomes of changes come after the commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raceway.errors import RacewayError
from raceway.model.envelope import Batch
from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.subscriptions import ConsumerRow, ConsumerWanted, FailurePolicy


class Handover(NamedTuple):
    """Rows of one batch, in order, for one consumer."""

    topic: str
    subscription: bytes
    batch: Batch
    rows: Sequence[int]


class Sink(Protocol):
    """Destination of a live consumer's messages: the wire's end of its stream."""

    @property
    def wire(self) -> bytes:
        """Name of the wire."""

    @property
    def largest(self) -> int:
        """Size of the largest message that the wire can deliver."""

    def room(self) -> int:
        """Return how many bytes it accepts now. One message may exceed it."""

    def take(self, delivery: Handover) -> None: ...

    def end(self, error: RacewayError | None) -> None:
        """End the stream: replaced by a newer one (None), or the consumer was removed."""


class OpenedStream(Protocol):
    """The bus's end of a consumer's stream.

    `is_live`: of a subscription that is not reliable; nobody waits for its consumers.
    """

    is_live: bool

    def start(self, sink: Sink) -> None:
        """Deliver messages to this sink from now on. An older stream of the consumer ends."""

    def resume(self) -> None:
        """Continue delivering: the sink has room again."""

    def close(self, *, lost: bool = False) -> None:
        """Stop delivering. Idempotent. `lost`: the connection broke, so deliveries may not have arrived."""


class AttachConsumer(IntentFor[ConsumerRow], frozen=True):
    """Attach a consumer to a subscription, created if it is new."""

    wanted: ConsumerWanted


class FindConsumer(IntentFor[Done], frozen=True):
    """Look for a consumer. The outcome has `changed` False if there is none."""

    consumer_id: int


class OpenStream(IntentFor[OpenedStream], frozen=True):
    """Open the stream of a consumer. Needs `Consume` on its topic. Nothing is delivered before it is started."""

    consumer_id: int


class RemoveSubscription(IntentFor[Done], frozen=True):
    """Remove a subscription without live consumers, from all partitions of a topic."""

    topic: str
    name: str


class SetFailurePolicy(IntentFor[Done], frozen=True):
    """Set the failure policy of a subscription, also before it exists. None: the default of the bus."""

    topic: str
    name: str
    policy: FailurePolicy | None


class SetDispatch(IntentFor[Done], frozen=True):
    """Set how many messages of a subscription may be unacknowledged, and in flight per consumer (0: adaptive).

    None leaves a value as it is.
    """

    topic: str
    name: str
    max_unacked: int | None
    in_flight: int | None
