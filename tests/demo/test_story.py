"""The story of the demo on a real bus, without tables: what its clients know, and that the same dice tell the same."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from raceway.demo.mishaps import BAD_ANNOUNCEMENTS, Mishaps
from raceway.demo.story import MOVED, Size, play
from raceway.demo.tally import ASKING, NOBODY, WIRES, OnProgress, Tally
from raceway.journal.read.reader import Reader
from raceway.server.running import maybe_running
from tests.rigs.server import running_server

SIZE = Size(check_ins=12, bags=30, boardings=10, questions=12)


class Acts:
    """Titles, announced steps and counted steps."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[OnProgress]:
        steps: list[int] = []
        yield steps.append
        self.seen.append((title, total, sum(steps)))


class Morning:
    def __init__(self, tally: Tally, acts: Acts, rows: list[dict[str, Any]]) -> None:
        self.tally, self.acts, self.rows = tally, acts, rows


def spend_morning() -> Morning:
    acts = Acts()
    with running_server() as server:
        running = maybe_running(server.data)
        assert running is not None
        tally = asyncio.run(play(running.urls, random.Random(3), acts.progress, SIZE))
        server.stop()
        rows = [row for batch in Reader(server.data).read(0) for row in batch.to_pylist()]
    return Morning(tally, acts, [row for row in rows if row["kind"] != "control"])


@pytest.fixture(scope="module")
def mornings() -> list[Morning]:
    """Two with the same dice, each on a bus of its own."""
    return [spend_morning() for _ in range(2)]


def test_every_bag_of_every_wire_is_delivered_on_every_wire(mornings: list[Morning]) -> None:
    assert mornings[0].tally.delivered == {(source, target): SIZE.bags for source in WIRES for target in WIRES}


def test_every_wire_asks_every_wire_and_is_told_of_failures(mornings: list[Morning]) -> None:
    asked = mornings[0].tally.asked
    for asking in ASKING:
        for answering in ASKING:
            told = sum(asked[asking, answering, status] for status in ("answered", "error"))
            # The kiosk also asks for check-ins, whose service asks for a seat and a tag.
            further = (asking, answering) in (("mb", "seneca"), ("seneca", "mb"), ("seneca", "zbus"))
            assert told == SIZE.questions + (SIZE.check_ins if further else 0)
    assert {answering for _, answering, status in asked if status == "error"} == {*ASKING, NOBODY}


def test_each_fault_shows_in_the_words_of_its_wire(mornings: list[Morning]) -> None:
    tally = mornings[0].tally
    bad = len(BAD_ANNOUNCEMENTS)
    assert tally.refused == {
        ("mb", "INVALID_REQUEST"): bad, ("danube", "PERMISSION_DENIED"): bad, ("zbus", "422"): bad,
        ("seneca", "act_invalid_msg"): bad,
    }  # fmt: skip
    told = {(wire, what): said for wire, what, said in tally.mishaps}
    assert "accepted" not in told.values()
    assert told["mb", "a request without a service"].startswith("NO_ROUTE_FOUND")
    assert told["zbus", "a request without a service"].startswith("404")
    assert told["seneca", "a request without a service"].startswith("act_not_found")
    assert told["mb", "a publish without a subscriber, stored nevertheless"] == "accepted, no route"
    assert told["mb", "a request without an answer"] == "TIMEOUT: Request timed out"
    assert told["danube", "a publish on a topic of the bus itself"].startswith("INVALID_ARGUMENT")
    assert told["mb", "an empty level in a topic"].startswith("MALFORMED_MESSAGE")
    assert told["zbus", "two lengths for one body"].startswith("400")
    assert told["seneca", "half a document"].startswith("400")


def test_a_check_in_is_one_conversation_over_four_wires(mornings: list[Morning]) -> None:
    """Request, seat, tag and their answers, what was tagged, what was loaded."""
    chains: dict[str, list[tuple[str, str, str]]] = {}
    for row in mornings[0].rows:
        chains.setdefault(row["correlation_id"], []).append((row["topic"], row["kind"], row["wire"]))
    whole = {
        ("checkin.open", "request", "mb"), ("checkin.open", "response", "seneca"),
        ("checkin.seat", "request", "seneca"), ("checkin.seat", "response", "mb"),
        ("baggage.tag", "request", "seneca"), ("baggage.tag", "response", "zbus"),
        ("baggage.tagged", "publish", "zbus"), ("flight.load", "publish", "danube"),
    }  # fmt: skip
    opened = [chain for chain in chains.values() if ("checkin.open", "request", "mb") in chain]
    assert len(opened) == SIZE.check_ins
    shapes = Counter(len(chain) for chain in opened)
    assert set(shapes) == {6, 8}  # bags that are too heavy go nowhere
    assert all(set(chain) == whole for chain in opened if len(chain) == 8)


def test_the_journal_has_what_the_clients_sent(mornings: list[Morning]) -> None:
    rows, tally = mornings[0].rows, mornings[0].tally
    published = Counter((row["topic"], row["wire"]) for row in rows if row["kind"] == "publish")
    own = published.keys() - tally.published.keys()
    # What was refused, and the record of what was changed: over the console port, and new queues of zbus.
    audited = {("raceway.audit", wire) for wire in ("http", "zbus")}
    assert own == {("raceway.rejected", wire) for wire in WIRES} | audited
    assert {key: count for key, count in published.items() if key not in own} == tally.published


def test_the_same_dice_tell_the_same_story(mornings: list[Morning]) -> None:
    """Counts, and every payload that was sent. Ids are made anew, and answers that say no have the time in them."""
    first, second = mornings
    assert first.tally.as_dict() == second.tally.as_dict()
    assert said(first) == said(second)


def said(morning: Morning) -> Counter[tuple[str, str, bytes]]:
    return Counter((row["topic"], row["wire"], row["payload"]) for row in morning.rows if row["kind"] != "response")


def test_every_step_of_every_act_is_counted(mornings: list[Morning]) -> None:
    assert all(total == counted for _, total, counted in mornings[0].acts.seen)
    assert mornings[0].acts.seen[2][1] == len(WIRES) ** 2 * SIZE.bags
    assert mornings[0].acts.seen[-1][1] == Mishaps.count


def test_bags_keep_their_order_on_each_wire(mornings: list[Morning]) -> None:
    rows = [row for row in mornings[0].rows if row["topic"] == MOVED]
    assert [row["offset"] for row in rows] == list(range(len(WIRES) * SIZE.bags))
