"""Frames that grow while nothing else is sent: one run for several peers, rows of one batch for one consumer."""

from __future__ import annotations

from typing import Protocol

from raceway.link.codec.bodies import CopiesBody, EntriesBody, RequestBody
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import encode_body
from raceway.model.envelope import Batch


class Gathered(Protocol):
    """A frame that is not closed yet."""

    def frame(self) -> tuple[FrameType, bytes]:
        """Return its type and its body."""


class GatheredCopies:
    """Peers that get the same copies."""

    __slots__ = ("peers", "run")

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.peers: list[int] = []

    def frame(self) -> tuple[FrameType, bytes]:
        return FrameType.COPIES, encode_body(CopiesBody(self.peers, self.run))


class GatheredEntries:
    """Rows of one batch that a queue hands to one peer with one ticket: copies, or rows with offsets.

    `key`: the peer, the queue, the ticket, and whether they are copies.
    """

    __slots__ = ("_offsets", "_requests", "_rows", "batch", "key")

    def __init__(self, key: tuple[int, str, bytes, bool], batch: Batch) -> None:
        self.key, self.batch = key, batch
        self._rows: list[int] = []
        self._offsets: list[int] = []
        self._requests: list[RequestBody | None] = []

    def add(self, row: int, offset: int | None, request: RequestBody | None) -> None:
        """Add a row. `request`: its open request."""
        self._rows.append(row)
        self._requests.append(request)
        if offset is not None:
            self._offsets.append(offset)

    def frame(self) -> tuple[FrameType, bytes]:
        peer, queue, ticket, are_copies = self.key
        batch, requests = self.batch, self._requests
        if self._rows != list(range(batch.count)):
            batch = batch.keep(self._rows)
        told = requests if requests.count(None) < len(requests) else None
        offsets = None if are_copies else self._offsets
        return FrameType.ENTRIES, encode_body(EntriesBody(peer, queue, ticket, offsets, told, batch))
