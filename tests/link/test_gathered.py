"""Frames that grow: what they become."""

from __future__ import annotations

from raceway.link.codec.bodies import DECODERS
from raceway.link.codec.frames import FrameType
from raceway.link.gathered import GatheredCopies, GatheredEntries
from raceway.model.envelope import Batch


def test_copies_name_their_peers() -> None:
    gathered = GatheredCopies(b"run")
    gathered.peers += [3, 4]
    kind, body = gathered.frame()
    assert kind is FrameType.COPIES
    assert (DECODERS[kind](body).peers, DECODERS[kind](body).run) == ([3, 4], b"run")


def test_entries_are_the_rows_that_were_added() -> None:
    gathered = GatheredEntries((3, "q", b"t", False), Batch(3, payload=[b"0", b"1", b"2"]))
    gathered.add(2, 7, None)
    gathered.add(0, 9, None)
    kind, body = gathered.frame()
    told = DECODERS[kind](body)
    assert (told.peer, told.queue, told.ticket, told.offsets, told.requests) == (3, "q", b"t", [7, 9], None)
    assert told.batch.payload == [b"2", b"0"]


def test_copies_of_a_queue_have_no_offsets() -> None:
    gathered = GatheredEntries((3, "q", b"t", True), Batch(1, payload=[b"0"]))
    gathered.add(0, None, None)
    kind, body = gathered.frame()
    assert DECODERS[kind](body).offsets is None
