"""What a peer may ask of the bus, and what the bus may answer. The whole vocabulary between codecs and broker.

Messages travel as columns (`Publish`, `Request`, `Respond` each hold a `Batch` of rows of one kind that arrived in
sequence); everything else is one small record per call. A codec makes intents from bytes and bytes from outcomes; the
broker's one door takes an intent and gives an outcome. Errors are outcomes too: a `RacewayError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from raceway.errors import RacewayError
from raceway.model.envelope import Batch

SubscriptionKind = Literal["publish", "request"]
# What a peer may name at once.
SUBSCRIPTION_KINDS: tuple[SubscriptionKind, ...] = ("publish", "request")


class _Record(msgspec.Struct, frozen=True, gc=False):
    pass


# ---- messages, in batches -------------------------------------------------------------------------------------------


class Publish(msgspec.Struct, gc=False):
    """To every subscriber of each row's topic. `whole`: all rows or none, and each has its own producer."""

    batch: Batch
    whole: bool = False


class Request(msgspec.Struct, gc=False):
    """Each row to exactly one responder; rows carry `message_id` and perhaps `timeout_ms` and `reply_to`.

    `waits`: where there is a queue but nobody consumes from it, the request may wait in it. `askers`: who asks, row by
    row, where one call speaks for several peers; then all rows are of one topic.

    `responder`: who answers, if the requester's wire has found that out by its own rule. `by_name`: it has looked and
    found nobody, so that responders which are found by that rule are not asked.
    """

    batch: Batch
    waits: bool = False
    askers: Sequence[Any] | None = None
    responder: Any = None
    by_name: bool = False


class AskAll(msgspec.Struct, gc=False):
    """One request, a batch of one row, to everybody who would answer it, `limit` at most; the rest as in `Request`."""

    batch: Batch
    limit: int
    responder: Any = None
    by_name: bool = False


class Respond(msgspec.Struct, gc=False):
    """Answers to forwarded requests, matched by `message_id`, else by `parent_id`.

    `refusal`: the responder never got them, and this is why. The requester is told so by its own wire.
    """

    batch: Batch
    refusal: RacewayError | None = None


class Reply(msgspec.Struct, gc=False):
    """One answer, a batch of one row, to what was handed out under (`reply_to`, the row's `message_id`)."""

    reply_to: bytes
    batch: Batch


class Send(msgspec.Struct, gc=False):
    """Publishes of registered producers, whose ids and topics (canonical) are columns; each row to every subscriber."""

    batch: Batch


class Acknowledge(msgspec.Struct, gc=False):
    """These messages are done, each for one subscription of its topic."""

    topics: list[str]
    subscriptions: list[str]
    offsets: list[int]


class Return(msgspec.Struct, gc=False):
    """These messages could not be handled: deliver them again, each after its delay at the earliest."""

    topics: list[str]
    subscriptions: list[str]
    offsets: list[int]
    delays_ms: list[int | None]
    reasons: list[str | None]


# ---- calls ----------------------------------------------------------------------------------------------------------


class Heartbeat(_Record, frozen=True):
    """I am here."""


class Register(_Record, frozen=True):
    """My name and what I do. May be repeated."""

    name: str
    description: str


class Subscribe(_Record, frozen=True):
    """Send me what matches `pattern`: publishes, requests to answer, or both. A repeat replaces the priority."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str
    priority: float = 0


class Unsubscribe(_Record, frozen=True):
    """End the subscription, or both, that name exactly this pattern."""

    kind: SubscriptionKind | Literal["all"]
    pattern: str


class WatchLog(_Record, frozen=True):
    """Send me log records of these levels whose message the regular expression finds. Replaces the former filter."""

    levels: tuple[str, ...]
    regex: str | None = None


class UnwatchLog(_Record, frozen=True):
    """No more log records."""


class ListPeers(_Record, frozen=True):
    """Who is connected?"""


class ListSubscriptions(_Record, frozen=True):
    """What has this peer (None: I myself) subscribed to?"""

    peer: str | None = None


class ListTopics(_Record, frozen=True):
    """Which patterns are subscribed, and by whom?"""


class ReadMetrics(_Record, frozen=True):
    """Figures; `parameters` keeps only parameterised ones with these values."""

    parameters: dict[str, str] | None = None


Call = (
    Heartbeat | Register | Subscribe | Unsubscribe | WatchLog | UnwatchLog | ListPeers | ListSubscriptions | ListTopics
    | ReadMetrics
)  # fmt: skip
Intent = Publish | Request | AskAll | Respond | Reply | Send | Acknowledge | Return | Call


# ---- outcomes -------------------------------------------------------------------------------------------------------


class Taken(_Record, frozen=True):
    """The batch was taken, except for these rows: (start, stop, why). Rows without a route are stored all the same."""

    refused: tuple[tuple[int, int, RacewayError], ...] = ()


class Asked(_Record, frozen=True):
    """So many were asked; each answers or fails by itself."""

    count: int


class Sent(_Record, frozen=True):
    """The batch was taken, except for `refused` rows. `early` rows, (start, stop), are on topics that promise nothing:
    their senders may be answered now, all others when the rows are committed."""

    refused: tuple[tuple[int, int, RacewayError], ...] = ()
    early: tuple[tuple[int, int], ...] = ()


class Done(_Record, frozen=True):
    """It is so; `changed` is False when there was nothing to change."""

    changed: bool = True


class PeerRow(_Record, frozen=True):
    id: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    wire: str = "mb"


class Peers(_Record, frozen=True):
    rows: tuple[PeerRow, ...]


class SubscriptionRow(_Record, frozen=True):
    kind: SubscriptionKind
    pattern: str
    priority: float


class Subscriptions(_Record, frozen=True):
    """Sorted by pattern, then kind."""

    rows: tuple[SubscriptionRow, ...]


class SubscriberRow(_Record, frozen=True):
    peer: str
    priority: float


class PatternRow(_Record, frozen=True):
    kind: SubscriptionKind
    pattern: str
    subscribers: tuple[SubscriberRow, ...]


class Patterns(_Record, frozen=True):
    """Sorted by pattern, then kind; responders highest priority first."""

    rows: tuple[PatternRow, ...]


class Metric(_Record, frozen=True):
    name: str
    type: str
    value: float
    parameters: dict[str, str] = {}


class Metrics(_Record, frozen=True):
    time_us: int
    rows: tuple[Metric, ...]


Outcome = Taken | Asked | Sent | Done | Peers | Subscriptions | Patterns | Metrics
