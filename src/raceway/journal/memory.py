"""Journal without files: for `durability = "memory"`, for tests, for benchmarks without a disk.

Blocks are encoded as on disk and kept in a few pieces; beyond `memory_bytes` the oldest piece is dropped, and its
readers get TrimmedError. Storing cannot fail, and a commit follows as soon as the owner is called again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

from raceway import config
from raceway.errors import JournalError
from raceway.journal.contract import Health, Post
from raceway.journal.format import MARKER_SIZE
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.catalogue import Catalogue, segment_path
from raceway.journal.read.index import Index
from raceway.journal.read.reading import JournalReading
from raceway.journal.read.segment import BlockSegment
from raceway.journal.state import State
from raceway.journal.write.block import Frame, OpenBlock
from raceway.journal.write.intake import Intake

# Nothing is ever searched by it: memory does not lose prefixes.
_MARKER = bytes(MARKER_SIZE)
# At most a sixteenth of the memory is dropped at a time.
_PIECES = 16


class _MemorySource:
    """Frames one after the other, addressed like the bytes of a file."""

    def __init__(self) -> None:
        self.size = 0
        self._begins: list[int] = []
        self._frames: list[bytes] = []

    def append(self, frame: Frame) -> None:
        self._frames.append(frame.head + frame.body)
        self._begins.append(self.size)
        self.size += frame.size

    def read(self, size: int, position: int) -> bytes:
        """Return bytes of one frame; a read never spans two."""
        frame = bisect_right(self._begins, position) - 1
        at = position - self._begins[frame]
        return self._frames[frame][at : at + size]

    def close(self) -> None:
        self._frames.clear()


class MemoryJournal(Intake, JournalReading):
    """Rows in memory, lost with the process."""

    def __init__(self, settings: config.JournalSettings, post: Post, clock: Callable[[], int]) -> None:
        super().__init__(settings, State(), 0, clock)
        self._last = -1
        self._post = post
        self._damage = DamageLog()
        self._catalogue = Catalogue(self._damage)
        self._blocks = self._rows = 0
        self._begin(0)

    @property
    def committed(self) -> int:
        return self._last

    def upkeep(self) -> None:
        """No-op: excess pieces are dropped with each commit."""

    def bring_back(self, segment: str) -> None:
        """Do nothing: a journal in memory has no archive."""

    def health(self) -> Health:
        """Return status and counters."""
        segments = self._catalogue.listing.segments
        return Health(
            **self._figures(),
            durability="memory",
            committed=self.committed,
            first_position=self.first_position(),
            segments=len(segments),
            bytes=sum(segment.size for segment in segments),
            blocks=self._blocks,
            rows=self._rows,
        )

    def close(self) -> None:
        """See `Journal.close`."""
        if self._status == "closed":
            return
        # Posted commits may never run once the loop ends, so they are carried out here.
        while not self._is_idle():
            self.flush()
            self._commit()
        self._refuse("closed", "the journal is closed")

    def _hand_over(self, block: OpenBlock) -> None:
        # Not called directly: `done` must never run within `append` or `flush`.
        self._post(self._commit)

    def _commit(self) -> None:
        """Encode and keep the block in flight, then report its commit."""
        if not self._in_flight:  # `close` has committed it already
            return
        block = self._in_flight[0]
        try:
            frame = block.encode(_MARKER)
        except Exception as error:  # noqa: BLE001  # a value no column can hold
            self._failed(JournalError(f"the rows cannot be encoded: {error}"), "ok", "")
            self.flush()
            return
        if self._newest.size >= self._settings.memory_bytes // _PIECES:
            self._begin(frame.first)
        # Bytes first, then the index, then `committed`: a reader in another thread sees only rows that are
        # complete.
        self._newest.append(frame)
        frame.add_to(self._index)
        self._blocks += 1
        self._rows += frame.rows
        self._last = frame.last
        self._make_room()
        self._committed(block)

    def _make_room(self) -> None:
        """Drop the oldest pieces while there are more than `memory_bytes`; the newest always stays."""
        segments = self._catalogue.listing.segments
        sizes = [segment.size for segment in segments]
        while sum(sizes) > self._settings.memory_bytes and len(sizes) > 1:
            sizes.pop(0)
        if len(sizes) < len(segments):
            self._catalogue.show(segments[-len(sizes) :])

    def _begin(self, first: int) -> None:
        """Begin a new piece with the sequence `first`."""
        self._newest, self._index = _MemorySource(), Index(first)
        path = segment_path(Path("memory"), first)
        segment = BlockSegment(path, _MARKER, self._damage, index=self._index, source=self._newest)
        self._catalogue.show((*self._catalogue.listing.segments, segment))
