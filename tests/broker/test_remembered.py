from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.remembered import PARTS, Remembered


@given(st.integers(1, 100), st.lists(st.one_of(st.integers(0, 40), st.lists(st.integers(0, 40)))))
def test_the_newest_are_there_with_their_last_value(kept: int, keys: list[int | list[int]]) -> None:
    table: Remembered[int, tuple[int, int]] = Remembered(kept)
    put: list[tuple[int, tuple[int, int]]] = []
    for turn, key in enumerate(keys):
        if isinstance(key, int):
            table.put(key, (turn, key))
            put.append((key, (turn, key)))
        else:
            entries = {each: (turn, each) for each in key}
            table.put_all(entries)
            put += entries.items()
    last = dict(put)
    for key, _ in put[-kept:]:
        assert table.get(key) == last[key]
    assert table.get(41) is None


def test_the_oldest_leave() -> None:
    table: Remembered[int, int] = Remembered(160)
    for key in range(10_000):
        table.put(key, key)
        assert len(table) < 160 + 160 // PARTS
    assert [table.get(key) for key in (0, 9_000, 9_839)] == [None, None, None]
    assert [table.get(key) for key in range(9_840, 10_000)] == [*range(9_840, 10_000)]


def test_entries_of_many_rows_are_bounded_by_their_rows() -> None:
    table: Remembered[str, int] = Remembered(160)
    for number in range(100):
        table.put(f"of {number}", number, rows=20)
    assert len(table) == 160 / 20
    assert (table.get("of 91"), table.get("of 92"), table.get("of 99")) == (None, 92, 99)
    table.put("large", 100, rows=1000)
    assert (len(table), table.get("large")) == (1, 100), "the newest stays, whatever its size"
