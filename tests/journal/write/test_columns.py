"""How columns are stored: constants, runs, ramps, plain items."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.journal.format import PLAIN, RAMP, RUNS, Meta
from raceway.journal.read.rows import decode_rows
from raceway.journal.write.columns import Layout, lay_out, word_sum
from tests.rigs.journal import BytesSource, buffer_of


def stored(name: str, values: list[Any], counts: list[int]) -> Layout:
    layout = Layout(sum(counts))
    layout.add(name, values, counts)
    return layout


def read_back(layout: Layout, name: str) -> list[Any]:
    body = layout.body()
    meta = Meta(layout.columns, layout.constants, [], b"", 0)
    batch = decode_rows(meta, 0, layout.rows, buffer_of(BytesSource(body)), 0, layout.rows, [name])
    found: list[Any] = batch.column(name).to_pylist()
    return found


def encodings(layout: Layout) -> list[int]:
    return [column.encoding for column in layout.columns]


def test_a_value_that_all_batches_share_is_a_constant() -> None:
    layout = stored("producer", [b"desk", b"desk"], [3, 2])
    assert (layout.constants, layout.columns, layout.body()) == ({"producer": b"desk"}, [], b"")
    assert read_back(layout, "producer") == ["desk"] * 5


def test_a_column_nobody_used_costs_nothing() -> None:
    layout = lay_out([{"payload": [b"x"]}, {"payload": [b"y"], "error": None, "reply_to": [None]}], [1, 1])
    assert [column.name for column in layout.columns] == ["payload"]


def test_values_that_change_from_batch_to_batch_are_runs() -> None:
    layout = stored("topic", [b"a", b"b", b"b", b"a"], [4, 3, 3, 4])
    assert encodings(layout) == [RUNS]
    assert layout.columns[0].items == 3
    assert read_back(layout, "topic") == ["a"] * 4 + ["b"] * 6 + ["a"] * 4


def test_runs_may_be_absent_in_some_batches() -> None:
    layout = stored("producer", [b"a", None, b"c"], [4, 4, 4])
    assert encodings(layout) == [RUNS]
    assert read_back(layout, "producer") == ["a"] * 4 + [None] * 4 + ["c"] * 4


def test_short_runs_are_stored_plainly() -> None:
    layout = stored("topic", [b"a", b"b", b"c"], [1, 1, 1])
    assert encodings(layout) == [PLAIN]
    assert read_back(layout, "topic") == ["a", "b", "c"]


def test_offsets_that_go_on_from_batch_to_batch_are_one_ramp() -> None:
    layout = stored("offset", [range(5, 9), range(9, 10), range(10, 14)], [4, 1, 4])
    assert encodings(layout) == [RAMP]
    assert layout.columns[0].items == 1
    assert read_back(layout, "offset") == list(range(5, 14))


def test_ramps_of_several_topics_with_rows_without_offset_between_them() -> None:
    layout = stored("offset", [range(5, 9), None, range(100, 104), range(9, 13)], [4, 4, 4, 4])
    assert encodings(layout) == [RAMP]
    assert read_back(layout, "offset") == [*range(5, 9), *[None] * 4, *range(100, 104), *range(9, 13)]


def test_lists_values_and_absences_may_be_mixed() -> None:
    layout = stored("message_id", [[b"1", None], b"same", None], [2, 2, 1])
    assert encodings(layout) == [PLAIN]
    assert read_back(layout, "message_id") == ["1", None, "same", "same", None]


def test_buffers_begin_at_multiples_of_eight() -> None:
    layout = lay_out([{"payload": [b"x", b"yy", b"zzz"], "timeout_ms": [1, None, 3]}], [3])
    assert all(position % 8 == 0 for column in layout.columns for position, _ in column.parts)
    assert len(layout.body()) % 8 == 0


def test_the_word_sum_adds_words_without_losing_carries() -> None:
    assert word_sum(b"") == 0
    assert word_sum(b"\xff" * 8) == 2 * (2**32 - 1)
    assert word_sum((5).to_bytes(4, "little") + (7).to_bytes(4, "little")) == 12


@pytest.mark.parametrize("value", [2**63, "not bytes at all \ud800", object()])
def test_a_value_that_does_not_fit_its_column_is_an_error(value: object) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        stored("timeout_ms", [[value]], [1])


_item = st.none() | st.binary(max_size=4)


@given(
    st.lists(
        st.one_of(
            st.lists(_item, min_size=1, max_size=5),
            st.tuples(_item, st.integers(1, 5)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_whatever_a_column_is_made_of_its_items_come_back(parts: list[Any]) -> None:
    values = [part[0] if type(part) is tuple else part for part in parts]
    counts = [part[1] if type(part) is tuple else len(part) for part in parts]
    expected = [item for part in parts for item in ([part[0]] * part[1] if type(part) is tuple else part)]
    found = read_back(stored("payload", values, counts), "payload")
    assert found == [item or b"" for item in expected]
