from __future__ import annotations

import pytest

from raceway.broker.peers import PeerTable
from raceway.errors import UnknownPeerError
from tests.rigs.doubles import EPOCH_US, ExactPeer, RecordingPeer


def test_peers_are_listed_in_order_of_connection() -> None:
    table = PeerTable()
    peers = [RecordingPeer(name) for name in ("c", "a", "b")]
    for peer in peers:
        table.add(peer)
    assert list(table) == peers
    assert len(table) == 3


def test_a_peer_is_found_by_its_id_until_it_is_removed() -> None:
    table, peer = PeerTable(), RecordingPeer("x")
    table.add(peer)
    assert table.get("x") is peer
    assert table.remove(peer)
    assert not table.remove(peer)
    with pytest.raises(UnknownPeerError, match="Service x not found"):
        table.get("x")


def test_a_new_peer_has_no_name_and_is_its_own_producer() -> None:
    peer = ExactPeer("id")
    row = peer.row()
    assert (row.id, row.name, row.description, row.wire) == ("id", "", "", "zbus")
    assert (row.connected_us, row.heard_us) == (EPOCH_US, EPOCH_US)
    assert peer.producer == b"id"
    assert peer.open
