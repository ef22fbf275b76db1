"""Intents, which peers ask of the bus, and outcomes, which the bus answers: the interface of codecs and broker.

Messages are columns: `Publish`, `Request` and `Respond` have a `Batch` of consecutive rows of one kind. Every other
intent is a small record. A codec decodes bytes into intents and encodes outcomes into bytes; the broker's one entry
point takes an intent and returns an outcome. Errors are outcomes too: a `RacewayError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from raceway.errors import RacewayError
from raceway.model.envelope import Batch

SubscriptionKind = Literal["publish", "request"]
# The kinds that `all` stands for.
SUBSCRIPTION_KINDS: tuple[SubscriptionKind, ...] = ("publish", "request")


class _IntentRecord(msgspec.Struct, frozen=True, gc=False):
    pass


# ---- messages, in batches -------------------------------------------------------------------------------------------


class Publish(msgspec.Struct, gc=False):
    """Deliver each row to every subscriber of its topic.

    `whole`: accept all rows or none; each row has a producer of its own.
    """

    batch: Batch
    whole: bool = False


class Request(msgspec.Struct, gc=False):
    """Forward each row to exactly one responder. Rows have `message_id`, optionally `timeout_ms` and `reply_to`.

    `waits`: a request to a queue without a consumer may wait in it. `askers`: the requesters, row by row, if one call
    is made for several peers; then all rows are of one topic.

    `responder`: the responder, if the requester's wire has chosen it by its own rule. `by_name`: the wire has applied
    its rule and found none, so responders that are subject to that rule are not considered.
    """

    batch: Batch
    waits: bool = False
    askers: Sequence[Any] | None = None
    responder: Any = None
    by_name: bool = False


class AskAll(msgspec.Struct, gc=False):
    """Forward one request (a batch of one row) to all its responders, `limit` at most. Other fields as in `Request`."""

    batch: Batch
    limit: int
    responder: Any = None
    by_name: bool = False


class Respond(msgspec.Struct, gc=False):
    """Answer forwarded requests, which are found by `message_id`, else by `parent_id`.

    `refusal`: the error because of which the responder never got the requests; the requester's wire reports it.
    """

    batch: Batch
    refusal: RacewayError | None = None


class Reply(msgspec.Struct, gc=False):
    """Answer the request that was delivered under `reply_to` and the row's `message_id`; a batch of one row."""

    reply_to: bytes
    batch: Batch


class Send(msgspec.Struct, gc=False):
    """Publish rows of registered producers. Producer ids and canonical topics are columns."""

    batch: Batch


class Acknowledge(msgspec.Struct, gc=False):
    """Acknowledge messages, each for one subscription of its topic. The lists are parallel."""

    topics: list[str]
    subscriptions: list[str]
    offsets: list[int]


class Return(msgspec.Struct, gc=False):
    """Return messages that could not be handled, to be delivered again after their delays. The lists are parallel."""

    topics: list[str]
    subscriptions: list[str]
    offsets: list[int]
    delays_ms: list[int | None]
    reasons: list[str | None]


class Park(msgspec.Struct, gc=False):
    """Store one row that `receiver` did not accept, with the reason, for a later redelivery."""

    batch: Batch
    row: int
    receiver: str
    reason: str


# ---- calls ----------------------------------------------------------------------------------------------------------


class Heartbeat(_IntentRecord, frozen=True):
    """Report that the peer is alive."""


class Register(_IntentRecord, frozen=True):
    """Set the name and the description of the peer. May be repeated."""

    name: str
    description: str


class Subscribe(_IntentRecord, frozen=True):
    """Subscribe to publishes, to requests to answer, or to both. A repeat replaces the priority."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str
    priority: float = 0


class Unsubscribe(_IntentRecord, frozen=True):
    """End the subscriptions of this kind, or of both, with exactly this pattern."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str


class WatchLog(_IntentRecord, frozen=True):
    """Subscribe to log records of these levels whose message matches `regex`. Replaces an earlier filter."""

    levels: tuple[str, ...]
    regex: str | None = None


class UnwatchLog(_IntentRecord, frozen=True):
    """End the subscription to log records."""


class Audit(_IntentRecord, frozen=True):
    """Send a record to all subscribers of the audit stream."""

    record: bytes


class ListPeers(_IntentRecord, frozen=True):
    """List the connected peers."""


class ListSubscriptions(_IntentRecord, frozen=True):
    """List the subscriptions of a peer (None: of the caller)."""

    peer: str | None = None


class ListTopics(_IntentRecord, frozen=True):
    """List the subscribed patterns and their subscribers."""


class ReadMetrics(_IntentRecord, frozen=True):
    """Read metrics; `parameters` selects those that have parameters with these values."""

    parameters: dict[str, str] | None = None


Call = (
    Heartbeat | Register | Subscribe | Unsubscribe | WatchLog | UnwatchLog | Audit | ListPeers | ListSubscriptions
    | ListTopics | ReadMetrics
)  # fmt: skip
Intent = Publish | Request | AskAll | Respond | Reply | Send | Acknowledge | Return | Park | Call


# ---- outcomes -------------------------------------------------------------------------------------------------------


class Taken(_IntentRecord, frozen=True):
    """The batch was accepted, except the `refused` rows: (start, stop, error). Rows without a route are stored too."""

    refused: tuple[tuple[int, int, RacewayError], ...] = ()


class Asked(_IntentRecord, frozen=True):
    """The request was forwarded to `count` responders; each answers or fails by itself."""

    count: int


class Sent(_IntentRecord, frozen=True):
    """The batch was accepted, except the `refused` rows: (start, stop, error).

    `early` rows, (start, stop), are on non-reliable topics: their senders may be answered now, all others when the rows
    are committed.
    """

    refused: tuple[tuple[int, int, RacewayError], ...] = ()
    early: tuple[tuple[int, int], ...] = ()


class Done(_IntentRecord, frozen=True):
    """Success. `changed` is False if the call was a no-op."""

    changed: bool = True


class PeerRow(_IntentRecord, frozen=True):
    """A connected peer."""

    id: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    wire: str = "mb"


class Peers(_IntentRecord, frozen=True):
    """The outcome of `ListPeers`."""

    rows: tuple[PeerRow, ...]


class SubscriptionRow(_IntentRecord, frozen=True):
    """A subscription of one peer."""

    kind: SubscriptionKind
    pattern: str
    priority: float


class SubscriptionList(_IntentRecord, frozen=True):
    """The outcome of `ListSubscriptions`, sorted by pattern, then kind."""

    rows: tuple[SubscriptionRow, ...]


class SubscriberRow(_IntentRecord, frozen=True):
    """A subscriber of a pattern."""

    peer: str
    priority: float


class PatternRow(_IntentRecord, frozen=True):
    """A subscribed pattern with its subscribers."""

    kind: SubscriptionKind
    pattern: str
    subscribers: tuple[SubscriberRow, ...]


class Patterns(_IntentRecord, frozen=True):
    """The outcome of `ListTopics`, sorted by pattern, then kind; responders with the highest priority first."""

    rows: tuple[PatternRow, ...]


class Metric(_IntentRecord, frozen=True):
    """The value of one metric."""

    name: str
    type: str
    value: float
    parameters: dict[str, str] = {}


class Metrics(_IntentRecord, frozen=True):
    """The outcome of `ReadMetrics`."""

    time_us: int
    rows: tuple[Metric, ...]


Outcome = Taken | Asked | Sent | Done | Peers | SubscriptionList | Patterns | Metrics
