"""Connected peers and their subscriptions by pattern."""

from __future__ import annotations

from itertools import islice

import msgspec

from raceway.broker.peers import Peer
from raceway.broker.routing import patterns
from raceway.model.intents.peers import PatternRow


class PeerStatus(msgspec.Struct, frozen=True):
    """A connected peer. `subscriptions`: patterns, and open streams of subscriptions by name. `errors` are those of the
    current second; `catching_up`: reads from the journal. `address`: host and port of its end of the connection, empty
    for services that the bus calls. `aliases`: names under which it produces and consumes, the newest ones."""

    id: str
    wire: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    subscriptions: int
    errors: int
    catching_up: bool
    address: str
    aliases: tuple[str, ...]


class PeerView:
    def __init__(self, peers: dict[str, Peer]) -> None:
        self._peers = peers

    def __len__(self) -> int:
        return len(self._peers)

    def find(self, contains: str, limit: int) -> tuple[list[PeerStatus], int]:
        """Return peers with this text in name, id, wire or address, in order of connection, and their total number."""
        wanted = contains.casefold()
        found = [
            peer
            for peer in self._peers.values()
            if wanted in f"{peer.name}\n{peer.id}\n{peer.wire.decode()}\n{peer.address}\n{peer.aliases}".casefold()
        ]
        return [_status(peer) for peer in islice(found, limit)], len(found)

    def patterns(self) -> tuple[PatternRow, ...]:
        """Return subscribed patterns, sorted by pattern, then kind."""
        return patterns(self._peers.values())


def _status(peer: Peer) -> PeerStatus:
    row = peer.row()
    return PeerStatus(
        row.id, row.wire, row.name, row.description, row.connected_us, row.heard_us,
        len(peer.subscriptions) + peer.streams, peer.errors, peer.is_behind, peer.address, peer.aliases,
    )  # fmt: skip
