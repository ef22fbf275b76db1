from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway import config
from raceway.errors import MalformedError
from raceway.journal.memory import MemoryJournal
from raceway.journal.query.search import Criteria, maybe_at_path, parse_path, position_at, search
from raceway.model.envelope import Batch, Envelope
from tests.rigs.journal import Clock


class Shelf:
    """A memory journal and what was put into it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.journal = MemoryJournal(config.JournalSettings(durability="memory"), lambda call: call(), self.clock)

    def put(self, *envelopes: Envelope) -> None:
        """One block."""
        batch = Batch.of(envelopes)
        batch.time_us = batch.offset = None  # the journal gives them
        self.journal.append(batch)
        self.journal.flush()

    def find(self, criteria: Criteria, **limits: Any) -> list[int]:
        found = search(self.journal, criteria, **limits)
        return [row["sequence"] for row in found.rows]


def message(payload: Any = b"", topic: str = "a", **fields: Any) -> Envelope:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return Envelope(topic=topic, wire=fields.pop("wire", "mb"), payload=content, **fields)


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    found = Shelf()
    yield found
    found.journal.close()


CASES: list[tuple[Criteria, Envelope, Envelope]] = [
    (Criteria(topic="a.b"), message(topic="a.b"), message(topic="a.c")),
    (Criteria(topic="a.#"), message(topic="a.b.c"), message(topic="b.a")),
    (Criteria(wire="zbus"), message(wire="zbus"), message(wire="mb")),
    (Criteria(kind="request"), message(kind="request"), message(kind="publish")),
    (Criteria(producer="x"), message(producer="x"), message(producer="xy")),
    (Criteria(id="m1"), message(message_id="m1"), message(message_id="m2")),
    (Criteria(id="m1"), message(correlation_id="m1"), message()),
    (Criteria(id="m1"), message(parent_id="m1"), message(parent_id="m11")),
    (Criteria(id="m1"), message(forwarded_id="m1"), message(reply_to="m1")),
    (Criteria(failed=True), message(kind="response", error="E"), message(kind="response")),
    (Criteria(attribute="k"), message(attributes={"k": ""}), message(attributes={"x": "k"})),
    (Criteria(attribute="k", attribute_value="v"), message(attributes={"k": "v"}), message(attributes={"k": "w"})),
    (Criteria(text="needle"), message(b"hay needle hay"), message(b"hay")),
    (Criteria(text="é"), message("é".encode()), message(b"e")),
    (Criteria(path="$.a.b"), message({"a": {"b": None}}), message({"a": {"c": 1}})),
    (Criteria(path="a[1]", path_value="17"), message({"a": [0, 17]}), message({"a": [17, 0]})),
    (Criteria(path="a", path_value="17"), message({"a": "17"}), message({"a": "18"})),
    (Criteria(path="a", path_value='"17"'), message({"a": "17"}), message({"a": 17})),
    (Criteria(path="a", path_value="17"), message(b'{"a": 17.0}'), message(b'{"a": 17.5}')),
    (Criteria(path="a", path_value="paid"), message(b'{"a": "p\\u0061id"}'), message(b'{"b": "paid"}')),
    (Criteria(path="a", path_value="true"), message({"a": True}), message({"a": 1})),
    (Criteria(path="a", path_value="1"), message({"a": 1}), message({"a": True})),
]  # fmt: skip


@pytest.mark.parametrize(("criteria", "wanted", "unwanted"), CASES)
def test_what_matches_is_found_and_what_does_not_is_not(
    shelf: Shelf, criteria: Criteria, wanted: Envelope, unwanted: Envelope
) -> None:
    shelf.put(unwanted, wanted, unwanted)
    shelf.put(wanted)
    shelf.put(unwanted)
    assert shelf.find(criteria) == [3, 1]


def test_payloads_that_are_no_json_are_passed_over(shelf: Shelf) -> None:
    shelf.put(message(b"\xff\xfe"), message(b"{"), message(b"[" * 5000), message(b""), message({"a": 1}))
    assert shelf.find(Criteria(path="a")) == [4]


def test_control_rows_are_never_found(shelf: Shelf) -> None:
    shelf.journal.set_state("things", "a", {"b": 1})
    shelf.put(message(b"x"))
    rows = search(shelf.journal, Criteria()).rows
    assert [row["kind"] for row in rows] == ["publish"]


def test_hidden_topics_are_passed_over(shelf: Shelf) -> None:
    shelf.put(message(topic="open"), message(topic="secret"))
    assert shelf.find(Criteria(), hidden=frozenset({"secret"})) == [0]


def test_times_narrow_the_search(shelf: Shelf) -> None:
    for _ in range(5):
        shelf.put(message())
        shelf.clock.now_us += 1_000_000
    times = [row["time_us"] for row in search(shelf.journal, Criteria()).rows][::-1]
    assert shelf.find(Criteria(since_us=times[1], until_us=times[3])) == [2, 1]
    assert shelf.find(Criteria(since_us=times[4] + 1)) == []
    read, end = shelf.journal.read, shelf.journal.committed + 1
    assert [position_at(read, 0, end, time) for time in (0, times[2], times[2] + 1, times[4] + 1)] == [0, 2, 3, 5]


def test_pages_follow_one_another_without_gap_or_repeat(shelf: Shelf) -> None:
    for number in range(50):
        shelf.put(*(message({"n": number, "k": each}) for each in range(7)))
    seen, before, rounds = list[int](), None, 0
    while rounds < 100:
        found = search(shelf.journal, Criteria(path="k", path_value="3"), before=before, limit=4, max_rows=60)
        seen += [row["sequence"] for row in found.rows]
        before, rounds = found.before, rounds + 1
        if before is None:
            break
    assert seen == [number * 7 + 3 for number in reversed(range(50))]


def test_no_more_rows_are_looked_at_than_were_granted(shelf: Shelf) -> None:
    shelf.put(*(message() for _ in range(5000)))
    found = search(shelf.journal, Criteria(topic="none"), max_rows=1500)
    assert (found.scanned, found.before, found.rows) == (1500, 3500, [])


def test_time_that_is_up_ends_a_search_with_where_to_go_on(shelf: Shelf) -> None:
    shelf.put(*(message() for _ in range(5000)))
    moments = iter([0.0, 0.0, 9.0])
    found = search(shelf.journal, Criteria(topic="none"), max_s=1.0, clock=lambda: next(moments))
    assert found.scanned == 1024
    assert found.before == 5000 - 1024


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("$.a.b", ("a", "b")), ("a", ("a",)), ("$[0].x", (0, "x")), ('a["b.c"]', ("a", "b.c")),
        ("$['q']", ("q",)), ('a["\\u0041"]', ("a", "A")), (" $.a ", ("a",)),
    ],
)  # fmt: skip
def test_paths_are_parsed(text: str, path: tuple[str | int, ...]) -> None:
    assert parse_path(text) == path


@pytest.mark.parametrize("text", ["$", "", "a[", "a[x]", "a..b", 'a["x', "a]", '$["\\x"]'])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_path(text)


@given(st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_every_value_is_found_at_its_own_path(document: Any) -> None:
    def leaves(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from leaves(inner, (*path, key))
        elif isinstance(value, list):
            for at, inner in enumerate(value):
                yield from leaves(inner, (*path, at))
        else:
            yield path, value

    for path, value in leaves(document, ()):
        assert maybe_at_path(document, path) == value
    assert maybe_at_path(document, ("no such key \x00", "x")) is msgspec.UNSET
