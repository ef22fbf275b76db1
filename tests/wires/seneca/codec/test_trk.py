"""The history of a flow: entries, times, the web dialect's call chain, and what is left of a hostile one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from raceway.model.envelope import Hop
from raceway.wires.seneca.codec.trk import (
    MAX_HOPS,
    answered,
    closed,
    limited,
    parents_of,
    read_parents,
    read_trace,
    read_trk,
    received,
    started,
    with_children,
)
from tests.rigs.seneca_calls import told

hops = st.lists(
    st.builds(
        Hop, sid=st.text(max_size=3), mid=st.text("m12", min_size=1, max_size=2), tms=st.tuples(st.integers(0, 9))
    )
).map(tuple)


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def test_an_entry_has_four_times() -> None:
    trk = started((), "A", "m1", 0)
    trk = received(trk, "A", "m1", "B", 1)
    assert told(trk) == [{"sid": "A", "rid": "B", "mid": "m1", "tms": [0, 1]}]
    trk = answered(trk, "m1", 2)
    assert told(closed(trk, "m1", 3))[0]["tms"] == [0, 1, 2, 3]


def test_the_first_request_lists_its_sender_too() -> None:
    assert told(started((), "A", "m1", 5)) == [{"sid": "A", "mid": "m1", "tms": [5]}]


def test_an_instance_may_stand_many_times() -> None:
    trk = started(started((), "A", "m1", 0), "A", "m2", 1)
    assert [hop.sid for hop in trk] == ["A", "A"]


def test_entries_are_found_by_the_hops_own_id_never_by_place() -> None:
    trk = (Hop(sid="A", mid="m1", tms=(0,)), Hop(sid="B", mid="m2", tms=(1,)))
    assert told(received(trk, "A", "m1", "X", 7))[0] == {"sid": "A", "rid": "X", "mid": "m1", "tms": [0, 7]}
    assert received(trk, "A", "m1", "X", 7)[1] == trk[1]


def test_of_two_entries_with_one_id_the_last_is_meant() -> None:
    trk = (Hop(sid="A", mid="m1", tms=(0,)), Hop(sid="B", mid="m1", tms=(1,)))
    assert [hop.rid for hop in received(trk, "B", "m1", "X", 7)] == ["", "X"]


def test_a_sender_that_lists_no_entry_gets_one_with_an_unknown_time() -> None:
    assert told(received((), "A", "m1", "B", 7)) == [{"sid": "A", "rid": "B", "mid": "m1", "tms": [None, 7]}]


def test_times_that_nobody_wrote_keep_their_place() -> None:
    assert told(closed((Hop(sid="A", mid="m1", tms=(0,)),), "m1", 9))[0]["tms"] == [0, None, None, 9]
    assert closed((Hop(sid="A", mid="m1"),), "other", 9) == (Hop(sid="A", mid="m1"),)


def test_each_response_has_its_own_copy() -> None:
    trk = started((), "A", "m1", 0)
    one, other = (received(trk, "A", "m1", who, at) for who, at in (("B", 1), ("C", 2)))
    assert (one[0].rid, other[0].rid, trk[0].rid) == ("B", "C", "")


def test_children_are_added_once_in_order_of_sending() -> None:
    own = started((), "A", "m1", 0)
    first, second = started(own, "B", "m2", 1), started(own, "B", "m3", 2)
    below = started(first, "C", "m4", 3)
    assert [hop.mid for hop in with_children(own, [below, second])] == ["m1", "m2", "m4", "m3"]


@given(hops, st.integers(3, 10))
def test_a_limited_history_keeps_first_last_and_own(trk: tuple[Hop, ...], limit: int) -> None:
    mid = trk[len(trk) // 2].mid if trk else "m"
    kept, cut = limited(trk, mid, limit)
    assert len(kept) + cut == len(trk)
    assert len(kept) <= limit
    assert kept[:1] == trk[:1]
    assert kept[-1:] == trk[-1:]
    assert any(hop.mid == mid for hop in kept) == bool(trk)


def test_ten_thousand_entries_are_cut() -> None:
    entries = [{"sid": "A", "mid": f"m{number}", "tms": [number]} for number in range(10_000)]
    kept, cut = limited(read_trk(raw(entries)), "m5000")
    assert (len(kept), cut) == (MAX_HOPS, 10_000 - MAX_HOPS)
    assert (kept[0].mid, kept[-1].mid) == ("m0", "m9999")
    assert "m5000" in [hop.mid for hop in kept]


@pytest.mark.parametrize("value", [None, 1, "x", {}, True])
def test_a_history_that_is_none_is_empty(value: Any) -> None:
    assert read_trk(raw(value)) == read_trk(None) == ()


def test_what_can_be_read_of_a_broken_entry_is_read() -> None:
    entries: list[Any] = [
        1, None, [], "x", {}, {"sid": 5, "mid": "m1", "tms": "soon"},
        {"sid": "A", "rid": None, "mid": "m2", "tms": [1.0, "2", None, -1, 5]},
        {"sid": "A", "mid": "m3", "tms": [2**70, 1e30, 1.5, 7], "more": {}},
    ]  # fmt: skip
    assert read_trk(raw(entries)) == (
        Hop(),
        Hop(mid="m1"),
        Hop(sid="A", mid="m2", tms=(1, None, None, -1)),
        Hop(sid="A", mid="m3", tms=(None, None, None, 7)),
    )


def test_unreadable_numbers_lose_the_history_not_the_message() -> None:
    assert read_trk(Raw(b'[{"sid":"A","mid":"m","tms":[1e999]}]')) == ()


# ---- the web dialect ------------------------------------------------------------------------------------------------


def call(mid: str, instance: str, start: Any, end: Any = None) -> list[Any]:
    return ["role:x", f"{mid}/c1", instance, "-", "0.1.0", start, end, True, "x/1"]


def test_parents_become_entries_oldest_first() -> None:
    """B was asked by A and asks on: both its own call and A's have the id of A's request."""
    parents = [call("m2", "C", 30), call("m2", "B", 20), call("m1", "B", 10), call("m1", "A", 0)]
    assert told(read_parents(raw(parents))) == [
        {"sid": "A", "rid": "B", "mid": "m1", "tms": [0, 10]},
        {"sid": "B", "rid": "C", "mid": "m2", "tms": [20, 30]},
    ]


def test_a_parent_that_makes_no_sense_is_left_out() -> None:
    parents = [1, [], call("m1", "A", "soon"), ["p", 5, "A", "-", "v", 1, 2], {"x": 1}, ["p", "m2"]]
    assert told(read_parents(raw(parents))) == [{"sid": "A", "mid": "m1", "tms": [None]}]
    assert read_parents(raw("x")) == read_parents(None) == ()


def test_entries_become_parents_newest_first_and_back() -> None:
    trk = (
        Hop(sid="A", rid="B", mid="m1", tms=(0, 10)),
        Hop(sid="B", rid="C", mid="m2", tms=(20, 30)),
        Hop(sid="C", mid="m3", tms=(40,)),
    )
    parents = parents_of(trk, "c1")
    assert [parent[:3] for parent in parents] == [
        [None, "m3/c1", "C"], [None, "m2/c1", "C"], [None, "m2/c1", "B"], [None, "m1/c1", "B"], [None, "m1/c1", "A"],
    ]  # fmt: skip
    assert read_parents(raw(parents)) == trk


def test_calls_that_an_action_made_become_entries() -> None:
    trace = [
        {"desc": call("m2", "B", 1, 9), "trace": [{"desc": call("m3", "C", 2, 3), "trace": []}]},
        {"desc": call("m4", "B", 10), "trace": "none"},
        {"desc": None}, 5,
    ]  # fmt: skip
    assert told(read_trace(raw(trace))) == [
        {"sid": "B", "mid": "m2", "tms": [1, None, None, 9]},
        {"sid": "C", "mid": "m3", "tms": [2, None, None, 3]},
        {"sid": "B", "mid": "m4", "tms": [10, None, None, None]},
    ]
