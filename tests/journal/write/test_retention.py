"""Retention plans: nothing a cursor needs goes unless it is too much, and then the cursor is told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from raceway.config import Retention
from raceway.journal.files import Files
from raceway.journal.write.retention import CursorMove, Plan, held_path, plan, remove_segment
from raceway.journal.write.seal import seal_segment
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows

SECOND = 1_000_000
NOW = 1000 * SECOND


class FakeSegment(NamedTuple):
    """What planning asks about."""

    first: int
    last: int
    size: int
    newest_us: int
    offsets: Mapping[str, tuple[int, int]] = {}

    @property
    def path(self) -> Path:
        return Path(f"segment-{self.first}.blocks")

    @property
    def time_range_us(self) -> tuple[int, int]:
        return (0, self.newest_us)

    def topics(self) -> Mapping[str, tuple[int, int]]:
        return self.offsets


def segments(count: int = 5, size: int = 100) -> list[FakeSegment]:
    """Ten rows each, of topic `a`, a hundred seconds apart; the newest is of this moment."""
    return [
        FakeSegment(n * 10, n * 10 + 9, size, NOW - (count - 1 - n) * 100 * SECOND, {"a": (n * 10, n * 10 + 10)})
        for n in range(count)
    ]


def cursor(topic: str, offset: int) -> dict[str, Any]:
    return {"topic": topic, "offset": offset}


def test_by_default_everything_is_kept() -> None:
    assert plan(segments(), [], {}, NOW * 1000, Retention()) == Plan()


def test_segments_whose_newest_row_is_too_old_go() -> None:
    assert plan(segments(), [], {}, NOW, Retention(max_age_s=250)).remove == (0, 10)


def test_the_oldest_go_until_the_total_is_within_bounds() -> None:
    assert plan(segments(), [], {}, NOW, Retention(max_bytes=300)).remove == (0, 10)
    assert plan(segments(), [], {}, NOW, Retention(max_bytes=299)).remove == (0, 10, 20)


def test_the_active_segment_never_goes() -> None:
    assert plan(segments(), [], {}, NOW * 1000, Retention(max_age_s=1, max_bytes=1)).remove == (0, 10, 20, 30)
    assert plan(segments(1), [], {}, NOW * 1000, Retention(max_age_s=1, max_bytes=1)) == Plan()
    assert plan([], [], {}, NOW, Retention(max_age_s=1)) == Plan()


def test_a_young_segment_keeps_those_behind_it_whatever_their_clock_said() -> None:
    found = segments()
    found[1] = found[1]._replace(newest_us=NOW)
    assert plan(found, [], {}, NOW, Retention(max_age_s=50)).remove == (0,)


def test_a_cursor_keeps_what_it_has_not_passed() -> None:
    limits = Retention(max_age_s=50)
    assert plan(segments(), [], {"c": cursor("a", 0)}, NOW, limits).remove == ()
    assert plan(segments(), [], {"c": cursor("a", 19)}, NOW, limits).remove == (0,)
    assert plan(segments(), [], {"c": cursor("a", 20)}, NOW, limits).remove == (0, 10)
    assert plan(segments(), [], {"c": cursor("b", 0)}, NOW, limits).remove == (0, 10, 20, 30)


def test_beyond_max_pinned_the_cursor_moves_to_the_first_offset_left() -> None:
    limits = Retention(max_age_s=50, max_pinned=250)
    found = plan(segments(), [], {"c": cursor("a", 3), "d": cursor("a", 33)}, NOW, limits)
    assert found.remove == (0, 10)
    assert found.moves == (CursorMove("c", "a", 3, 20),)


def test_a_move_says_who_was_moved_and_what_was_skipped() -> None:
    text = str(CursorMove("billing", "orders", 3, 20))
    assert text == (
        "cursor 'billing' lagged too far behind: moved from offset 3 of topic 'orders' to 20, the first one left; "
        "17 offsets are skipped"
    )


def test_rows_of_held_topics_are_copied_before_their_segment_goes() -> None:
    limits = Retention(max_age_s=50, hold_s={"a": 350.0})
    found = plan(segments(), [], {}, NOW, limits)
    # The first segment is too old even for the hold, the next ones wait for their held files.
    assert found.remove == (0,)
    assert found.hold == {10: ("a",), 20: ("a",), 30: ("a",)}


def test_once_its_held_file_exists_the_segment_goes() -> None:
    limits = Retention(max_age_s=50, hold_s={"a": 350.0})
    held = [segments()[1]]
    found = plan(segments(), held, {}, NOW, limits)
    assert found.remove == (0, 10)
    assert found.hold == {20: ("a",), 30: ("a",)}
    assert found.remove_held == ()


def test_patterns_choose_what_is_held_and_the_longest_time_counts() -> None:
    topics = {"a.b": (0, 5), "a.c.d": (0, 5), "x": (0, 5), "raceway.rejected": (0, 1)}
    found = [FakeSegment(0, 9, 100, NOW - 200 * SECOND, topics), FakeSegment(10, 19, 100, NOW)]
    hold = {"a.#": 100.0, "+.b": 300.0, "#": 1.0, "raceway.#": 201.0}
    assert plan(found, [], {}, NOW, Retention(max_age_s=50, hold_s=hold)).hold == {0: ("a.b", "raceway.rejected")}


def test_a_cursor_whose_rows_are_held_keeps_its_place_and_keeps_nothing_else() -> None:
    limits = Retention(max_age_s=50, hold_s={"a": 1e9})
    found = plan(segments(), segments()[:4], {"c": cursor("a", 3)}, NOW, limits)
    assert found.remove == (0, 10, 20, 30)
    assert found.moves == ()


def test_held_files_go_when_their_time_is_over_and_cursors_have_passed() -> None:
    held = segments()[:3]
    active = segments()[4:]
    limits = Retention(max_age_s=50, hold_s={"a": 250.0})
    assert plan(active, held, {}, NOW, limits).remove_held == (0, 10)
    assert plan(active, held, {"c": cursor("a", 5)}, NOW, limits).remove_held == ()
    pressed = Retention(max_age_s=50, hold_s={"a": 250.0}, max_pinned=150)
    found = plan(active, held, {"c": cursor("a", 5)}, NOW, pressed)
    assert found.remove_held == (0,)
    assert found.moves == (CursorMove("c", "a", 5, 10),)


def test_held_files_of_a_pattern_that_is_no_longer_set_go() -> None:
    assert plan(segments()[4:], segments()[:3], {}, NOW, Retention()).remove_held == (0, 10, 20)


def test_a_clock_that_went_back_removes_nothing() -> None:
    assert plan(segments(), [], {}, 0, Retention(max_age_s=50, hold_s={"b": 1.0})) == Plan()


def test_only_what_may_be_due_is_asked_for_its_topics() -> None:
    class Closed(FakeSegment):
        def topics(self) -> Mapping[str, tuple[int, int]]:
            raise AssertionError("not due, so it is not opened")

    found = [*segments()[:1], *(Closed(*segment) for segment in segments()[1:])]
    assert plan(found, [], {"c": cursor("a", 99)}, NOW, Retention(max_age_s=350)).remove == (0,)


# ---- properties -----------------------------------------------------------------------------------------------------

TOPICS = ("a", "a.b", "c")


@st.composite
def journals(draw: st.DrawFn) -> list[FakeSegment]:
    """Segments in order, each topic's offsets dense over all of them."""
    following = dict.fromkeys(TOPICS, 0)
    first, time_us, found = 0, 0, []
    for _ in range(draw(st.integers(1, 8))):
        offsets = {}
        for topic in draw(st.sets(st.sampled_from(TOPICS))):
            count = draw(st.integers(1, 9))
            offsets[topic] = (following[topic], following[topic] + count)
            following[topic] += count
        time_us += draw(st.integers(0, 200)) * SECOND
        found.append(FakeSegment(first, first + 9, draw(st.integers(1, 100)), time_us, offsets))
        first += 10
    return found


