"""Finding traces among many rows; the journal's rows are those of a reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.errors import TrimmedError
from raceway.journal.query.traces import TraceSearch, maybe_trace
from raceway.model.traces import Trace
from tests.rigs.journal_rows import batch

TIME = 1_700_000_000_000_000


class Rows:
    """Rows in memory, read as a journal is read."""

    def __init__(self, rows: Sequence[dict[str, Any]], first: int = 0) -> None:
        self.rows = [self._usual(n) | row for n, row in enumerate(rows, first)]
        self.first = first
        self.most = 0

    @staticmethod
    def _usual(n: int) -> dict[str, Any]:
        return {
            "partition": 0, "sequence": n, "topic": "t", "offset": n, "time_us": TIME + n, "wire": "mb",
            "kind": "publish", "message_id": f"m{n}", "correlation_id": f"m{n}",
        }  # fmt: skip

    def read(
        self, start: int, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        chosen = self.rows[max(start - self.first, 0) : None if stop is None else stop - self.first]
        self.most = max(self.most, len(chosen))
        found = batch(chosen)
        yield found if columns is None else found.select(list(columns))

    def read_topic(
        self, topic: str, offset: int, max_rows: int = 100, max_bytes: int = 0, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if offset < self.first:
            raise TrimmedError(offset, self.first, topic)
        found = batch([row for row in self.rows if row["topic"] == topic and row["offset"] >= offset][:max_rows])
        yield found if columns is None else found.select(list(columns))

    def search(self, wanted: str, rows: int = 10**9, max_rows: int = 10_000, **options: Any) -> Trace | None:
        search = TraceSearch(
            read=self.read, read_topic=self.read_topic, first=self.first, end=self.first + len(self.rows), rows=rows,
            window=7, max_rows=max_rows,
        )  # fmt: skip
        return maybe_trace(search, wanted, **options)


def chain() -> Rows:
    """A request, its child, the child's answer and its own, far apart; others between."""
    rows: list[dict[str, Any]] = [{} for _ in range(100)]
    rows[10] = {"kind": "request", "message_id": "root", "correlation_id": "root", "forwarded_id": "masked"}
    rows[40] = {"kind": "request", "message_id": "child", "correlation_id": "root", "parent_id": "root", "wire": "zbus"}
    rows[41] = {"kind": "response", "message_id": "child", "correlation_id": "root", "answers": 40, "offset": None}
    rows[90] = {"kind": "response", "message_id": "root", "correlation_id": "root", "answers": 10, "offset": None}
    return Rows(rows)


@pytest.mark.parametrize("wanted", ["root", "child", "masked"])
def test_any_id_of_a_chain_finds_all_of_it(wanted: str) -> None:
    trace = chain().search(wanted)
    assert trace is not None
    assert (trace.correlation_id, trace.messages, trace.truncated) == ("root", 4, False)
    assert [(span.position, span.parent, span.answer) for span in trace.spans] == [(10, None, 90), (40, 10, 41)]


def test_no_window_is_larger_than_set() -> None:
    rows = chain()
    rows.search("root")
    assert rows.most == 7


def test_an_id_nobody_has_is_not_found() -> None:
    assert chain().search("nobody") is None


def test_a_chain_goes_on_over_a_restart_by_the_id_it_was_handed_out_under() -> None:
    rows = chain()
    rows.rows[95] |= {"message_id": "after", "correlation_id": "masked", "parent_id": "masked"}
    trace = rows.search("root")
    assert trace is not None
    assert [span.position for span in trace.spans] == [10, 40, 95]


def test_the_newest_of_two_chains_with_one_id_is_shown() -> None:
    rows = chain()
    rows.rows[95] |= {"message_id": "root", "correlation_id": "root", "kind": "request"}
    trace = rows.search("root")
    assert trace is not None
    assert [span.position for span in trace.spans] == [95]


def test_a_search_keeps_to_its_budget_and_says_so() -> None:
    found = chain().search("root", rows=14)  # its newest row is in reach, the others are not
    assert found is not None
    assert found.truncated
    assert found.messages == 1
    assert found.searched_rows <= 3 * 21
    assert chain().search("child", rows=14) is None


def test_a_known_topic_saves_the_search_through_the_others() -> None:
    rows = chain()
    for position in (10, 40, 41, 90):
        rows.rows[position]["topic"] = "math"
    rows.rows[10]["offset"], rows.rows[40]["offset"] = 0, 1
    rows.rows[41]["offset"] = rows.rows[90]["offset"] = -1
    trace = rows.search("child", topic=("math", 2))
    assert trace is not None
    assert [span.position for span in trace.spans] == [10, 40]
    assert rows.search("m99", topic=("math", 2)) is None


def test_rows_of_a_topic_that_are_gone_are_stepped_over() -> None:
    rows = Rows([{} for _ in range(20)], first=50)
    trace = rows.search("m60", topic=("t", 70))
    assert trace is not None
    assert trace.spans[0].position == 60


@pytest.mark.parametrize(
    ("since", "until", "found"), [(35, None, True), (35, 38, False), (95, None, False), (None, 45, True)]
)
def test_times_narrow_where_an_id_is_looked_for(since: int | None, until: int | None, found: bool) -> None:
    times: dict[str, Any] = {
        name: None if n is None else TIME + n for name, n in (("since_us", since), ("until_us", until))
    }
    assert (chain().search("child", **times) is not None) == found


def test_a_stream_that_shares_one_id_is_cut() -> None:
    rows = Rows([{"message_id": "same", "correlation_id": "root"} for _ in range(100)])
    trace = rows.search("root", max_rows=20)
    assert trace is not None
    assert trace.truncated
    assert trace.messages == 20


@settings(max_examples=30)
@given(st.data())
def test_every_chain_of_any_journal_is_found_whole(data: st.DataObject) -> None:
    rows: list[dict[str, Any]] = []
    for n in range(data.draw(st.integers(1, 60))):
        parent = data.draw(st.none() | st.integers(0, n - 1)) if n else None
        root = f"m{n}" if parent is None else rows[parent]["correlation_id"]
        rows.append(
            {"message_id": f"m{n}", "correlation_id": root, "parent_id": None if parent is None else f"m{parent}"}
        )
    wanted = data.draw(st.integers(0, len(rows) - 1))
    trace = Rows(rows).search(f"m{wanted}")
    assert trace is not None
    root = rows[wanted]["correlation_id"]
    assert sorted(span.position for span in trace.spans) == [
        n for n, row in enumerate(rows) if row["correlation_id"] == root
    ]
    for span in trace.spans:
        assert rows[span.position]["parent_id"] == (None if span.parent is None else f"m{span.parent}")
