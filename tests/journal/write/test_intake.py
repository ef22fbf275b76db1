"""The owner's side without any engine: what is in flight, what waits, what fails."""

from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.errors import DiskFullError, JournalError, RacewayError, ReadOnlyError
from raceway.journal.state import State
from raceway.journal.write.block import OpenBlock
from raceway.journal.write.intake import Intake
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.journal import Clock


class Held(Intake):
    """Keeps handed-over blocks until the test decides what becomes of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(config.JournalSettings(**settings), State(), 100, Clock())
        self.handed: list[OpenBlock] = []
        self.answers: list[RacewayError | None] = []

    def _hand_over(self, block: OpenBlock) -> None:
        self.handed.append(block)

    def publish(self, topic: bytes, count: int = 1) -> int:
        return self.append(Batch(count, topic=topic, kind=PUBLISH, payload=[b"x"] * count), self.answers.append)

    def succeed(self) -> None:
        self._committed(self.handed.pop(0))

    def fail(self, error: RacewayError, status: Any) -> None:
        self.handed.clear()
        self._failed(error, status, str(error))


def test_one_block_is_in_flight_and_the_rest_collects() -> None:
    held = Held()
    held.publish(b"a")
    held.flush()
    held.publish(b"a", 2)
    held.publish(b"a", 3)
    held.flush()
    assert [(block.first, block.rows) for block in held.handed] == [(100, 1)]
    held.succeed()
    assert [(block.first, block.rows) for block in held.handed] == [(101, 5)]
    assert held.answers == [None]
    held.succeed()
    assert held.answers == [None] * 3
    held.flush()
    assert held.handed == []


def test_a_backlog_becomes_several_blocks() -> None:
    held = Held(block_rows=4)
    held.publish(b"a")
    held.flush()
    for _ in range(5):
        held.publish(b"a", 3)
    sizes = []
    while held.handed:
        sizes.append(held.handed[0].rows)
        held.succeed()
    assert sizes == [1, 3, 3, 3, 3, 3]
    assert held.answers == [None] * 6


def test_the_next_block_is_handed_over_before_those_who_wait_are_told() -> None:
    held = Held()
    order: list[int] = []
    held.append(Batch(1, topic=b"a", kind=PUBLISH, payload=[b"x"]), lambda _: order.append(len(held.handed)))
    held.flush()
    held.publish(b"a")
    held.succeed()
    assert order == [1]


def test_a_failure_gives_sequences_and_offsets_back_in_order() -> None:
    held = Held(block_rows=2)
    held.publish(b"old")
    held.flush()
    held.succeed()
    held.publish(b"old")
    held.flush()
    held.publish(b"old", 2)
    held.publish(b"new", 2)
    held.publish(b"old")
    assert held.next_sequence == 107
    held.fail(DiskFullError("full"), "disk_full")
    assert held.next_sequence == 101
    assert held.state.next_offsets == {"old": 1}
    assert [type(answer) for answer in held.answers] == [type(None), *[DiskFullError] * 4]


def test_control_rows_of_failed_blocks_go_into_the_next_one_with_those_who_wait_for_space() -> None:
    held = Held()
    calls: list[str] = []
    told: list[RacewayError | None] = []
    held.set_state("s", "k", 1)
    held.publish(b"a")
    held.after_commit(lambda error: calls.append("first"), patient=True)
    held.after_commit(told.append)
    held.flush()
    held.set_state("s", "k", 2)
    held.set_state("s", "other", 3)
    held.after_commit(lambda error: calls.append("second"), patient=True)
    held.after_commit(told.append)
    held.fail(DiskFullError("full"), "disk_full")
    held.flush()
    assert held.handed == []
    held.set_state("s", "late", 4)
    held.after_commit(told.append)
    assert [type(error) for error in told] == [DiskFullError] * 3, "who does not wait for space is told at once"
    held._refuse("ok", "")
    held.flush()
    (block,) = held.handed
    assert (block.first, block.messages) == (100, 0)
    assert list(block.controls.values()) == [b'["s","k",2]', b'["s","other",3]', b'["s","late",4]']
    assert calls == []
    held.succeed()
    assert calls == ["first", "second"]


@pytest.mark.parametrize("patient", [True, False])
def test_a_journal_that_takes_no_writes_until_restart_keeps_nobody_waiting(patient: bool) -> None:
    held = Held()
    told: list[RacewayError | None] = []
    held.set_state("s", "in flight", 1)
    held.after_commit(told.append, patient=patient)
    held.flush()
    held.set_state("s", "open", 2)
    held.after_commit(told.append, patient=patient)
    held.fail(ReadOnlyError("the disk failed"), "read_only")
    held.after_commit(told.append, patient=patient)
    assert [type(error) for error in told] == [ReadOnlyError] * 3


def test_after_a_failure_without_control_rows_nobody_waits_for_ever() -> None:
    held = Held()
    calls: list[RacewayError | None] = []
    held.publish(b"a")
    held.after_commit(calls.append)
    held.flush()
    held.fail(error := JournalError("bad value"), "ok")
    assert calls == [error]
    assert held.publish(b"a") == 100


def test_refusals_are_new_errors_each_time_and_counted() -> None:
    held = Held()
    held.publish(b"a")
    held.flush()
    held.fail(ReadOnlyError("sync failed"), "read_only")
    caught = []
    for _ in range(2):
        with pytest.raises(ReadOnlyError, match="sync failed") as error:
            held.publish(b"a")
        caught.append(error.value)
    assert caught[0] is not caught[1]
    assert held._refusals == 2


def test_pressure_ends_with_a_failure() -> None:
    held = Held(unsynced_bytes=100)
    told: list[bool] = []
    held.pressure = told.append
    held.publish(b"a", 5)
    held.flush()
    held.fail(DiskFullError("full"), "disk_full")
    assert told == [True, False]


def test_a_done_may_append() -> None:
    held = Held()

    def publish_more(_: object) -> None:
        held.publish(b"b")

    held.append(Batch(1, topic=b"a", kind=PUBLISH, payload=[b"x"]), publish_more)
    held.flush()
    held.succeed()
    held.flush()
    assert [(block.first, block.spans) for block in held.handed] == [(101, [("b", 0, 1)])]
