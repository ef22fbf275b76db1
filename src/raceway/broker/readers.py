"""Readers of topics, which are notified when rows are committed: queues and subscriptions.

Anything that shows an offset or moves a cursor must happen after the commit, so readers are called by the journal's
`done`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from raceway.broker.runs import RowSpan
from raceway.broker.topics import Topic
from raceway.errors import RacewayError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import Batch


class TopicReader(Protocol):
    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        """Take committed rows of the topic, all of this batch. Their offsets follow the previous ones."""

    def withdrawn(self, batch: Batch, row: int) -> None:
        """Note that rows of the topic from this one on could not be stored: their offsets will be assigned again."""


class Readers:
    """All readers by topic, in order of registration."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, tuple[TopicReader, ...]] = {}

    def add(self, topic: Topic, reader: TopicReader) -> None:
        self._by_topic[topic] = (*self._by_topic.get(topic, ()), reader)

    def remove(self, topic: Topic, reader: TopicReader) -> None:
        left = tuple(each for each in self._by_topic.pop(topic) if each is not reader)
        if left:
            self._by_topic[topic] = left

    def holds(self, topic: Topic) -> bool:
        """Return whether the topic has readers."""
        return topic in self._by_topic

    def watch(self, batch: Batch, spans: list[RowSpan], done: OnCommit | None) -> OnCommit | None:
        """Return a `done` that notifies the readers of these rows after the commit, and then calls `done`."""
        return self.watch_rows(batch, self._rows_by_topic(spans), done) if self._by_topic else done

    def watch_rows(
        self, batch: Batch, rows_by_topic: Iterable[tuple[Topic, Sequence[int]]], done: OnCommit | None
    ) -> OnCommit | None:
        """Watch as `watch` does, for rows that are known by topic."""
        # Readers added between now and the commit start after these rows.
        reading = [(reader, rows) for topic, rows in rows_by_topic for reader in self._by_topic.get(topic, ())]
        if not reading:
            return done

        def committed(error: RacewayError | None) -> None:
            for reader, rows in reading:
                if error is None:
                    reader.committed(batch, rows)
                else:
                    reader.withdrawn(batch, rows[0])
            if done is not None:
                done(error)

        return committed

    def _rows_by_topic(self, spans: list[RowSpan]) -> Iterable[tuple[Topic, Sequence[int]]]:
        found: dict[Topic, Sequence[int]] = {}
        for topic, _, start, stop in spans:
            if topic in self._by_topic:
                rows, before = range(start, stop), found.get(topic)
                found[topic] = rows if before is None else [*before, *rows]
        return found.items()
