"""Connected peers and their subscriptions."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from raceway.broker.broker import Broker
from raceway.broker.peers import Peer
from raceway.broker.routing import patterns
from raceway.model.intents import SubscriptionKind
from raceway.web.routing import LOOKUP, Routes, get

PAGE = 1000


class PeerQuery(msgspec.Struct, frozen=True, kw_only=True):
    contains: Annotated[str, Meta(description="Only peers whose name, id or wire contains this text.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of peers.", ge=1, le=PAGE)] = PAGE


class PeerRow(msgspec.Struct, frozen=True):
    id: str
    wire: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    subscriptions: int
    errors: int
    catching_up: Annotated[bool, Meta(description="Whether it was too slow and is catching up from the journal.")]


class PeerPage(msgspec.Struct, frozen=True):
    """Peers in order of connection. `total` counts all that match."""

    peers: list[PeerRow]
    total: int


class SubscriberRow(msgspec.Struct, frozen=True):
    peer: str
    priority: float


class PatternRow(msgspec.Struct, frozen=True):
    kind: SubscriptionKind
    pattern: str
    subscribers: list[SubscriberRow]


class PatternQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of patterns.", ge=1, le=PAGE)] = PAGE


class PatternPage(msgspec.Struct, frozen=True):
    """Subscribed patterns. `total` counts all patterns."""

    subscriptions: list[PatternRow]
    total: int


class PeerRoutes(Routes):
    def __init__(self, broker: Broker) -> None:
        self._peers = broker.peers

    @get("/api/peers", LOOKUP, "bus")
    async def peers(self, query: PeerQuery) -> PeerPage:
        """Connected peers."""
        wanted = query.contains.casefold()
        found = [peer for peer in self._peers if wanted in f"{peer.name}\n{peer.id}\n{peer.wire.decode()}".casefold()]
        return PeerPage([_row(peer) for peer in islice(found, query.limit)], len(found))

    @get("/api/subscriptions", LOOKUP, "bus")
    async def subscriptions(self, query: PatternQuery) -> PatternPage:
        """Subscriptions of connected peers, by pattern."""
        found = list(patterns(self._peers))
        rows = [
            PatternRow(row.kind, row.pattern, [SubscriberRow(each.peer, each.priority) for each in row.subscribers])
            for row in found[: query.limit]
        ]
        return PatternPage(rows, len(found))


def _row(peer: Peer) -> PeerRow:
    row = peer.row()
    return PeerRow(
        row.id, row.wire, row.name, row.description, row.connected_us, row.heard_us,
        len(peer.subscriptions), peer.errors, peer.is_behind,
    )  # fmt: skip
