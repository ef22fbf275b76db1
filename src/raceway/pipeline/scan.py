"""Reading a range of positions as Arrow batches, without Spark.

A range is resolved to files when it is read, so segments may be written, closed or sealed between planning and reading.
Only positions decide: reading a range again gives the same rows.

A missing position is an error, unless skipping lost rows was asked for: Spark does not count rows and would continue
with fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from raceway.config import MIB
from raceway.errors import MissingRowsError
from raceway.journal.archive.reader import AnyReader
from raceway.journal.contract import Damage
from raceway.journal.query.search import position_at
from raceway.journal.read.rows import grouped, of_topics
from raceway.wires.captures.columns import as_bronze, journal_columns

# A bus that commits each message alone writes blocks of one row; Spark needs thousands per batch.
BATCH_ROWS = 16_384
BATCH_BYTES = 8 * MIB

MissingRange = tuple[int, int]
"""First and last position that did not come."""


@dataclass(frozen=True)
class PositionSpan:
    """Positions from `start` to `stop`, exclusive."""

    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def split(self, parts: int, least: int = 1) -> list[PositionSpan]:
        """Split into at most `parts` ranges of about equal length, none shorter than `least` unless alone."""
        count = max(1, min(parts, len(self) // least))
        edges = [self.start + len(self) * n // count for n in range(count + 1)]
        return [PositionSpan(low, high) for low, high in pairwise(edges) if low < high]


@dataclass(frozen=True)
class Selection:
    """A conjunction of conditions on rows; an empty one selects every row."""

    topics: tuple[str, ...] = ()  # names or patterns with + and #
    among: Mapping[str, frozenset[str]] = field(default_factory=dict)  # column to the values it may have
    from_us: int | None = None
    until_us: int | None = None  # inclusive
    with_control: bool = False

    def narrowed(self, column: str, values: Iterable[str]) -> Selection:
        """A copy with the condition that a column has one of these values."""
        wanted = frozenset(values)
        return replace(self, among={**self.among, column: self.among.get(column, wanted) & wanted})

    def since(self, time_us: int) -> Selection:
        return replace(self, from_us=time_us if self.from_us is None else max(self.from_us, time_us))

    def until(self, time_us: int) -> Selection:
        return replace(self, until_us=time_us if self.until_us is None else min(self.until_us, time_us))

    @property
    def columns(self) -> list[str]:
        """Columns needed to evaluate the conditions."""
        topic = ["topic"] if self.topics else []
        time = ["time_us"] if self.from_us is not None or self.until_us is not None else []
        return [*topic, *self.among, *time, *([] if self.with_control else ["kind"])]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter a batch that has `columns`."""
        conditions = list(self._conditions(batch))
        return batch.filter(reduce(pc.and_, conditions)) if conditions else batch

    def _conditions(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        if not self.with_control and batch.num_rows:
            kinds = batch.column("kind")
            if pc.any(pc.equal(kinds, "control")).as_py():
                yield pc.fill_null(pc.not_equal(kinds, "control"), True)
        if self.topics:
            yield of_topics(batch.column("topic"), self.topics)
        for column, values in self.among.items():
            yield pc.is_in(batch.column(column), pa.array(sorted(values), pa.string()))
        if self.from_us is not None:
            yield pc.greater_equal(batch.column("time_us"), pa.scalar(self.from_us, pa.int64()))
        if self.until_us is not None:
            yield pc.less_equal(batch.column("time_us"), pa.scalar(self.until_us, pa.int64()))


def read_span(
    reader: AnyReader,
    span: PositionSpan,
    columns: Sequence[str],
    selection: Selection,
    gaps: list[MissingRange] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the selected rows of a range, with these columns of bronze, in batches of a suitable size.

    Missing positions are added to `gaps`; without that list, raises MissingRowsError. Raises TrimmedError if retention
    removed the beginning of the range.
    """
    needed = list(dict.fromkeys([*journal_columns(columns), "sequence", *selection.columns]))
    found: list[MissingRange] = [] if gaps is None else gaps
    rows = _whole(reader.read(span.start, span.stop, needed), span, found)
    yield from gathered((as_bronze(selection.of(batch), columns) for batch in rows), BATCH_ROWS, BATCH_BYTES)
    if gaps is None and found:
        raise missing(reader, found)


def missing(reader: AnyReader, gaps: Sequence[MissingRange]) -> MissingRowsError:
    """The error for missing positions, with the reason that the journal knows."""
    first, last = gaps[0][0], gaps[-1][1]
    known = [_reason(d) for d in reader.damage if d.last >= first and d.first <= last and d.reason]
    rows = sum(last - first + 1 for first, last in gaps)
    return MissingRowsError(first, last, rows, known[0] if known else "no file of the journal contains them")


def _reason(damage: Damage) -> str:
    """The reason of a damage; for a gap between two files, which have no own one, the name of the file before it."""
    if damage.kind != "missing":
        return damage.reason
    return f"the file that followed {damage.file} is missing, or {damage.file} was truncated"


def _whole(batches: Iterable[pa.RecordBatch], span: PositionSpan, gaps: list[MissingRange]) -> Iterator[pa.RecordBatch]:
    """Pass the batches on, recording positions of the range that none of them contains."""
    expected = span.start
    for batch in batches:
        if not batch.num_rows:
            continue
        sequences = batch.column("sequence")
        first, last = sequences[0].as_py(), sequences[-1].as_py()
        if first > expected:
            gaps.append((expected, first - 1))
        if last - first + 1 != batch.num_rows:
            gaps += _holes(sequences)
        expected = last + 1
        yield batch
    if expected < span.stop:
        gaps.append((expected, span.stop - 1))


def _holes(sequences: pa.Array) -> list[MissingRange]:
    steps = pc.subtract(sequences[1:], sequences[:-1])
    at = pc.indices_nonzero(pc.greater(steps, 1)).to_pylist()
    return [(sequences[n].as_py() + 1, sequences[n + 1].as_py() - 1) for n in at]


def gathered(batches: Iterable[pa.RecordBatch], rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Concatenate batches up to a number of rows or bytes; never yields an empty one."""
    for group in grouped(batches, rows, size):
        yield from group if len(group) == 1 else pa.Table.from_batches(group).combine_chunks().to_batches()


def first_at(reader: AnyReader, time_us: int) -> int:
    """The first position whose `time_us` is not earlier than this; the position after the last one if there is none."""
    reader.follow()
    return position_at(reader.read, reader.first_position(), reader.committed() + 1, time_us)


def within_bytes(reader: AnyReader, span: PositionSpan, limit: int) -> int:
    """The position to stop at so that about `limit` bytes of files are read, and at least one row."""
    reader.follow()
    left = float(limit)
    for segment in reader.segments():
        first, last = max(segment.first, span.start), min(segment.last, span.stop - 1)
        if last < first:
            continue
        each = segment.size / max(1, segment.last - segment.first + 1)
        if each * (last - first + 1) >= left:
            return max(span.start + 1, min(span.stop, first + int(left / max(each, 1e-9))))
        left -= each * (last - first + 1)
    return span.stop
