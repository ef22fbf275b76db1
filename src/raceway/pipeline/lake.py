"""The tables: files that Spark's workers wrote, made part of a table by the driver's commit to its Delta log.

Every commit has the transaction `raceway` of the table's one writer, its version one more than the last: of two
writers with the same last version, one fails. How far a table is, is in the same commit: for `bronze.messages` the next
position of the journal (`journal:0`), for a derived table the version of each input that it includes. So a batch is in
a table with its progress or not at all, and a repeated one finds out before it writes.

`custom_metadata` of a commit tells what kind it was: only commits of kind ROWS and FORGOTTEN concern the tables
computed from this one. Merged files have the same rows, and rows that were deleted are deleted from each table by the
same command; FORGOTTEN ones are subtracted from the sums that follow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.errors import PipelineError
from raceway.journal.archive.reader import AnyReader, open_reader
from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.schema_book import SchemaBook
from raceway.pipeline.snapshot import At, Snapshot, explained, maybe_snapshot
from raceway.pipeline.storage import Storage, storage_of
from raceway.pipeline.tables import MESSAGES, Derived, FileChanges, Limits, Table
from raceway.pipeline.typed import TypedTable, typed_tables
from raceway.pipeline.written import CLOSED, DAY, TOLD, WRITTEN, Written, sync, write_rows
from raceway.wires.captures.columns import JOURNAL, columns_of, ddl, schema_of

WRITER, KIND = "raceway", "raceway"
# Kinds of commits.
ROWS, MERGED, DELETED, FORGOTTEN = "rows", "merged", "deleted", "forgotten"
LANE = f"{JOURNAL}:0"
_CONFIGURATION = {
    "delta.checkpointInterval": "100",
    # A live run commits every few seconds; older versions than this cannot be asked for any more.
    "delta.logRetentionDuration": "interval 7 days",
    "delta.enableExpiredLogCleanup": "true",
}


class Lake:
    """The tables of one data folder. Only one process may change them at a time (see `jobs`)."""

    def __init__(
        self,
        spark: SparkSession | None,
        folders: Folders,
        storage: Storage | None = None,
        limits: Limits = Limits(),  # noqa: B008 - immutable
    ) -> None:
        self._spark, self.folders, self.limits = spark, folders, limits
        self.storage = storage or storage_of(folders.tables)
        self.book = SchemaBook(folders.schemas)
        self._snapshots: dict[str, Snapshot] = {}
        self._typed: tuple[tuple[int, int], tuple[TypedTable, ...]] | None = None
        self._evolved: tuple[TypedTable, ...] = ()

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "these tables were opened without a Spark session"
        return self._spark

    # ---- which tables there are -------------------------------------------------------------------------------------

    @property
    def typed(self) -> tuple[TypedTable, ...]:
        """The tables of topics that are bound to schemas, as far as the book was read."""
        state = len(self.book.versions), sum(map(len, self.book.bindings.values()))
        if self._typed is None or self._typed[0] != state:
            self._typed = state, typed_tables(self.book.bindings, self.book.versions)
        return self._typed[1]

    @property
    def derived(self) -> tuple[Derived, ...]:
        """All tables that are computed from others."""
        return *registry.DERIVED, *self.typed

    def every(self) -> dict[str, Table]:
        """All tables by name, with those that hold state."""
        return registry.every(self.typed)

    def names(self) -> list[str]:
        """Names of the tables for users, bronze first."""
        return registry.names(self.typed)

    def table(self, name: str) -> Table:
        return self.every()[name]

    def with_dependent(self, name: str) -> set[str]:
        return registry.with_dependent(name, self.typed)

    # ---- reading ----------------------------------------------------------------------------------------------------

    def maybe_snapshot(self, table: str, at: At | None = None) -> Snapshot | None:
        """A version of a table; None if it does not exist. The current one is that of the last commit made here."""
        if at is not None:
            return maybe_snapshot(self.storage, table, at)
        if table not in self._snapshots and (found := maybe_snapshot(self.storage, table)) is not None:
            self._snapshots[table] = found
        return self._snapshots.get(table)

    def files(self, table: str) -> pa.Table:
        """The current files of a table with their statistics; `Snapshot.files` names the columns."""
        found = self.maybe_snapshot(table)
        return found.files() if found else pa.table({"path": pa.array([], pa.string())})

    def paths(self, table: str, **bounds: tuple[Any, Any]) -> list[str]:
        """The current files that may hold rows whose columns are within these bounds, both inclusive."""
        files = self.files(table)
        for column, (low, high) in bounds.items() if files.num_rows else ():
            if low is not None:
                files = files.filter(pc.greater_equal(files.column(f"max.{column}"), low))
            if high is not None:
                files = files.filter(pc.less_equal(files.column(f"min.{column}"), high))
        return [str(path) for path in files.column("path").to_pylist()]

    def frame(self, table: str, paths: Iterable[str] | None = None) -> DataFrame:
        """Rows of these files of a table, or of all."""
        columns = self.table(table).ddl
        chosen = self.paths(table) if paths is None else list(paths)
        if not chosen:
            nothing = [F.lit(None).cast(kind).alias(name) for name, kind in columns_of(columns)]
            return self.spark.range(0).select(*nothing)
        root = self.storage.hadoop_url(table)
        reader = self.spark.read.schema(f"{columns}, {DAY} date").option("basePath", root)
        return reader.parquet(*(f"{root}/{path}" for path in chosen)).drop(DAY)

    def open_paths(self, table: str) -> list[str]:
        """The current files with rows of spans that are not closed."""
        files = self.files(table)
        chosen = files.filter(pc.invert(files.column(f"partition.{CLOSED}"))) if files.num_rows else files
        return [str(path) for path in chosen.column("path").to_pylist()]

    def paths_of(self, rows: DataFrame, table: str) -> list[str]:
        """The files that these rows of a table lie in, by their column `file`."""
        names = {row[0] for row in rows.select("file").distinct().collect()}
        return [path for path in self.paths(table) if path.rsplit("/", 1)[1] in names]

    def counts(self, table: str) -> tuple[int, int]:
        """Number of rows and of files of a table."""
        files = self.files(table)
        return (pc.sum(files.column("num_records")).as_py() or 0) if files.num_rows else 0, files.num_rows

    def open_journal(self) -> AnyReader:
        """The journal, or its archive, that rows are taken from."""
        return open_reader(self.folders.journal, self.storage.settings)

    def end(self) -> int:
        """The first position that is not in `bronze.messages`."""
        return self.progress(MESSAGES, LANE) or 0

    def progress(self, table: str, name: str) -> int | None:
        """How far a table is in a source, by the name of that; None if it has nothing of it."""
        found = self.maybe_snapshot(table)
        return found.transaction(name) if found else None

    def horizons(self) -> dict[str, int]:
        """The current time of each source: the greatest `time_us` of its rows. A file has rows of one source."""
        files = self.files(MESSAGES)
        if not files.num_rows:
            return {}
        latest = files.select(["max.source", "max.time_us"]).group_by("max.source").aggregate([("max.time_us", "max")])
        return dict(
            zip(latest.column("max.source").to_pylist(), latest.column("max.time_us_max").to_pylist(), strict=True)
        )

    def changes(self, table: str, since: int | None) -> FileChanges:
        """Return the changes by commits of rows after a version; all files of the table if that is None.

        Raises ForgottenError if the log no longer has these versions.
        """
        found = self.maybe_snapshot(table)
        if found is None:
            return FileChanges(-1, [], [])
        if since is None:
            return FileChanges(found.version, self.paths(table), [])
        added: dict[str, None] = {}
        removed: dict[str, None] = {}
        has_losses = False
        for version in range(since + 1, found.version + 1):
            kind, actions = _file_actions(found.log_entry(version))
            has_losses |= kind == FORGOTTEN
            for action, path in actions:
                if action == "add":
                    added[path] = None
                elif path in added:
                    del added[path]
                else:
                    removed[path] = None
        return FileChanges(found.version, list(added), list(removed), has_losses)

    # ---- writing ----------------------------------------------------------------------------------------------------

    def write(self, table: Table, rows: DataFrame) -> list[Written]:
        """Write rows to files that no table has yet; `commit` makes them part of it."""
        names = [name for name, _ in columns_of(table.ddl)]
        work = partial(_write_batches, self.storage, table.name, table.when, file_schema(table.ddl))
        return [Written(*row) for row in rows.select(*names).mapInArrow(work, ddl(WRITTEN)).collect()]

    def write_few(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> list[Written]:
        """Write a few rows in this process."""
        schema = file_schema(table.ddl)
        batches = pa.Table.from_pylist(list(rows), schema=schema).to_batches()
        return list(write_rows(self.storage, table.name, table.when, schema, batches))

    def commit(
        self,
        table: str,
        added: Iterable[Written] = (),
        removed: Iterable[str] = (),
        progress: Mapping[str, int] | None = None,
        kind: str = ROWS,
    ) -> None:
        """Make one new version of a table. Raises PipelineError if another writer was faster."""
        from deltalake.exceptions import CommitFailedError

        found = self.maybe_snapshot(table)
        properties = _properties(found, kind, progress or {})
        try:
            if found is None:
                self._create(table, list(added), properties)
            else:
                found.commit(self._actions(found, added, removed, kind), properties)
        except CommitFailedError as error:
            raise PipelineError(
                f"{table}: another process changed the table meanwhile, and nothing was committed: run one at a time"
            ) from error
        self._sync(table)

    def _create(self, table: str, added: list[Written], properties: Any) -> None:
        from deltalake.transaction import create_table_with_add_actions

        known = self.table(table)
        # Readers take a column that is not named here for one without known values, which it is.
        told = ",".join(name for name in TOLD if name in file_schema(known.ddl).names)
        configuration = _CONFIGURATION | {"delta.dataSkippingStatsColumns": told}
        with explained(table):
            create_table_with_add_actions(
                self.storage.url(table), delta_schema(known), [_add(each, data_change=True) for each in added],
                partition_by=known.partitions, name=table, description=known.comment, configuration=configuration,
                storage_options=self.storage.delta_options(), commit_properties=properties,
            )  # fmt: skip

    def _actions(self, found: Snapshot, added: Iterable[Written], removed: Iterable[str], kind: str) -> list[Any]:
        from deltalake.transaction import RemoveAction

        now_ms = time.time_ns() // 1_000_000
        wanted = list(removed)
        known = found.sizes_and_partitions() if wanted else {}
        gone = [(path, *known[path]) for path in wanted]
        is_change = kind != MERGED
        return [
            *(_add(each, is_change) for each in added),
            *(RemoveAction(path, is_change, now_ms, size, partition) for path, size, partition in gone),
        ]

    def _sync(self, table: str) -> None:
        """Make the newest entry of the log durable; delta-rs leaves that to the system."""
        snapshot = self.maybe_snapshot(table)
        assert snapshot is not None
        snapshot.refresh()
        if not self.storage.is_remote:
            log = Path(self.storage.url(table)) / "_delta_log"
            sync(log / f"{snapshot.version:020d}.json")
            sync(log)

    def remove(self, table: str) -> None:
        """Remove a table with everything in it."""
        if self.maybe_snapshot(table) is not None:
            self.storage.filesystem().delete_dir(self.storage.path(table))
        self._snapshots.pop(table, None)

    def mend(self) -> list[str]:
        """Remove the last entry of a log if a power failure left it without content; return what was removed.

        An entry is synced after it was made, and what it said is done again: its progress was in it, too.
        """
        removed = []
        for name in self.every() if not self.storage.is_remote else ():
            entries = sorted((Path(self.storage.url(name)) / "_delta_log").glob(f"{'[0-9]' * 20}.json"))
            if entries and not _is_whole(entries[-1]):
                entries[-1].unlink()
                removed.append(str(entries[-1]))
        self._snapshots.clear()
        return removed

    def follow_schemas(self) -> None:
        """Add the columns of schema versions that were learned since the last time."""
        if self.typed is not self._evolved:
            self.evolve()

    def evolve(self) -> None:
        """Add the columns that this release knows and an existing table does not have; its rows have NULL there."""
        self._evolved = self.typed
        for name, table in self.every().items():
            found = self.maybe_snapshot(name)
            schema = delta_schema(table)
            if found is not None and found.add_columns(schema, _properties(found, MERGED, {})):
                self._sync(name)


def _properties(found: Snapshot | None, kind: str, progress: Mapping[str, int]) -> Any:
    """Return the properties of a commit on top of a version."""
    from deltalake import CommitProperties, Transaction

    last = (found.transaction(WRITER) or 0) if found else 0
    transactions = [Transaction(WRITER, last + 1), *(Transaction(*each) for each in progress.items())]
    # No retry: a commit on top of one that this writer has not seen would name the same files twice.
    return CommitProperties(custom_metadata={KIND: kind}, max_commit_retries=0, app_transactions=transactions)


def _is_whole(entry: Path) -> bool:
    try:
        return bool([json.loads(line) for line in entry.read_text("utf-8").splitlines()])
    except ValueError:
        return False


def _file_actions(entry: str) -> tuple[str, list[tuple[str, str]]]:
    """The kind of an entry of the log, and its added and removed files if it is about rows."""
    actions = [json.loads(line) for line in entry.splitlines()]
    kind = next((str(each["commitInfo"].get(KIND)) for each in actions if "commitInfo" in each), "")
    if kind not in (ROWS, FORGOTTEN):
        return kind, []
    return kind, [(name, each[name]["path"]) for each in actions for name in ("add", "remove") if name in each]


def _add(written: Written, data_change: bool) -> Any:
    from deltalake.transaction import AddAction

    now_ms = time.time_ns() // 1_000_000
    return AddAction(written.path, written.bytes, written.partition, now_ms, data_change, written.stats)


def file_schema(columns: str) -> pa.Schema:
    """Columns that are in the files of a table; those of partitions are not."""
    return pa.schema([field for field in schema_of(columns) if field.name != CLOSED])


def delta_schema(table: Table) -> Any:
    """Columns of a table with their comments, for its log."""
    from deltalake import Schema

    fields = [*schema_of(table.ddl), pa.field(DAY, pa.date32())]
    return Schema.from_arrow(pa.schema([field.with_metadata(table.metadata(field.name)) for field in fields]))


def _write_batches(
    storage: Storage, table: str, when: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for each in write_rows(storage, table, when, schema, batches):
        yield pa.RecordBatch.from_pylist([each._asdict()], schema=WRITTEN)
