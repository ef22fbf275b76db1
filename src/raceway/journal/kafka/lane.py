"""What the journal needs of Kafka: one partition of records in their order, and one of small values by key.

A seam: tests have a lane in memory, and other logs could be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

from raceway.errors import UnavailableError
from raceway.journal.kafka.records import Record, RecordHeaders

# Called in any thread with the offset of a record, None if it is unknown; or with the error that left it in doubt.
OnAppended: TypeAlias = Callable[[int | None, UnavailableError | None], None]


class Lane(Protocol):
    """Lane of a cluster. All methods may be called in any thread; those that wait raise UnavailableError."""

    name: str

    def append(self, headers: RecordHeaders, value: bytes, told: OnAppended) -> None:
        """Append a record, after all earlier ones of this producer; `told` is called in their order."""

    def begin_anew(self) -> None:
        """Forget records on their way, whatever becomes of them, and accept others. Nobody is told of those."""

    def extent(self) -> tuple[int, int]:
        """Return the first offset left, and the one that the next record will get."""

    def read(self, start: int, stop: int) -> Iterator[Record]:
        """Yield the records with start <= offset < stop; wait for the last one of them."""

    def trim(self, before: int) -> None:
        """Remove the records below an offset."""

    def values(self) -> Mapping[str, bytes]:
        """Return all values by their key."""

    def put(self, key: str, value: bytes | None) -> None:
        """Set a value, or remove it (None); return when it is kept."""

    def maybe_reason(self) -> str | None:
        """Return why records are not taken now, in a sentence; None if it is not known."""

    def close(self) -> None: ...
