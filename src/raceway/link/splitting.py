"""Which lanes perform which part of an intent: those of its topics and queues, or of the request that it answers."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from raceway.errors import LanesError
from raceway.link.codec.bodies import RequestBody
from raceway.model.envelope import Batch
from raceway.model.intents.administration import PeekQueue, PurgeQueue, RecordChange, RemoveQueue
from raceway.model.intents.batches import AskAll, Intent, Park, Publish, Request, Respond
from raceway.model.intents.credentials import Authorize
from raceway.model.intents.peers import Audit, DisconnectPeer, ListPeers, ListSubscriptions, ListTopics
from raceway.model.intents.queues import Arm, ConfirmDeliveries, CreateQueue, Enqueue, EnqueueRequests
from raceway.model.lanes import LaneTable

# Requests whose lanes are remembered, also after their answers: late ones are stored there. About 15 MB when full.
KEPT_REQUESTS = 100_000
# Intents that any lane can perform, because all know the same peers and subscriptions.
ANYWHERE = (Audit, Authorize, DisconnectPeer, ListPeers, ListSubscriptions, ListTopics, RecordChange)
# Intents with a batch whose rows may belong to several lanes.
ByRow = Publish | Request | AskAll | Respond | Enqueue | EnqueueRequests


class LanePart(NamedTuple):
    """Part of an intent for one lane. `rows`: which rows of a batch it has; none if it has all."""

    lane: int
    intent: Intent
    rows: list[int]


class Splitter:
    """Splits intents by the lanes of `table`."""

    def __init__(self, table: LaneTable) -> None:
        self._lane_of = table.lane_of
        # Lanes of requests: by masked ids, or by reply queue and id if they go through queues.
        self._asked: OrderedDict[bytes | tuple[bytes, bytes], int] = OrderedDict()

    def note_forwarded(self, lane: int, requests: Iterable[RequestBody]) -> None:
        """Note which lane forwards these requests to peers."""
        for request in requests:
            self._note(request.name or request.forwarded_id, lane)

    def _note(self, request: bytes | tuple[bytes, bytes], lane: int) -> None:
        self._asked[request] = lane
        if len(self._asked) > KEPT_REQUESTS:
            self._asked.popitem(last=False)

    def parts(self, intent: Intent, other: int) -> list[LanePart]:
        """Return who performs what. `other`: the lane of what any lane can do, or refuse.

        Raises LanesError for what cannot be split, or is not known here.
        """
        match intent:
            case Publish() | Request() | AskAll() | Respond() | Enqueue() | EnqueueRequests():
                return self._by_row(intent, self._lanes_of_rows(intent, other))
            case CreateQueue() | PeekQueue() | PurgeQueue() | RemoveQueue():
                return [LanePart(self._lane_of(intent.name.encode()), intent, [])]
            case Park():
                return [LanePart(self._lane_of(intent.batch.item("topic", intent.row) or b""), intent, [])]
            case Arm():
                return [LanePart(self._lane_of_named(intent.queue, intent.ticket), intent, [])]
            case ConfirmDeliveries():
                return self._confirmed(intent) or [LanePart(other, intent, [])]
        if isinstance(intent, ANYWHERE):
            return [LanePart(other, intent, [])]
        raise LanesError(name_of(intent))

    # ---- batches -----------------------------------------------------------------------------------------------------

    def _by_row(self, intent: ByRow, lanes: Sequence[int]) -> list[LanePart]:
        if len(set(lanes)) == 1:  # of almost every batch
            return [LanePart(lanes[0], intent, [])]
        if isinstance(intent, Publish) and intent.whole:
            raise LanesError("publish of all rows or none, to several lanes")
        rows_of: defaultdict[int, list[int]] = defaultdict(list)
        for row, lane in enumerate(lanes):
            rows_of[lane].append(row)
        return [LanePart(lane, _kept(intent, rows), rows) for lane, rows in rows_of.items()]

    def _lanes_of_rows(self, intent: ByRow, other: int) -> list[int]:
        """Return the lane of each row, or one if it is that of all."""
        batch = intent.batch
        match intent:
            case Respond():
                return [self._lane_of_answer(batch, row, other) for row in range(batch.count)]
            case Enqueue() if self._asked:
                return [self._lane_of_named(*name) for name in _names(batch, "topic")]
            case EnqueueRequests():
                lanes = [self._lane_of(name) for name in batch.column("topic")]
                for name, lane in zip(_names(batch, "reply_to"), lanes, strict=True):
                    self._note(name, lane)
                return lanes
        return [self._lane_of(name) for name in (batch.topic if type(batch.topic) is list else (batch.topic,))]  # type: ignore[arg-type]  # every row has one

    def _lane_of_answer(self, batch: Batch, row: int, other: int) -> int:
        """Return the lane that has forwarded the request; of an unknown one any, which refuses the answer."""
        for name in (batch.item("message_id", row), batch.item("parent_id", row)):
            lane = None if name is None else self._asked.get(name.lower())
            if lane is not None:
                return lane
        return other

    def _lane_of_named(self, queue: bytes, message_id: bytes) -> int:
        """Return the lane of a message in a queue. Those in a reply queue are in the lane of their request."""
        lane = self._asked.get((queue, message_id))
        return self._lane_of(queue) if lane is None else lane

    # ---- queues ------------------------------------------------------------------------------------------------------

    def _confirmed(self, intent: ConfirmDeliveries) -> list[LanePart]:
        of_lane: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        for delivery in intent.deliveries:
            of_lane[self._lane_of(delivery[0].encode())].append(delivery)
        return [LanePart(lane, ConfirmDeliveries(deliveries), []) for lane, deliveries in of_lane.items()]


def name_of(intent: Intent) -> str:
    """Return what an intent does, in words."""
    return re.sub(r"\B(?=[A-Z])", " ", type(intent).__name__).lower()


def _names(batch: Batch, queue: str) -> Iterable[tuple[bytes, bytes]]:
    """Return the queue in this column and the id, row by row."""
    return zip(batch.column(queue), batch.column("message_id"), strict=True)


def _kept(intent: ByRow, rows: list[int]) -> ByRow:
    """Return an intent with these rows of its batch."""
    facts = {name: getattr(intent, name) for name in ("tokens", "errors") if hasattr(intent, name)}
    facts = {name: [column[row] for row in rows] if type(column) is list else column for name, column in facts.items()}
    return replace(intent, batch=intent.batch.keep(rows), **facts)
