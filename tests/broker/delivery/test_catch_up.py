"""Reading on from the journal: what retention took is told, and positions that are given again are read once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from raceway.broker.delivery import catch_up
from raceway.wires.mb.listen.session import MbSession
from tests.rigs.desk import Service
from tests.rigs.live import LiveModel, Seat


def behind(model: LiveModel) -> Seat:
    """The first subscriber, off the live path with rows that it has not read; the others take everything."""
    seat = model.seats[0]
    while not model.desk.broker.catch_ups.count:
        publish(model, 8)
        model.wait(0.1)
    publish(model, 8)
    return seat


def publish(model: LiveModel, count: int) -> None:
    model.publish("red", count, 1000)
    model.settle()
    for other in model.seats[1:]:
        other.transport.take(10**9)


def session_of(seat: Seat) -> MbSession:
    session = seat.protocol._session
    assert isinstance(session, MbSession)
    return session


def test_what_retention_took_is_told_as_a_gap_and_reading_goes_on_behind_it() -> None:
    model = LiveModel(memory_bytes=64 * 1024)
    watcher = Service(model.desk)
    watcher.ask("system.log.subscribe", {"levels": ["warn"]})
    seat = behind(model)
    handed = len(seat.got())
    for _ in range(20):
        publish(model, 8)
    first = model.desk.journal.first_position()
    stored = [row["payload"] for batch in model.desk.journal.read(first) for row in batch.to_pylist()]
    watcher.heard()
    for _ in range(50):
        model.wait(0.5)
        seat.transport.take(10**9)
        model.settle()
        while model.reads:
            model.read()
            model.settle()
    assert not model.desk.broker.catch_ups.count
    got, lost = seat.got(), [each for each in seat.expected if each not in seat.got()]
    assert got == [each for each in seat.expected if each not in lost], "in order, once"
    assert lost, "retention was there first"
    assert got[handed:] == [each for each in stored if each in seat.expected], "everything that is left"
    assert model.desk.counted("bus.gaps") == 1
    records = [message.payload.decode() for message in watcher.heard()]
    (told,) = [record for record in records if "missed positions" in record]
    assert session_of(seat).id in told
    assert f"to {first - 1}" in told
    publish(model, 1)
    assert seat.got()[-1] == seat.expected[-1], "it is live"


def test_what_damage_took_is_told_as_a_gap_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LiveModel()
    seat = behind(model)
    journal = model.desk.journal
    begin = journal.committed
    publish(model, 8)
    lost = {begin + 2, begin + 3, begin + 6}
    gone = [row["payload"] for rows in journal.read(0) for row in rows.to_pylist() if row["sequence"] in lost]
    read = journal.read

    def read_what_is_left(start: int, stop: int | None = None) -> Iterator[pa.RecordBatch]:
        for rows in read(start, stop):
            kept = [row["sequence"] not in lost for row in rows.to_pylist()]
            yield rows.filter(pa.array(kept))

    monkeypatch.setattr(journal, "read", read_what_is_left)
    with capture_logs() as logs:
        model.finish()
    assert seat.got() == [each for each in seat.expected if each not in gone]
    told = [each for each in logs if each["event"] == "rows missed by a subscriber"]
    assert {
        (each["first"], each["next"], each["reason"]) for each in told if each["subscriber"] == session_of(seat).id
    } == {
        (begin + 2, begin + 4, "lost by damage"),
        (begin + 6, begin + 7, "lost by damage"),
    }
    assert model.desk.counted("bus.gaps") == len(told)


def test_rows_that_were_not_stored_while_a_subscriber_was_behind_are_not_read_and_their_places_are() -> None:
    model = LiveModel()
    seat = behind(model)
    model.fail()
    publish(model, 5)
    failed = seat.expected[-5:]
    publish(model, 5)
    model.finish()
    assert seat.got() == [each for each in seat.expected if each not in failed]


def test_one_that_leaves_the_live_path_before_a_commit_that_fails_goes_back_to_the_first_free_place() -> None:
    model = LiveModel()
    seat = model.seats[0]
    publish(model, 8)
    model.fail()
    model.publish("red", 3, 1000)
    assert session_of(seat).peer.detach()
    model.settle()
    publish(model, 6)
    model.finish()
    assert seat.got() == seat.expected, "live copies had left before; what took their places is read"


@pytest.mark.parametrize(("topic", "on"), [("red", False), ("blue", True)])
def test_a_change_of_subscriptions_behind_rows_that_were_not_stored_holds_for_what_takes_their_places(
    topic: str, on: bool
) -> None:
    model = LiveModel()
    seat = behind(model)
    model.fail()
    model.publish("red", 5, 1000)
    failed = seat.expected[-5:]
    model.subscribe(0, topic, on)
    model.settle()
    model.publish("blue", 3, 1000)
    publish(model, 3)
    model.finish()
    assert seat.got() == [each for each in seat.expected if each not in failed]


@pytest.mark.parametrize("failing", ["before", "after"])
def test_a_commit_that_fails_while_a_subscriber_is_about_to_join(failing: str) -> None:
    """Rows before the place of joining are read or gone; those behind it were put aside and come in any case."""
    model = LiveModel()
    seat = behind(model)
    catching_up = session_of(seat).peer._catch_up
    assert catching_up is not None
    if failing == "before":
        model.fail()
        model.publish("red", 3, 1000)
    seat.transport.take(10**9)
    assert catching_up._join is not None
    if failing == "after":
        model.fail()
        model.publish("red", 3, 1000)
    model.settle()
    failed = seat.expected[-3:]
    publish(model, 6)
    model.finish()
    expected = seat.expected if failing == "after" else [each for each in seat.expected if each not in failed]
    assert seat.got() == expected


def test_a_read_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = LiveModel()
    behind(model)
    broken = [OSError("no such block"), OSError("no such block")]

    def read_piece(*arguments: object) -> object:
        if broken:
            raise broken.pop()
        return real(*arguments)  # type: ignore[arg-type]

    real = catch_up.read_piece
    monkeypatch.setattr(catch_up, "read_piece", read_piece)
    model.finish()
    assert not broken
