"""Search for rows, newest first, a limited amount of work per call.

A search goes backwards from a position in windows of rows. Each window is read at most twice: once for the columns that
the criteria need, and again, completely, where something matched. When the budget is spent the result says where to
continue; the caller asks again from there. So a search of any size is a series of small ones, none of which delays
other users, and its progress can be shown.

Everything here may run in any thread, or in another process that reads the same files.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from raceway.errors import MalformedError, TrimmedError
from raceway.journal.contract import SearchedRows
from raceway.journal.format import Batches, Columns
from raceway.journal.read.rows import grouped, of_topic

# The first window is small, because most searches are for recent rows; then they double.
FIRST_WINDOW, LARGEST_WINDOW = 1024, 65_536
# Batches are joined up to these limits, and then matched together.
JOINED_ROWS, JOINED_BYTES = 16_384, 16 * 1024 * 1024
LARGEST = (1 << 63) - 1  # value of an int64 column
ID_COLUMNS = ("message_id", "correlation_id", "parent_id", "forwarded_id")
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\['([^']*)'\]""")
_json = msgspec.json.Decoder()

Path = tuple[str | int, ...]
# `read` of a journal, or of a reader of its files.
Read = Callable[[int, int | None, Columns], Batches]


SinceUs = Annotated[int, Meta(description="Not before this time, in microseconds since 1970.", ge=0, le=LARGEST)]
UntilUs = Annotated[int, Meta(description="Before this time, in microseconds since 1970.", ge=0, le=LARGEST)]


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of a search; all that are given must hold. Names and values are compared exactly."""

    topic: Annotated[str, Meta(description="A topic, or a pattern with + and #.")] = ""
    wire: Annotated[str, Meta(description="mb, danube, zbus, seneca or http.")] = ""
    kind: Annotated[str, Meta(description="publish, request or response.")] = ""
    id: Annotated[str, Meta(description="A message id, correlation id, parent id, or id minted for delivery.")] = ""
    producer: Annotated[str, Meta(description="The producer of the message.")] = ""
    since_us: SinceUs = 0
    until_us: UntilUs | None = None
    failed: Annotated[bool, Meta(description="Only answers that report a failure of the service, or came late.")] = (
        False
    )
    attribute: Annotated[str, Meta(description="The message has this attribute (on zbus: header).")] = ""
    attribute_value: Annotated[str | None, Meta(description="The attribute has this value.")] = None
    path: Annotated[str, Meta(description="The JSON payload has a value at this path: $.order.lines[0]")] = ""
    path_value: Annotated[str | None, Meta(description="The value at the path: JSON, or text without quotes.")] = None
    text: Annotated[str, Meta(description="The payload contains this text.")] = ""


class Found(msgspec.Struct, kw_only=True):
    """Matching rows, newest first.

    `scanned` positions were searched; the search continues below `before`, or is complete if that is None. `oldest` and
    `newest` bound the whole search.
    """

    rows: list[dict[str, Any]]
    scanned: int
    before: int | None
    oldest: int
    newest: int


def search(
    journal: SearchedRows,
    criteria: Criteria,
    *,
    before: int | None = None,
    limit: int = 50,
    max_rows: int = 200_000,
    max_s: float = 1.0,
    hidden: frozenset[str] = frozenset(),
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Return the newest rows below `before` that match. Rows of `hidden` topics are skipped. Raises MalformedError."""
    judge = _Judge(criteria, hidden)
    oldest, newest = position_bounds(journal, criteria.since_us, criteria.until_us)
    high = newest if before is None else max(min(before, newest), oldest)
    found = Found(rows=[], scanned=0, before=high, oldest=oldest, newest=newest)
    window, deadline = FIRST_WINDOW, clock() + max_s
    while high > oldest and len(found.rows) < limit and found.scanned < max_rows and clock() < deadline:
        low = max(oldest, high - min(window, max_rows - found.scanned))
        rows = _matching(journal, judge, low, high, limit - len(found.rows))
        found.rows += rows
        # A full page ends at its last row: matches below it in this window belong to the next page.
        low = rows[-1]["sequence"] if len(found.rows) == limit else low
        found.scanned += high - low
        high, window = low, min(2 * window, LARGEST_WINDOW)
    found.before = high if high > oldest else None
    return found


