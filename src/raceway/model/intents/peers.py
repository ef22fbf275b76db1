"""Intents about the peer itself and about what peers see of each other, and their outcomes."""

from __future__ import annotations

from typing import Literal

from raceway.model.intents.kinds import Done, IntentFor, Outcome

SubscriptionKind = Literal["publish", "request"]
# The kinds that `all` stands for.
SUBSCRIPTION_KINDS: tuple[SubscriptionKind, ...] = ("publish", "request")


class PeerRow(Outcome, frozen=True):
    """A connected peer."""

    id: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    wire: str


class Peers(Outcome, frozen=True):
    """The outcome of `ListPeers`."""

    rows: tuple[PeerRow, ...]


class SubscriptionRow(Outcome, frozen=True):
    """A subscription of one peer."""

    kind: SubscriptionKind
    pattern: str
    priority: float


class SubscriptionList(Outcome, frozen=True):
    """The outcome of `ListSubscriptions`, sorted by pattern, then kind."""

    rows: tuple[SubscriptionRow, ...]


class SubscriberRow(Outcome, frozen=True):
    """A subscriber of a pattern."""

    peer: str
    priority: float


class PatternRow(Outcome, frozen=True):
    """A subscribed pattern with its subscribers."""

    kind: SubscriptionKind
    pattern: str
    subscribers: tuple[SubscriberRow, ...]


class Patterns(Outcome, frozen=True):
    """The outcome of `ListTopics`, sorted by pattern, then kind; responders with the highest priority first."""

    rows: tuple[PatternRow, ...]


class Metric(Outcome, frozen=True):
    """The value of one metric."""

    name: str
    type: str
    value: float
    parameters: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


class Metrics(Outcome, frozen=True):
    """The outcome of `ReadMetrics`."""

    time_us: int
    rows: tuple[Metric, ...]


class Heartbeat(IntentFor[Done], frozen=True):
    """Report that the peer is alive."""


class Register(IntentFor[Done], frozen=True):
    """Set the name and the description of the peer. May be repeated."""

    name: str
    description: str


class Subscribe(IntentFor[Done], frozen=True):
    """Subscribe to publishes, to requests to answer, or to both. A repeat replaces the priority."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str
    priority: float = 0


class Unsubscribe(IntentFor[Done], frozen=True):
    """End the subscriptions of this kind, or of both, with exactly this pattern."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str


class WatchLog(IntentFor[Done], frozen=True):
    """Subscribe to log records of these levels whose message matches `regex`. Replaces an earlier filter."""

    levels: tuple[str, ...]
    regex: str | None = None


class UnwatchLog(IntentFor[Done], frozen=True):
    """End the subscription to log records."""


class Audit(IntentFor[Done], frozen=True):
    """Send a record to all subscribers of the audit stream."""

    record: bytes


class DisconnectPeer(IntentFor[Done], frozen=True):
    """Close the connection of a peer. Needs `ManageBroker`. It may connect again."""

    peer: str


class ListPeers(IntentFor[Peers], frozen=True):
    """List the connected peers."""


class ListSubscriptions(IntentFor[SubscriptionList], frozen=True):
    """List the subscriptions of a peer (None: of the caller)."""

    peer: str | None = None


class ListTopics(IntentFor[Patterns], frozen=True):
    """List the subscribed patterns and their subscribers."""


class ReadMetrics(IntentFor[Metrics], frozen=True):
    """Read metrics; `parameters` selects those that have parameters with these values."""

    parameters: dict[str, str] | None = None


PeerIntent = (
    Heartbeat | Register | Subscribe | Unsubscribe | WatchLog | UnwatchLog | Audit | DisconnectPeer | ListPeers
    | ListSubscriptions | ListTopics | ReadMetrics
)  # fmt: skip
PeerOutcome = Done | Peers | SubscriptionList | Patterns | Metrics
