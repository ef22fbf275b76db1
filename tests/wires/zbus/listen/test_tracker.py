from __future__ import annotations

import json
from typing import Any, cast

import pytest

from raceway.net.connection import Connection
from raceway.wires.zbus.listen import tracker as zbus_tracker
from raceway.wires.zbus.listen.tracker import GATHER_S, MAX_ADDRESS, MAX_BROKERS, Tracker
from tests.rigs.doubles import ManualLoop


class Follower:
    def __init__(self) -> None:
        self.pushes: list[dict[str, Any]] = []
        self.is_full = False
        self.connection = cast(Connection, self)

    def write(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"GET / HTTP/1.1\r\ncmd: track_pub\r\n")
        self.pushes.append(json.loads(body))


class Desk:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.tracker = Tracker(self.loop)

    def follower(self) -> Follower:
        found = Follower()
        self.tracker.subscribe(found.connection)
        return found

    def report(self, broker: str, *mqs: str, filling: str = "") -> None:
        table = {mq: {"broker": broker, "name": mq, "creator": filling} for mq in mqs}
        self.tracker.take_report(json.dumps({"broker": broker, "lastUpdatedTime": 1, "mqTable": table}).encode())

    def brokers(self) -> list[str]:
        return list(json.loads(self.tracker.encode())["brokerTable"])


def test_every_follower_is_told_of_a_report() -> None:
    desk = Desk()
    followers = [desk.follower(), desk.follower()]
    desk.report("a:1", "q")
    desk.loop.advance(GATHER_S)
    for follower in followers:
        (push,) = follower.pushes
        assert push["brokerTable"]["a:1"]["lastUpdatedTime"] == 1
        assert [info["broker"] for info in push["mqTable"]["q"]] == ["a:1"]


def test_a_follower_that_is_full_is_told_once_it_has_drained_and_as_it_is_then() -> None:
    desk = Desk()
    slow, quick = desk.follower(), desk.follower()
    slow.is_full = True
    for number in range(3):
        desk.report(f"a:{number}")
        desk.loop.advance(GATHER_S)
    assert (len(slow.pushes), len(quick.pushes)) == (0, 3)
    slow.is_full = False
    desk.tracker.relieve(slow.connection)
    desk.tracker.relieve(quick.connection)
    (push,) = slow.pushes
    assert list(push["brokerTable"]) == ["a:0", "a:1", "a:2"]
    assert len(quick.pushes) == 3, "it missed nothing"
    desk.tracker.relieve(slow.connection)
    assert len(slow.pushes) == 1


def test_a_full_follower_that_left_or_may_not_follow_any_more_is_told_nothing() -> None:
    desk = Desk()
    gone, barred = desk.follower(), Follower()
    desk.tracker.subscribe(barred.connection, lambda: False)
    gone.is_full = barred.is_full = True
    desk.report("a:1")
    desk.loop.advance(GATHER_S)
    desk.tracker.leave(gone.connection)
    for follower in (gone, barred):
        desk.tracker.relieve(follower.connection)
        assert not follower.pushes


def test_reports_that_come_close_together_share_a_push() -> None:
    desk = Desk()
    follower = desk.follower()
    for number in range(100):
        desk.report(f"a:{number}")
    desk.loop.advance(GATHER_S)
    (push,) = follower.pushes
    assert len(push["brokerTable"]) == 100


def test_a_later_report_replaces_the_earlier_one() -> None:
    desk = Desk()
    desk.report("a:1", "old")
    desk.report("a:1", "new")
    assert list(json.loads(desk.tracker.encode())["mqTable"]) == ["new"]


def test_who_left_is_not_told_and_who_comes_gets_the_table_at_once() -> None:
    desk = Desk()
    leaving = desk.follower()
    desk.report("a:1")
    desk.tracker.leave(leaving.connection)
    desk.tracker.leave(leaving.connection)
    desk.loop.advance(1)
    assert leaving.pushes == []
    assert list(json.loads(desk.tracker.subscribe(Follower().connection))["brokerTable"]) == ["a:1"]


def test_a_dropped_broker_is_gone_and_followers_hear_of_it_once() -> None:
    desk = Desk()
    desk.report("a:1", "q")
    follower = desk.follower()
    for _ in range(2):
        desk.tracker.drop("a:1")
        desk.loop.advance(1)
    assert follower.pushes == [{"brokerTable": {}, "mqTable": {}}]
    assert desk.tracker.silences() == {}


def test_silence_begins_anew_with_each_report() -> None:
    desk = Desk()
    desk.report("a:1")
    desk.loop.advance(5)
    desk.report("b:1")
    assert desk.tracker.silences() == pytest.approx({"a:1": 5, "b:1": 0})
    desk.report("a:1")
    assert desk.tracker.silences() == pytest.approx({"a:1": 0, "b:1": 0})


def test_brokers_are_bounded_and_known_ones_still_heard_when_full() -> None:
    desk = Desk()
    for number in range(MAX_BROKERS + 10):
        desk.report(f"a:{number}")
    assert len(desk.brokers()) == MAX_BROKERS
    desk.report("a:0", "new")
    assert "new" in json.loads(desk.tracker.encode())["mqTable"]
    desk.tracker.drop("a:0")
    desk.report("late:1")
    assert "late:1" in desk.brokers()


def test_bytes_are_bounded_over_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zbus_tracker, "MAX_BYTES", 10_000)
    desk = Desk()
    for number in range(20):
        desk.report(f"a:{number}", "q", filling="x" * 1000)
    assert 5 < len(desk.brokers()) < 10
    assert len(desk.tracker.encode()) < 2 * 10_000
    desk.report("a:0", "q", filling="x" * 9000)
    assert len(desk.tracker.encode()) < 2 * 10_000


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"broker":1}', b'{"broker":"","mqTable":{}}', b'{"broker":"a:1","mqTable":{"q":1}}',
     b"[" * 50_000, b'{"broker":"' + b"x" * (MAX_ADDRESS + 1) + b'","mqTable":{}}'],
)  # fmt: skip
def test_what_is_no_report_changes_nothing(body: bytes) -> None:
    desk = Desk()
    follower = desk.follower()
    desk.tracker.take_report(body)
    desk.loop.advance(1)
    assert (desk.brokers(), follower.pushes) == ([], [])
