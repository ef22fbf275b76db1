"""The sum of control rows, and its snapshots."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raceway.journal.state import State, decode_row, encode_row, maybe_decode_snapshot

_json = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def test_later_rows_replace_earlier_ones_and_none_removes() -> None:
    state = State()
    state.put("cursors", "a", 1)
    state.put("cursors", "a", 2)
    state.put("cursors", "b", 3)
    state.put("cursors", "b", None)
    state.put("never", "seen", None)
    assert (state.get("cursors", "a"), state.get("cursors", "b"), state.get("x", "y")) == (2, None, None)
    assert dict(state.section("cursors")) == {"a": 2}
    assert dict(state.section("never")) == {}


@given(st.text(max_size=8), st.text(max_size=8), st.none() | _json)
def test_a_control_row_comes_back_from_its_payload(section: str, key: str, value: Any) -> None:
    assert decode_row(encode_row(section, key, value)) == (section, key, value)


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), _json, max_size=3), max_size=3))
def test_a_snapshot_holds_everything(sections: dict[str, dict[str, Any]]) -> None:
    state = State()
    state.next_offsets = {"a": 7, "Größe": 0}
    state.time_us = 99
    state.skip(5)
    for section, entries in sections.items():
        for key, value in entries.items():
            state.put(section, key, value)
    found = maybe_decode_snapshot(state.encode_snapshot(41, "source"))
    assert found is not None
    sequence, source, again = found
    assert (sequence, source, again.next_offsets, again.time_us) == (41, "source", {"a": 12, "Größe": 5}, 99)
    assert (again.next_offset("a"), again.next_offset("never heard of")) == (12, 5)
    for section, entries in sections.items():
        assert dict(again.section(section)) == entries


def test_a_damaged_snapshot_is_mended_or_none() -> None:
    state = State()
    state.put("s", "k", "value")
    data = state.encode_snapshot(1, "source")
    for bit in range(0, 8 * len(data), 5):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        found = maybe_decode_snapshot(bytes(damaged))
        assert found is not None
        assert found[2].get("s", "k") == "value"
    for worse in (b"", bytes(len(data)), data[:-3], data[:20]):
        assert maybe_decode_snapshot(worse) is None


def test_offsets_only_go_forward() -> None:
    state = State()
    state.reached("a", 7)
    state.reached("a", 3)
    assert (state.next_offset("a"), state.next_offset("b")) == (7, 0)
    state.skip(10)
    assert (state.next_offset("a"), state.next_offset("b")) == (17, 10)