def position_at(read: Read, first: int, end: int, time_us: int) -> int:
    """Bisect for the first position from `first` on whose row is not older than this time; `end` if there is none."""
    # Times never decrease along positions: `Intake.append` sees to that.
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        known = _maybe_time(read, middle, high)
        # None: no row from the middle on can be read, so the answer, if any, lies below.
        if known is None or known >= time_us:
            high = middle
        else:
            low = middle + 1
    return low


def position_bounds(journal: SearchedRows, since_us: int | None, until_us: int | None) -> tuple[int, int]:
    """Return the range of positions between two times; None or 0 as the earlier one: from the first row on."""
    oldest, newest = journal.first_position(), journal.committed + 1
    if since_us:
        oldest = position_at(journal.read, oldest, newest, since_us)
    if until_us is not None:
        newest = position_at(journal.read, oldest, newest, until_us)
    return oldest, max(oldest, newest)


def parse_path(text: str) -> Path:
    """Parse `$.order.lines[0]["unit price"]` into keys and numbers. Raises MalformedError."""
    rest, at = text.strip().removeprefix("$"), 0
    steps: list[str | int] = []
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None:
            raise MalformedError(f"{text!r} is not a path; write it like $.order.lines[0].sku")
        name, number, quoted, single = step.groups()
        if number is not None:
            # 18 digits fit into 63 bits; Python refuses to parse thousands of digits, and no list is that long.
            steps.append(int(number[:18]))
        else:
            steps.append(name or (_unquoted(text, quoted) if quoted is not None else single))
        at = step.end()
    if not steps:
        raise MalformedError(f"{text!r} is an empty path; write it like $.order.lines[0].sku")
    return tuple(steps)


def maybe_at_path(document: Any, path: Path) -> Any:
    """Return the value at the path; `msgspec.UNSET` if there is none. A number also names a key of an object."""
    for step in path:
        if isinstance(document, dict):
            document = document.get(str(step), msgspec.UNSET)
        elif isinstance(document, list) and isinstance(step, int) and step < len(document):
            document = document[step]
        else:
            return msgspec.UNSET
    return document


def _unquoted(text: str, quoted: str) -> str:
    """Return the text of a quoted key. Raises MalformedError."""
    try:
        return msgspec.json.decode(f'"{quoted}"', type=str)
    except msgspec.DecodeError as error:
        raise MalformedError(f"{text!r} is not a path: {error}") from error


def _maybe_time(read: Read, position: int, stop: int) -> int | None:
    """Return the time of the first readable row from this position on; None if there is none."""
    found = next(filter(len, _read(read, position, stop, ("time_us",))), None)
    return None if found is None else int(found.column("time_us")[0].as_py())


def _read(read: Read, start: int, stop: int, columns: Columns) -> Batches:
    """Yield rows, skipping what retention has removed."""
    try:
        yield from read(start, stop, columns)
    except TrimmedError as error:  # removed since the bounds were computed
        if error.first < stop:
            yield from read(error.first, stop, columns)


