"""Cache of rows for subscriptions: the newest from memory, all others from the journal.

Subscriptions keep offsets, never rows. Rows are found here in *pieces*: batches of rows of one topic with dense
offsets. Committed rows are added as pieces if a subscription reads them; other rows are read from the journal in small
pieces, which are kept for the next rows. All pieces together are bounded, whatever the number of topics; the least
recently used one is evicted first. So a consumer far behind costs no more memory than one at the tail.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from raceway.broker.queues.queue import batch_of
from raceway.broker.topics import Topic
from raceway.errors import TrimmedError
from raceway.journal.contract import Journal
from raceway.model.envelope import Batch

# One read from the journal: small, because other connections wait meanwhile.
READ_ROWS, READ_BYTES = 1000, 1024 * 1024
# Estimated memory of a piece and of a row besides the payload.
PIECE_BYTES, ROW_BYTES = 2048, 200


class RowRange(NamedTuple):
    """Rows with consecutive offsets from `first` to before `stop`."""

    first: int
    stop: int
    batch: Batch
    size: int


class RecentRows:
    def __init__(self, journal: Journal, max_bytes: int) -> None:
        self._journal = journal
        self._max_bytes = max_bytes
        self.bytes = 0
        self._pieces: OrderedDict[tuple[Topic, int], RowRange] = OrderedDict()
        self._firsts: dict[Topic, list[int]] = {}

    def add(self, topic: Topic, batch: Batch, first: int) -> RowRange:
        """Add a batch of rows of this topic with consecutive offsets from `first` on."""
        payloads = batch.payload
        assert type(payloads) is list
        size = sum(map(len, payloads)) + PIECE_BYTES + ROW_BYTES * batch.count  # type: ignore[arg-type]  # every row has one
        piece = RowRange(first, first + batch.count, batch, size)
        known = self._pieces.get((topic, first))
        if known is not None:
            self._drop(topic, known)
        self._pieces[topic, first] = piece
        insort(self._firsts.setdefault(topic, []), first)
        self.bytes += size
        while self.bytes > self._max_bytes and len(self._pieces) > 1:
            (oldest, _), gone = next(iter(self._pieces.items()))
            self._drop(oldest, gone)
        return piece

    def find(self, topic: Topic, offset: int) -> RowRange | None:
        """Return the piece with this committed row, from memory or from the journal.

        None if the row was removed by retention or is damaged; `first_from` returns the next one.
        """
        piece = self._maybe_kept(topic, offset)
        if piece is None:
            self._read_back(topic, offset)
            piece = self._maybe_kept(topic, offset)
        return piece

    def first_from(self, topic: Topic, offset: int, end: int) -> int:
        """Return the first remaining offset from here on, at most `end`. Its row may be damaged."""
        try:
            found = list(self._journal.read_topic(topic.name, offset, 1, columns=("offset",)))
        except TrimmedError as error:
            return min(error.first, end)
        return min((rows.column("offset")[0].as_py() for rows in found if rows.num_rows), default=end)

    def forget(self, topic: Topic, offset: int = 0) -> None:
        """Drop the pieces of a topic with rows from this offset on."""
        for first in list(self._firsts.get(topic, ())):
            piece = self._pieces[topic, first]
            if piece.stop > offset:
                self._drop(topic, piece)

    def _maybe_kept(self, topic: Topic, offset: int) -> RowRange | None:
        firsts = self._firsts.get(topic, ())
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
        if found:  # an idle bus writes a block per row: join them into one piece
            rows = found[0] if len(found) == 1 else pa.concat_batches(found)
            self._add_dense(topic, batch_of(rows), rows.column("offset").to_pylist())

    def _add_dense(self, topic: Topic, batch: Batch, offsets: Sequence[int]) -> None:
        """Add rows as pieces, split where offsets are missing."""
        if offsets[-1] - offsets[0] + 1 == batch.count:
            self.add(topic, batch, offsets[0])
            return
        borders = [at for at in range(1, batch.count) if offsets[at] != offsets[at - 1] + 1]
        # The first piece last: it is needed now and must not be evicted by the others.
        for begin, stop in reversed(list(zip([0, *borders], [*borders, batch.count], strict=True))):
            self.add(topic, batch.keep(list(range(begin, stop))), offsets[begin])

    def _drop(self, topic: Topic, piece: RowRange) -> None:
        del self._pieces[topic, piece.first]
        firsts = self._firsts[topic]
        firsts.remove(piece.first)
        if not firsts:
            del self._firsts[topic]
        self.bytes -= piece.size
