"""Definition of tables: names, columns, keys, and how each follows its inputs. `registry` lists all tables.

`bronze.messages` is appended to. Every other table is a pure function of its inputs (`transform`), brought up to date
from the files that they got and lost (`advance`), so that a batch costs what it has of new rows:

    appended   a row depends on its own input row alone, or on earlier ones that a table of state has
    replaced   a row may change later: new versions are written, with the rest of the files that had the old ones
    counted    sums by minute or hour; what changed is added to them or subtracted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.model.schemas import SchemaVersion
from raceway.pipeline.words import COLUMNS, TABLES
from raceway.pipeline.written import CLOSED, DAY
from raceway.wires.captures.columns import BRONZE, JOURNAL, REJECTED, columns_of, ddl

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGES, REJECTED_MESSAGES = "bronze.messages", "bronze.rejected"
MINUTE_US, HOUR_US = 60_000_000, 3_600_000_000


class Limits(NamedTuple):
    """A minute or hour is closed `close_us` after its end; a trace of the age `trace_us` is continued by a new one."""

    close_us: int = 10 * MINUTE_US
    trace_us: int = 24 * HOUR_US


@dataclass(frozen=True)
class Inputs:
    """Input of a transform: rows of each input table.

    `horizons` is the greatest `time_us` of each source, its current time. `schemas` are all schema versions that the
    bus has had.
    """

    frames: Mapping[str, DataFrame]
    horizons: Mapping[str, int] = field(default_factory=dict)
    schemas: Sequence[SchemaVersion] = ()
    limits: Limits = field(default_factory=Limits)

    def __getitem__(self, name: str) -> DataFrame:
        return self.frames[name]

    def horizon_us(self, source: Column) -> Column:
        """The current time of a row's source in µs; NULL for an unknown source."""
        if not self.horizons:
            return F.lit(None).cast("bigint")
        known = F.create_map(*(F.lit(item) for pair in self.horizons.items() for item in pair))
        return F.try_element_at(known, source)

    @property
    def closed_until_us(self) -> int:
        """Spans of the journal that end until this time are closed. Those of captures are, as nothing follows."""
        return self.horizons.get(JOURNAL, 0) - self.limits.close_us


class NewRows(NamedTuple):
    """New rows of a table, and those of its files that they replace."""

    rows: DataFrame
    replaced: Sequence[str] = ()


class StoredTables(Protocol):
    """Stored tables, as a table asks for them (see `lake`)."""

    def files(self, table: str) -> pa.Table: ...
    def paths(self, table: str, **bounds: tuple[Any, Any]) -> list[str]: ...
    def open_paths(self, table: str) -> list[str]: ...
    def paths_of(self, rows: DataFrame, table: str) -> list[str]: ...
    def frame(self, table: str, paths: Iterable[str] | None = None) -> DataFrame: ...


class FileChanges(NamedTuple):
    """Files that a table got and lost by commits of rows, up to a version.

    `has_losses`: rows of removed files may be in no added one.
    """

    version: int
    added: list[str]
    removed: list[str]
    has_losses: bool = False


class Step(Protocol):
    """Work of one table: the changes of its inputs (see `refreshing`)."""

    @property
    def lake(self) -> StoredTables: ...
    @property
    def table(self) -> Derived: ...
    @property
    def changes(self) -> Mapping[str, FileChanges]: ...
    @property
    def horizons(self) -> Mapping[str, int]: ...
    def added(self, name: str) -> DataFrame: ...
    def removed(self, name: str) -> DataFrame: ...
    def inputs(self, **looked_up: DataFrame) -> Inputs: ...
    def least(self, name: str, column: str) -> int | None: ...
    def has_captures(self, name: str) -> bool: ...


Transform: TypeAlias = Callable[[Inputs], DataFrame]
Advance: TypeAlias = "Callable[[Step], NewRows]"


@dataclass(frozen=True)
class Table:
    """A table; `when` is the column of its time, which the partition `day` follows."""

    name: str
    ddl: str
    key: tuple[str, ...]
    when: str = "time_us"

    @property
    def comment(self) -> str:
        return TABLES[self.name]

    def metadata(self, column: str) -> dict[str, str]:
        """Metadata of a column in Delta's schema."""
        return {"comment": COLUMNS[column]}

    @property
    def partitions(self) -> list[str]:
        return [DAY, *(name for name, _ in columns_of(self.ddl) if name == CLOSED)]


def _append(work: Step) -> NewRows:
    return NewRows(work.table.transform(work.inputs()))


@dataclass(frozen=True, kw_only=True)
class Derived(Table):
    """A table computed from others.

    inputs     tables whose changes it follows
    transform  all rows of the inputs to all rows of the table
    looks_up   tables that are searched for earlier rows, and must be as far as the inputs
    advance    what changed in the inputs to new rows; default: `transform` of the added rows, appended
    due        whether there is work though no input changed, because time went on
    """

    inputs: tuple[str, ...]
    transform: Transform
    looks_up: tuple[str, ...] = ()
    advance: Advance = _append
    due: Callable[[Step], bool] = lambda _: False


BRONZE_DDL = {MESSAGES: ddl(BRONZE), REJECTED_MESSAGES: ddl(REJECTED)}
BRONZE_KEY = ("source", "partition", "sequence")


def row(ddl: str, **computed: Column) -> list[Column]:
    """The columns of a table in Spark's DDL syntax: those given here, the others as they are in the input."""
    return [computed.get(name, F.col(name)).alias(name) for name, _ in columns_of(ddl)]


def file_name() -> Column:
    """The name of the file that a row was read from."""
    return F.substring_index("_metadata.file_path", "/", -1).alias("file")
