"""One version of a Delta table, read without Spark: its files, rows and progress."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

# A version of a table, or a time: the version that was current then.
At: TypeAlias = int | datetime


class Snapshot:
    """A version of a table; the newest when it was opened, or an older one."""

    def __init__(self, storage: Storage, table: str, at: At | None = None) -> None:
        """Open a table that exists. Raises PipelineError if it cannot be read, or has no such version."""
        from deltalake import DeltaTable

        self.storage, self.table = storage, table
        with explained(table):
            self._delta = DeltaTable(storage.url(table), storage_options=storage.delta_options())
            if at is not None:
                self._delta.load_as_version(at)
        # delta-rs gives the first version for any earlier time.
        if isinstance(at, datetime) and at.timestamp() * 1000 < self._delta.metadata().created_time:
            raise PipelineError(f"{table}: did not exist at {at.isoformat(timespec='seconds')}")

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def comment(self) -> str:
        return self._delta.metadata().description or ""

    def partitions(self, column: str) -> list[str]:
        """The values of a partition column, in order."""
        return sorted({str(each[column]) for each in self._delta.partitions()})

    def dataset(self) -> ds.Dataset:
        """All rows; a filter opens only the files that may have them, by partition and statistics."""
        with explained(self.table):
            return self._delta.to_pyarrow_dataset()

    def files(self) -> pa.Table:
        """The files of this version: `path`, `size_bytes`, `num_records`, and what is known of their values."""
        import pyarrow as pa

        return pa.table(self._delta.get_add_actions(flatten=True))


def maybe_snapshot(storage: Storage, table: str, at: At | None = None) -> Snapshot | None:
    """Open a table; None if it does not exist."""
    from deltalake import DeltaTable

    with explained(table):
        if not DeltaTable.is_deltatable(storage.url(table), storage.delta_options()):
            return None
    return Snapshot(storage, table, at)


def parse_at(text: str) -> At:
    """A version, or a time by ISO 8601, in UTC unless it says otherwise. Raises ConfigError."""
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("--at", f"is a version (7) or a time (2026-11-15T12:20), not {text!r}") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def explained(table: str) -> Iterator[None]:
    """Turn an error of delta-rs or of the store into a PipelineError that names the table."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, ValueError) as error:
        raise PipelineError(f"{table}: {_plain(str(error))}") from error


def _plain(text: str) -> str:
    """An error of delta-rs, which draws its causes as a tree in colours, in one line."""
    words = re.sub(r"\x1b\[\d*m", "", text).replace("↳", " ").split()
    return " ".join(words) or "the table could not be read"
