from __future__ import annotations

import pytest

from raceway.broker.peers import KEPT_ALIASES
from raceway.errors import UnknownPeerError
from raceway.model.intents.peers import ListSubscriptions
from tests.rigs.doubles import EPOCH_US, Bench, ExactPeer, RecordingPeer


def test_peers_are_listed_in_order_of_connection() -> None:
    broker = Bench().broker
    peers = [RecordingPeer(name) for name in ("c", "a", "b")]
    for peer in peers:
        broker.connect(peer)
    assert list(broker.peers.values()) == peers


def test_a_peer_is_found_by_its_id_until_it_is_removed() -> None:
    broker, peer, other = Bench().broker, RecordingPeer("x"), RecordingPeer("y")
    broker.connect(peer)
    assert broker.perform(other, ListSubscriptions("x")).rows == ()
    broker.disconnect(peer)
    broker.disconnect(peer)
    with pytest.raises(UnknownPeerError, match="Service x not found"):
        broker.perform(other, ListSubscriptions("x"))


def test_a_new_peer_has_no_name_and_is_its_own_producer() -> None:
    peer = ExactPeer("id")
    row = peer.row()
    assert (row.id, row.name, row.description, row.wire) == ("id", "", "", "zbus")
    assert (row.connected_us, row.heard_us) == (EPOCH_US, EPOCH_US)
    assert peer.producer == b"id"
    assert peer.open


def test_the_newest_names_of_producers_and_consumers_are_kept() -> None:
    peer = ExactPeer("id")
    for name in ("a", "b", "a", *(f"c{number}" for number in range(KEPT_ALIASES - 1))):
        peer.note_alias(name)
    assert peer.aliases == ("b", "c0", "c1", "c2", "c3")
    assert peer.name == "", "what other wires see stays"
