"""Search for a trace in the journal: from any id of one of its messages to all of its rows.

The journal has no index of ids: a search reads the id columns, and only them, newest rows first, until it meets the id;
further back until it meets the message the chain began with; then forward from there, collecting what belongs to it.
Each pass has a budget of rows. The topic of the message, or its time, saves most of the first pass: topics have an
index, and positions and times rise together, so a time is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.errors import TrimmedError
from raceway.journal.contract import SearchedRows
from raceway.journal.format import Batches
from raceway.journal.query.search import Read, has_id, joined, position_at
from raceway.model.traces import Trace, trace_of

# Rows read at once: takes a few milliseconds.
WINDOW = 32_768
# Limit of rows of one trace; more are a stream rather than a conversation.
MAX_ROWS = 10_000
# More bytes than there are: the window limits the rows, and their ids are short.
UNBOUNDED = 1 << 62
_IDS = ("message_id", "forwarded_id", "correlation_id")
_SEARCHED = ("sequence", "kind", *_IDS)
_SHOWN = (
    "sequence", "topic", "offset", "time_us", "wire", "kind", "message_id", "forwarded_id", "answers", "parent_id",
    "correlation_id", "timeout_ms", "producer", "attributes", "hops", "error",
)  # fmt: skip


class TraceSearch(msgspec.Struct, kw_only=True):
    """Scope of a search. `rows` is the budget of each pass; `progress` is called with the rows searched so far.

    `window` rows are read at once; a trace has at most `max_rows`.
    """

    read: Read
    read_topic: Callable[..., Batches]
    first: int
    end: int
    rows: int
    progress: Callable[[int], None] = lambda count: None
    window: int = WINDOW
    max_rows: int = MAX_ROWS
    searched: int = 0
    exhausted: bool = False

    def windows(self, begin: int, stop: int, *, backward: bool) -> Batches:
        """Yield the id columns of a range of rows, a window at a time, until the budget is spent."""
        # Each pass has its own budget, or a long first one would leave nothing for collecting the rows.
        places, allowed = range(begin, stop, self.window), self.searched + self.rows
        for at in reversed(places) if backward else places:
            if self.searched >= allowed:
                self.exhausted = True
                return
            found = [batch for batch, _ in joined(self.read(at, min(at + self.window, stop), _SEARCHED))]
            yield from reversed(found) if backward else found
            self._count(min(self.window, stop - at))

    def topic_windows(self, topic: str, end: int) -> Batches:
        """Yield the id columns of one topic's rows, newest first; `end` is the offset after the last one."""
        allowed = self.searched + self.rows
        for at in reversed(range(0, end, self.window)):
            if self.searched >= allowed:
                self.exhausted = True
                return
            count = min(self.window, end - at)
            try:
                found = list(self.read_topic(topic, at, count, columns=_SEARCHED, max_bytes=UNBOUNDED))
            except TrimmedError as error:
                # Retention has removed a part of the window: read what is left of it.
                count = max(at + count - error.first, 0)
                rest = self.read_topic(topic, error.first, count, columns=_SEARCHED, max_bytes=UNBOUNDED)
                found = list(rest) if count else []
            yield from reversed(found)
            self._count(count)

    def _count(self, rows: int) -> None:
        self.searched += rows
        self.progress(self.searched)


def search_of(journal: SearchedRows, rows: int) -> TraceSearch:
    """Return a search over all of a journal, within a budget of rows."""
    return TraceSearch(
        read=journal.read, read_topic=journal.read_topic, first=journal.first_position(), end=journal.committed + 1,
        rows=rows,
    )  # fmt: skip


def maybe_trace(
    search: TraceSearch,
    wanted: str,
    *,
    since_us: int | None = None,
    until_us: int | None = None,
    topic: tuple[str, int] | None = None,
) -> Trace | None:
    """Return the trace of a correlation id, or of any message's id; the newest one if an id was used again.

    `topic`: name and next offset of the topic that the message is known to be on. None if the id was not found.
    """
    begin = search.first if since_us is None else position_at(search.read, search.first, search.end, since_us)
    stop = search.end if until_us is None else position_at(search.read, search.first, search.end, until_us)
    looked = search.windows(begin, stop, backward=True) if topic is None else search.topic_windows(*topic)
    met = _maybe_met(looked, wanted)
    if met is None:
        return None
    position, root = met
    start = _root_position(search, root, begin, position)
    chosen = _gather(search, root, start, search.end)
    rows = [row for at in chosen[: search.max_rows] for row in _rows(search, at)]
    trace = trace_of(wanted, root, rows)
    trace.truncated = search.exhausted or len(chosen) > search.max_rows
    trace.searched_rows = search.searched
    return trace


def _maybe_met(newest_first: Batches, wanted: str) -> tuple[int, str] | None:
    """Return position and correlation id of the newest row that has the id; None if there is none."""
    for batch in newest_first:
        hits = pc.indices_nonzero(has_id(batch, _IDS, [wanted]))
        if len(hits):
            row = hits[-1].as_py()
            root = batch.column("correlation_id")[row].as_py()
            return batch.column("sequence")[row].as_py(), root or wanted
    return None


def _root_position(search: TraceSearch, root: str, begin: int, position: int) -> int:
    """Return where the chain began: the newest message with that id, not an answer, at or before a position."""
    earliest = position
    for batch in search.windows(begin, position + 1, backward=True):
        named = has_id(batch, ("message_id",), [root])
        # An answer may carry its request's id as its own; it does not begin a chain.
        begun = pc.and_(named, pc.not_equal(batch.column("kind"), pa.scalar("response")))
        hits = pc.indices_nonzero(begun)
        if len(hits):
            return batch.column("sequence")[hits[-1].as_py()].as_py()  # type: ignore[no-any-return]  # a number
        hits = pc.indices_nonzero(has_id(batch, ("correlation_id",), [root]))
        if len(hits):
            # The root itself may be removed or lost: then the oldest row of the chain that was met has to do.
            earliest = batch.column("sequence")[hits[0].as_py()].as_py()
    return earliest


def _gather(search: TraceSearch, root: str, begin: int, stop: int) -> list[int]:
    """Return the positions of the trace's rows.

    A chain that continues after a restart of the bus has for its root the id under which a message was forwarded
    earlier: so those ids count as roots too.
    """
    roots, chosen = {root}, []
    for batch in search.windows(begin, stop, backward=False):
        # Until no new root appears: a forwarded id may be the root of rows within the same batch.
        while True:
            mask = has_id(batch, ("correlation_id",), list(roots))
            handed = {each for each in batch.column("forwarded_id").filter(mask).to_pylist() if each} - roots
            if not handed or len(roots) > search.max_rows:
                break
            roots |= handed
        chosen += batch.column("sequence").filter(mask).to_pylist()
        if len(chosen) > search.max_rows:
            break
    return chosen


def _rows(search: TraceSearch, position: int) -> list[dict[str, Any]]:
    """Return the row at a position, with the columns that are shown."""
    return [
        row
        for batch in search.read(position, position + 1, _SHOWN)
        for row in batch.to_pylist(maps_as_pydicts="strict")
    ]
