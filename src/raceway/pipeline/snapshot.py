"""One version of a Delta table, without Spark: its files, rows and progress, and the commit of the next one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.storage import Storage

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds
    from deltalake import CommitProperties, Schema

# A version of a table, or a time: the version that was current then.
At: TypeAlias = int | datetime


class ForgottenError(PipelineError):
    """The log of a table no longer reaches back as far as was asked."""


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
        self._files: pa.Table | None = None
        # delta-rs gives the first version for any earlier time.
        if isinstance(at, datetime) and at.timestamp() * 1000 < self._delta.metadata().created_time:
            raise PipelineError(f"{table}: did not exist at {at.isoformat(timespec='seconds')}")

    @property
    def version(self) -> int:
        return self._delta.version()

    @property
    def comment(self) -> str:
        return self._delta.metadata().description or ""

    def transaction(self, name: str) -> int | None:
        """The version of an application's last transaction; None if it has none."""
        return self._delta.transaction_version(name)

    def dataset(self) -> ds.Dataset:
        """All rows; a filter opens only the files that may have them, by partition and statistics."""
        with explained(self.table):
            return self._delta.to_pyarrow_dataset()

    def files(self) -> pa.Table:
        """The files of this version: `path`, `size_bytes`, `num_records`, and what is known of their values."""
        import pyarrow as pa

        if self._files is None:
            with explained(self.table):
                self._files = pa.table(self._delta.get_add_actions(flatten=True))
        return self._files

    def locations(self) -> list[str]:
        """The files of this version by their full names, for a reader that does not know Delta."""
        return [f"{self.storage.url(self.table)}/{path}" for path in self.files().column("path").to_pylist()]

    def sizes_and_partitions(self) -> dict[str, tuple[int, dict[str, str | None]]]:
        """Size and partition of each file, as the log has them."""
        names = [name for name in self.files().column_names if name.startswith("partition.")]
        rows = self.files().select(["path", "size_bytes", *names]).to_pylist()
        return {
            row["path"]: (row["size_bytes"], {n.removeprefix("partition."): _value(row[n]) for n in names})
            for row in rows
        }

    def log_entry(self, version: int) -> str:
        """Return the log's entry of a version. Raises ForgottenError if it is no longer there."""
        path = f"{self.storage.path(self.table)}/_delta_log/{version:020d}.json"
        with explained(self.table):
            try:
                with self.storage.filesystem().open_input_stream(path) as stream:
                    return bytes(stream.read()).decode()
            except FileNotFoundError:
                raise ForgottenError(f"{self.table}: its log no longer has version {version}") from None

    # ---- one writer -------------------------------------------------------------------------------------------------

    def commit(self, actions: list[Any], properties: CommitProperties) -> None:
        """Make the next version, unless there is one already: then raises CommitFailedError."""
        with explained(self.table):
            self._delta.create_write_transaction(
                actions, mode="append", schema=self._delta.schema(),
                partition_by=self._delta.metadata().partition_columns, commit_properties=properties,
            )  # fmt: skip

    def refresh(self) -> None:
        """Go on to the newest version."""
        with explained(self.table):
            self._delta.update_incremental()
        self._files = None

    def vacuum(self, hours: int, *, dry_run: bool) -> list[str]:
        """Delete the files that no version of the last hours has; return their names."""
        with explained(self.table):
            return self._delta.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)

    def add_columns(self, schema: Schema, properties: CommitProperties) -> bool:
        """Add the columns of this schema that the table does not have; return whether there are any."""
        known = {field.name for field in self._delta.schema().fields}
        new = [field for field in schema.fields if field.name not in known]
        if new:
            with explained(self.table):
                self._delta.alter.add_columns(new, commit_properties=properties)
        return bool(new)


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
    """Turn an error of delta-rs or of the store into a PipelineError that names the table; CommitFailedError passes."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        raise PipelineError(f"{table}: {_plain(str(error))}") from error


def _value(value: Any) -> str | None:
    """A value of a partition as the log writes it."""
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def _plain(text: str) -> str:
    """An error of delta-rs, which draws its causes as a tree in colours and adds a stack, in one line."""
    without_stack = re.split(r"\n\s+0: ", text)[0]
    told = " ".join(re.sub(r"\x1b\[\d*m", "", without_stack).replace("↳", " ").split())
    if "Json error" in told:
        return f"its log is damaged ({told}): if that is the last entry, the next `raceway pipeline run` mends it"
    return told or "the table could not be read"