def _matching(journal: SearchedRows, judge: _Judge, low: int, high: int, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` newest matches of a window, newest first."""
    sequences: list[int] = []
    begins: list[int] = []
    for batch, borders in joined(_read(journal.read, low, high, judge.columns)):
        sequences += judge.matching(batch).column("sequence").to_pylist()
        begins += borders
    sequences = sequences[-limit:]
    found = []
    # Grouped by the block they lie in: of each block only the range from its first to its last match is read.
    for _, group in groupby(sequences, key=lambda sequence: bisect_right(begins, sequence)):
        chosen = list(group)
        wanted = pa.array(chosen, pa.int64())
        found += [
            batch.filter(pc.is_in(batch.column("sequence"), wanted))
            for batch in _read(journal.read, chosen[0], chosen[-1] + 1, None)
        ]
    rows: list[dict[str, Any]] = pa.Table.from_batches(found).to_pylist() if found else []
    rows.reverse()
    return rows


def joined(batches: Batches) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Yield batches joined to larger ones, with the first sequence of each part."""
    for group in grouped(batches, JOINED_ROWS, JOINED_BYTES):
        yield pa.concat_batches(group), [each.column("sequence")[0].as_py() for each in group]


def has_id(batch: pa.RecordBatch, columns: Sequence[str], ids: list[str]) -> pa.Array:
    """Return a mask of the rows that have one of the ids in one of the columns."""
    values = pa.array(ids, pa.string())
    # `is_in` gives false for null, where `equal` would give null and spoil the `or`.
    found = pc.is_in(batch.column(columns[0]), values)
    for name in columns[1:]:
        found = pc.or_(found, pc.is_in(batch.column(name), values))
    return found


class _Judge:
    """Decides which rows of a batch match: by columns first, by the content of payloads last."""

    def __init__(self, criteria: Criteria, hidden: frozenset[str]) -> None:
        self._criteria, self._hidden = criteria, pa.array(sorted(hidden), pa.string())
        self._path = parse_path(criteria.path) if criteria.path else None
        self._values = _meant(criteria.path_value)
        self._tests = list(self._chosen_tests())
        asked = [name for name, _ in self._tests if name != "*"]
        asked += [*(ID_COLUMNS if criteria.id else ()), *(("payload",) if self._path else ())]
        self.columns = list(dict.fromkeys(("sequence", *asked)))

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the matching rows."""
        # Filtered after each test: the expensive ones at the end see few rows.
        for name, test in self._tests:
            if not batch.num_rows:
                break
            batch = batch.filter(test(batch if name == "*" else batch.column(name)))
        return self._by_path(batch) if self._path is not None and batch.num_rows else batch

    def _chosen_tests(self) -> Iterator[tuple[str, Callable[[Any], Any]]]:
        """Yield (column, test) for each criterion, cheap ones first; `*` gets the whole batch."""
        criteria = self._criteria
        # Control rows are internal state of the bus: tokens, schemas, cursors.
        yield "kind", lambda kind: pc.not_equal(kind, "control")
        for name in ("kind", "wire", "producer"):
            if wanted := getattr(criteria, name):
                yield name, partial(pc.equal, wanted)
        if criteria.topic:
            yield "topic", lambda topics: of_topic(topics, criteria.topic)
        if len(self._hidden):
            yield "topic", lambda topic: pc.invert(pc.is_in(topic, self._hidden))
        if criteria.failed:
            yield "error", pc.is_valid
        if criteria.id:
            yield "*", lambda batch: has_id(batch, ID_COLUMNS, [criteria.id])
        if criteria.attribute:
            yield "attributes", self._has_attribute
        if criteria.text:
            yield "payload", lambda payload: pc.match_substring(payload, criteria.text.encode())

    def _has_attribute(self, attributes: Any) -> Any:
        """Return a mask of the rows that have the attribute, with the value if one is given."""
        values = pc.map_lookup(attributes, pa.scalar(self._criteria.attribute), "last")
        wanted = self._criteria.attribute_value
        return pc.is_valid(values) if wanted is None else pc.equal(values, wanted)

    def _by_path(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose payload matches the path criteria."""
        payloads = batch.column("payload")
        if len(self._values) == 1 and isinstance(text := self._values[0], str) and text.isascii() and text.isalnum():
            # Only a payload that contains the text can have it as a value, unless it is written with escapes.
            maybe = pc.or_(pc.match_substring(payloads, text.encode()), pc.match_substring(payloads, b"\\"))
            batch = batch.filter(maybe)
        return batch.filter(
            pa.array([self._is_at_path(payload) for payload in batch.column("payload").to_pylist()], pa.bool_())
        )

    def _is_at_path(self, payload: bytes | None) -> bool:
        """Return whether a payload has a wanted value at the path. A payload that is not JSON has none."""
        try:
            value = maybe_at_path(_json.decode(payload or b""), self._path or ())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if value is msgspec.UNSET:
            return False
        # Types are compared too: in Python True equals 1, in JSON it does not.
        return not self._values or any(type(value) is type(v) and value == v for v in self._values)


def _meant(value: str | None) -> list[Any]:
    """Return the values that a search text may mean: 17 is a number and a text, "17" is only a text."""
    if value is None:
        return []
    try:
        parsed = _json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return [value]
    if isinstance(parsed, str):
        return [parsed]
    # JSON has one kind of number: 17 and 17.0 are the same value in two spellings.
    twin: list[Any] = [float(parsed)] if type(parsed) is int else []
    if isinstance(parsed, float) and parsed.is_integer():
        twin = [int(parsed)]
    return [parsed, *twin, value]
