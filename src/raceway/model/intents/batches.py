"""Intents that carry messages, in batches, and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raceway.errors import RacewayError
from raceway.model.envelope import Batch
from raceway.model.intents.kinds import Done, IntentFor, Outcome
from raceway.model.intents.queues import Enqueue, EnqueueRequests


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


class Taken(Outcome, frozen=True):
    """The batch was accepted, except the `refused` rows: (start, stop, error). Rows without a route are stored too."""

    refused: tuple[tuple[int, int, RacewayError], ...] = ()


class Asked(Outcome, frozen=True):
    """The request was forwarded to `count` responders; each answers or fails by itself."""

    count: int


class Sent(Outcome, frozen=True):
    """The batch was accepted, except the `refused` rows: (start, stop, error).

    `early` rows, (start, stop), are on non-reliable topics: their senders may be answered now, all others when the rows
    are committed.
    """

    refused: tuple[tuple[int, int, RacewayError], ...] = ()
    early: tuple[tuple[int, int], ...] = ()


BatchIntent = Publish | Request | AskAll | Respond | Send | Acknowledge | Return | Park | Enqueue | EnqueueRequests
BatchOutcome = Taken | Asked | Sent | Done
# What the broker's entry point takes.
Intent = BatchIntent | IntentFor[Any]
