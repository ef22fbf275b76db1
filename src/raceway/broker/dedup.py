"""Deduplication by the attribute `x-dedup-id`.

A second message of the same producer on the same topic with the same id is acknowledged but not stored, while the first
one is remembered: for a time window, among the last ids of that producer.

After a restart the ids are read back from the journal. To limit how much is read, the state keeps a few marks per
window for each topic that uses such ids: (time, offset) of a row that had one.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raceway.broker.bus import Bus
from raceway.broker.places import rows_of
from raceway.broker.runs import RowSpan, without
from raceway.broker.topics import Topic
from raceway.errors import AwayError, RacewayError, TrimmedError, UnavailableError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import Batch, decode_attributes

DEDUP_ID = "x-dedup-id"
MARKS = "dedup"
MARKS_PER_WINDOW = 10
_NAMED = f'"{DEDUP_ID}"'.encode()
_COLUMNS = ("offset", "time_us", "producer", "attributes")

Sender = tuple[str, bytes]


class Sifted(NamedTuple):
    """Result of `sift`: the new rows, whether there were repeats, and the ids added because of the new rows.

    `done` replaces the caller's: it fails a repeat whose first message could not be stored.
    """

    spans: list[RowSpan]
    done: OnCommit | None
    repeated: bool = False
    fresh: tuple[tuple[Sender, str], ...] = ()


class Deduplication:
    def __init__(self, bus: Bus) -> None:
        self._bus, settings = bus, bus.settings.subscriptions
        self._window_us, self._ids = round(settings.dedup_s * 1_000_000), settings.dedup_ids
        # Id to time by sender; senders and ids both in order of use.
        self._senders: OrderedDict[Sender, OrderedDict[str, int]] = OrderedDict()
        for name, marks in bus.journal.state.section(MARKS).items():
            self._restore(name, marks)

    def sift(self, batch: Batch, spans: list[RowSpan], done: OnCommit | None) -> Sifted:
        """Separate new rows from repeats, and remember the new ones. The batch must have its producers."""
        named = list(self._named_rows(batch, spans))
        if not named:
            return Sifted(spans, done)
        now_us = self._bus.clock_us()
        fresh: list[tuple[Sender, str]] = []
        repeated: dict[int, tuple[Sender, str]] = {}
        for topic, row, dedup_id in named:
            sender = (topic.name, batch.item("producer", row) or b"")
            if self._is_known(sender, dedup_id, now_us):
                repeated[row] = (sender, dedup_id)
            else:
                self._remember(sender, dedup_id, now_us)
                self._mark(topic, now_us)
                fresh.append((sender, dedup_id))
        self._bus.meter.counts["bus.deduplicated"] += len(repeated)

        def settled(error: RacewayError | None) -> None:
            if error is not None:
                self.forget(fresh)
            if done is not None:
                done(error or self._maybe_lost(list(repeated.values())))

        return Sifted(without(spans, repeated), settled, bool(repeated), tuple(fresh))

    def forget(self, ids: Iterable[tuple[Sender, str]]) -> None:
        """Forget ids whose messages could not be stored."""
        for sender, dedup_id in ids:
            self._senders.get(sender, OrderedDict()).pop(dedup_id, None)

    def _named_rows(self, batch: Batch, spans: list[RowSpan]) -> Iterator[tuple[Topic, int, str]]:
        if batch.attributes is None:
            return
        for topic, _, start, stop in spans:
            for row in range(start, stop):
                attributes = batch.item("attributes", row)
                if attributes is not None and _NAMED in attributes:
                    dedup_id = decode_attributes(attributes).get(DEDUP_ID)
                    if dedup_id:
                        yield topic, row, dedup_id

    def _maybe_lost(self, repeated: list[tuple[Sender, str]]) -> RacewayError | None:
        """Return an error if the first message of one of these repeats could not be stored."""
        for sender, dedup_id in repeated:
            if dedup_id not in self._senders.get(sender, ()):
                return UnavailableError("the message with this dedup id could not be stored")
        return None

    def _is_known(self, sender: Sender, dedup_id: str, now_us: int) -> bool:
        ids = self._senders.get(sender)
        time_us = None if ids is None else ids.get(dedup_id)
        return time_us is not None and time_us >= now_us - self._window_us

    def _remember(self, sender: Sender, dedup_id: str, time_us: int) -> None:
        ids = self._senders.get(sender)
        if ids is None:
            ids = self._senders[sender] = OrderedDict()
        ids[dedup_id] = time_us
        ids.move_to_end(dedup_id)
        self._senders.move_to_end(sender)
        oldest_us = time_us - self._window_us
        while len(ids) > self._ids or next(iter(ids.values())) < oldest_us:
            ids.popitem(last=False)
        self._forget_silent(oldest_us)

    def _forget_silent(self, oldest_us: int) -> None:
        """Forget senders whose newest id is out of the window."""
        while self._senders:
            sender, ids = next(iter(self._senders.items()))
            if ids and next(reversed(ids.values())) >= oldest_us:
                return
            del self._senders[sender]

    # ---- restart -----------------------------------------------------------------------------------------------------

    def _mark(self, topic: Topic, now_us: int) -> None:
        marks = self._bus.journal.state.get(MARKS, topic.name) or []
        if marks and marks[-1][0] > now_us - self._window_us // MARKS_PER_WINDOW:
            return
        # Reading starts at the last mark before the window; older ones are not needed.
        begun = [n for n, (time_us, _) in enumerate(marks) if time_us <= now_us - self._window_us]
        offset = self._bus.journal.offsets(topic.name)[1]
        with contextlib.suppress(UnavailableError):  # the row will be refused for the same reason
            self._bus.set_state(MARKS, topic.name, [*marks[begun[-1] if begun else 0 :], [now_us, offset]])

    def _restore(self, name: str, marks: list[list[int]]) -> None:
        oldest_us = self._bus.clock_us() - self._window_us
        if marks[-1][0] < oldest_us - self._window_us // MARKS_PER_WINDOW:
            return
        begun = [offset for time_us, offset in marks if time_us <= oldest_us]
        offset, end = begun[-1] if begun else marks[0][1], self._bus.journal.offsets(name)[1]
        while offset < end:
            offset = self._read_back(name, offset, end, oldest_us)

    def _read_back(self, name: str, offset: int, end: int, oldest_us: int) -> int:
        """Read one piece of the topic. Return where the next one starts."""
        try:
            found = rows_of(self._bus.journal.read_topic(name, offset, columns=_COLUMNS))
        except TrimmedError as error:
            return error.first
        except AwayError:  # older than the window by far: retention keeps rows here for longer
            return end
        for row in found:
            dedup_id = (row["attributes"] or {}).get(DEDUP_ID)
            if dedup_id and row["time_us"] >= oldest_us:
                self._remember((name, (row["producer"] or "").encode()), dedup_id, row["time_us"])
        following: int = found[-1]["offset"] + 1 if found else end
        return following
