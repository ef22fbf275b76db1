"""Reading half of a journal, through its catalogue; shared by the engines and by readers in other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from raceway.journal.contract import TOPIC_BYTES, TOPIC_ROWS
from raceway.journal.format import Batches, Columns
from raceway.journal.read.catalogue import Catalogue
from raceway.journal.state import State


class CatalogueReading(ABC):
    """Committed rows of a catalogue, by position or by topic."""

    _catalogue: Catalogue

    @abstractmethod
    def _readable(self) -> int:
        """Return the sequence of the last row that may be read, which the catalogue shows by then."""

    def read(self, start: int, stop: int | None = None, columns: Columns = None) -> Batches:
        """See `Journal.read`."""
        # Bounded by the commit mark: the active file may hold bytes that are not synced, or will be cut back.
        end = self._readable() + 1
        return self._catalogue.read(start, end if stop is None else min(stop, end), columns)

    def read_topic(
        self, topic: str, offset: int, max_rows: int = TOPIC_ROWS, max_bytes: int = TOPIC_BYTES, columns: Columns = None
    ) -> Batches:
        """See `Journal.read_topic`."""
        self._readable()
        return self._catalogue.read_topic(topic, offset, max_rows, max_bytes, columns)

    def first_position(self) -> int:
        """Return the first position that retention kept, as last listed."""
        return self._catalogue.listing.begin


class JournalReading(CatalogueReading):
    """Reading half of `Journal`, for classes that have a catalogue and a state."""

    state: State

    @property
    @abstractmethod
    def committed(self) -> int:
        """See `Journal.committed`."""

    def _readable(self) -> int:
        return self.committed

    def offsets(self, topic: str) -> tuple[int, int]:
        """See `Journal.offsets`. Both numbers are equal for a topic that was never used."""
        following = self.state.next_offset(topic)
        if topic not in self.state.next_offsets:
            return following, following
        # Nothing was removed while the first position is 0: then no file has to be asked.
        first = self._catalogue.maybe_first_offset(topic) if self.first_position() else 0
        return following if first is None else first, following

    def topics(self) -> Iterable[str]:
        """Return the topics that have offsets, also those whose rows were removed."""
        return self.state.next_offsets.keys()