cursors = st.dictionaries(
    st.sampled_from("xyz"),
    st.builds(cursor, st.sampled_from(TOPICS), st.integers(0, 60)),
)
limits = st.builds(
    Retention,
    max_age_s=st.sampled_from([0, 50, 300]),
    max_bytes=st.sampled_from([0, 1, 100, 250]),
    max_pinned=st.sampled_from([0, 1, 100]),
    hold_s=st.dictionaries(st.sampled_from(["a", "a.#", "+"]), st.sampled_from([1.0, 400.0, 1e9]), max_size=2),
)


@given(journals(), cursors, limits)
def test_what_goes_is_a_beginning_of_the_journal_and_never_the_active_segment(
    found: list[FakeSegment], wanted: dict[str, dict[str, Any]], retention: Retention
) -> None:
    remove = plan(found, [], wanted, found[-1].newest_us, retention).remove
    assert remove == tuple(segment.first for segment in found[: len(remove)])
    assert len(remove) < len(found)


@given(journals(), cursors, limits)
def test_a_cursor_loses_rows_only_beyond_max_pinned_and_is_then_moved_to_the_first_left(
    found: list[FakeSegment], wanted: dict[str, dict[str, Any]], retention: Retention
) -> None:
    result = plan(found, [], wanted, found[-1].newest_us, retention)
    gone = [segment for segment in found if segment.first in result.remove]
    moved = {move.key: move for move in result.moves}
    for key, position in wanted.items():
        topic, offset = position["topic"], position["offset"]
        lost = max((segment.offsets[topic][1] for segment in gone if topic in segment.offsets), default=0)
        if offset < lost:
            assert retention.max_pinned
            assert moved[key] == CursorMove(key, topic, offset, lost)
        else:
            assert key not in moved


