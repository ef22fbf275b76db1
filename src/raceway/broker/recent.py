"""Rows that subscriptions are about to hand out: the newest from memory, all others from the journal.

Subscriptions keep offsets, never rows. A row is looked for here: in a *piece*, a batch of rows of one topic with dense
offsets. Committed rows come in as pieces if somebody is there to read them; what is not here is read from the journal
in small pieces, which stay for the next rows. All pieces together are bounded, whatever the number of topics; the one
not used for the longest time goes first. So a consumer far behind costs no more memory than one at the tail.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from raceway.broker.queues import batch_of
from raceway.broker.topics import Topic
from raceway.errors import TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import Batch

# One read from the journal: small, because other connections wait meanwhile.
READ_ROWS, READ_BYTES = 1000, 1024 * 1024
# What a piece costs beside its payloads: columns, entries.
PIECE_BYTES, ROW_BYTES = 2048, 200


class Piece(NamedTuple):
    """Rows with offsets from `first` on, one after the other; `stop` is behind the last."""

    first: int
    stop: int
    batch: Batch
    size: int


class RecentRows:
    def __init__(self, journal: Journal, max_bytes: int) -> None:
        self._journal = journal
        self._max_bytes = max_bytes
        self._bytes = 0
        self._pieces: OrderedDict[tuple[Topic, int], Piece] = OrderedDict()
        self._firsts: dict[Topic, list[int]] = {}

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, topic: Topic, batch: Batch, first: int) -> Piece:
        """A batch whose rows are all of this topic, their offsets dense from `first` on."""
        payloads = batch.payload
        assert type(payloads) is list
        size = sum(map(len, payloads)) + PIECE_BYTES + ROW_BYTES * batch.count  # type: ignore[arg-type]  # every row has one
        piece = Piece(first, first + batch.count, batch, size)
        known = self._pieces.get((topic, first))
        if known is not None:
            self._drop(topic, known)
        self._pieces[topic, first] = piece
        insort(self._firsts.setdefault(topic, []), first)
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._pieces) > 1:
            (oldest, _), gone = next(iter(self._pieces.items()))
            self._drop(oldest, gone)
        return piece

    def find(self, topic: Topic, offset: int) -> Piece | None:
        """The piece that holds this committed row, from memory or from the journal.

        None if the row is no more: retention removed it, or damage took it. `first_from` says what comes behind it.
        """
        piece = self._maybe_kept(topic, offset)
        if piece is None:
            self._read_back(topic, offset)
            piece = self._maybe_kept(topic, offset)
        return piece

    def first_from(self, topic: Topic, offset: int, end: int) -> int:
        """The first offset from here on that is left; `end` if there is none before it. Its row may be damaged."""
        try:
            found = list(self._journal.read_topic(topic.name, offset, 1, columns=("offset",)))
        except TrimmedError as error:
            return min(error.first, end)
        return min((rows.column("offset")[0].as_py() for rows in found if rows.num_rows), default=end)

    def forget(self, topic: Topic, offset: int = 0) -> None:
        """Rows of the topic from this offset on are not there any more, or nobody wants them."""
        for first in list(self._firsts.get(topic, ())):
            piece = self._pieces[topic, first]
            if piece.stop > offset:
                self._drop(topic, piece)

    def _maybe_kept(self, topic: Topic, offset: int) -> Piece | None:
        firsts = self._firsts.get(topic)
        if firsts is None:
            return None
        at = bisect_right(firsts, offset) - 1
        if at < 0:
            return None
        key = (topic, firsts[at])
        piece = self._pieces[key]
        if offset >= piece.stop:
            return None
        self._pieces.move_to_end(key)
        return piece

    def _read_back(self, topic: Topic, offset: int) -> None:
        try:
            found = [rows for rows in self._journal.read_topic(topic.name, offset, READ_ROWS, READ_BYTES) if len(rows)]
        except TrimmedError:
            return
        if found:  # a quiet bus has a block for every row: one piece for all of them
            rows = found[0] if len(found) == 1 else pa.concat_batches(found)
            self._add_dense(topic, batch_of(rows), rows.column("offset").to_pylist())

    def _add_dense(self, topic: Topic, batch: Batch, offsets: Sequence[int]) -> None:
        """Where rows are missing between others, the pieces on both sides are apart."""
        if offsets[-1] - offsets[0] + 1 == batch.count:
            self.add(topic, batch, offsets[0])
            return
        borders = [at for at in range(1, batch.count) if offsets[at] != offsets[at - 1] + 1]
        # The first one last: it is wanted now, and must not make room for the others.
        for begin, stop in reversed(list(zip([0, *borders], [*borders, batch.count], strict=True))):
            self.add(topic, batch.keep(list(range(begin, stop))), offsets[begin])

    def _drop(self, topic: Topic, piece: Piece) -> None:
        del self._pieces[topic, piece.first]
        firsts = self._firsts[topic]
        firsts.remove(piece.first)
        if not firsts:
            del self._firsts[topic]
        self._bytes -= piece.size