@given(journals(), cursors, limits)
def test_without_pins_the_limits_are_met_and_with_max_pinned_the_excess_is_bounded(
    found: list[FakeSegment], wanted: dict[str, dict[str, Any]], retention: Retention
) -> None:
    now = found[-1].newest_us
    free = plan(found, found, {}, now, retention)  # as if all rows that are to be held were copied
    left = [segment for segment in found if segment.first not in free.remove]
    if retention.max_bytes and len(left) > 1:
        assert sum(segment.size for segment in left) <= retention.max_bytes
    assert free.moves == ()
    kept = plan(found, found, wanted, now, retention)
    due = [segment for segment in found if segment.first in free.remove]
    pinned = sum(segment.size for segment in due if segment.first not in kept.remove)
    assert pinned <= retention.max_pinned or not retention.max_pinned


@given(journals(), cursors, limits)
def test_a_segment_with_rows_to_hold_goes_only_after_they_were_copied(
    found: list[FakeSegment], wanted: dict[str, dict[str, Any]], retention: Retention
) -> None:
    now = found[-1].newest_us
    first = plan(found, [], wanted, now, retention)
    assert not set(first.remove) & set(first.hold)
    copies = [segment for segment in found if segment.first in first.hold]
    second = plan(found, copies, wanted, now, retention)
    assert set(second.remove) >= set(first.remove) | set(first.hold)
    assert second.remove_held == ()


# ---- removal --------------------------------------------------------------------------------------------------------


def test_removing_a_segment_takes_all_its_files_and_no_other(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 100), rows(100, 10)])
    seal_segment(folder, f"segment-{0:020}", 64)
    remove_segment(Files(), folder / f"segment-{0:020}.parquet")
    assert {path.name for path in folder.iterdir()} == {f"segment-{100:020}.blocks", "identity", "committed"}
    remove_segment(Files(), folder / f"segment-{0:020}.blocks")  # a repeat does nothing


def test_held_files_are_named_by_the_positions_they_come_from(tmp_path: Path) -> None:
    assert held_path(tmp_path, 5, 99).name == "held-00000000000000000005-00000000000000000099.parquet"
