from __future__ import annotations

import pytest

from raceway.broker.peers import Pending
from raceway.broker.requests import correlation
from raceway.broker.requests.correlation import STALE_DEADLINES, Correlation
from raceway.broker.topics import Topic
from raceway.errors import BusyError, RacewayError, RequestTimeoutError
from raceway.model.envelope import DUPLICATE, LATE
from tests.rigs.doubles import ManualLoop, RecordingPeer

ASKER, ANSWERER, STRANGER = RecordingPeer("asker"), RecordingPeer("answerer"), RecordingPeer("stranger")
TICK_S = 0.016


class Desk:
    """A correlation table with a clock moved by hand; `failed` has what the requesters are told."""

    def __init__(self, limit: int = 100) -> None:
        self.loop = ManualLoop()
        self.failed: list[tuple[bytes, RacewayError]] = []
        self.table = Correlation(limit, self._fail, self.loop)

    def _fail(self, request: Pending, error: RacewayError) -> None:
        self.failed.append((request.message_id, error))

    def open(self, name: bytes, timeout_ms: int | None = 1000, responder: RecordingPeer = ANSWERER) -> Pending:
        request = pending(name, responder)
        self.table.add([(request, timeout_ms)])
        return request


def pending(name: bytes, responder: RecordingPeer = ANSWERER) -> Pending:
    return Pending(ASKER, responder, Topic("orders"), b"orders", b"1.0.0", name, b"masked-" + name, name, 1_000_000)


def test_an_answer_closes_its_request() -> None:
    desk = Desk()
    request = desk.open(b"a")
    assert desk.table.take(ANSWERER, b"masked-a") is request
    assert len(desk.table) == 0
    assert desk.table.take(ANSWERER, b"masked-a") is None


def test_only_the_peer_it_was_handed_to_can_answer() -> None:
    desk = Desk()
    request = desk.open(b"a")
    assert desk.table.take(STRANGER, b"masked-a") is None
    assert desk.table.finished(STRANGER, b"masked-a") is None
    assert desk.table.take(ANSWERER, b"masked-a") is request


def test_ids_are_compared_without_regard_to_case() -> None:
    desk = Desk()
    request = desk.open(b"a")
    assert desk.table.take(ANSWERER, b"MASKED-A") is request
    assert desk.table.finished(ANSWERER, b"Masked-a") == (request, DUPLICATE)


def test_a_deadline_is_never_early_and_late_by_two_ticks_at_most() -> None:
    desk = Desk()
    desk.open(b"a", timeout_ms=1000)
    desk.loop.advance(0.999)
    assert desk.failed == []
    desk.loop.advance(0.001 + 2 * TICK_S)
    ((name, error),) = desk.failed
    assert name == b"a"
    assert isinstance(error, RequestTimeoutError)
    assert (error.topic, error.responder) == ("orders", "answerer")
    assert len(desk.table) == 0


def test_requests_that_are_opened_together_keep_their_own_deadlines() -> None:
    desk = Desk()
    timeouts = {b"a": 300, b"b": None, b"c": 100, b"d": 0, b"e": 300}
    desk.table.add([(pending(name), timeout_ms) for name, timeout_ms in timeouts.items()])
    assert [name for name, _ in desk.failed] == [b"d"]
    desk.loop.advance(0.1 + 2 * TICK_S)
    assert [name for name, _ in desk.failed] == [b"d", b"c"]
    desk.loop.advance(0.2)
    assert [name for name, _ in desk.failed] == [b"d", b"c", b"a", b"e"]
    assert len(desk.table) == 1, "the one that waits for ever"


def test_an_answered_request_does_not_time_out() -> None:
    desk = Desk()
    desk.open(b"a", timeout_ms=100)
    desk.table.take(ANSWERER, b"masked-a")
    desk.loop.advance(1)
    assert desk.failed == []


def test_deadlines_are_met_in_their_own_order() -> None:
    desk = Desk()
    for name, timeout_ms in ((b"late", 500), (b"soon", 100), (b"between", 300)):
        desk.open(name, timeout_ms)
    desk.loop.advance(1)
    assert [name for name, _ in desk.failed] == [b"soon", b"between", b"late"]


def test_a_timeout_of_zero_fails_at_once_and_leaves_nothing() -> None:
    desk = Desk()
    request = desk.open(b"a", timeout_ms=0)
    assert [name for name, _ in desk.failed] == [b"a"]
    assert len(desk.table) == 0
    assert desk.table.finished(ANSWERER, b"masked-a") == (request, LATE)


def test_a_request_without_timeout_waits_for_ever() -> None:
    desk = Desk()
    request = desk.open(b"a", timeout_ms=None)
    desk.loop.advance(1_000_000)
    assert desk.failed == []
    assert desk.table.take(ANSWERER, b"masked-a") is request


def test_no_timer_runs_while_nothing_waits() -> None:
    desk = Desk()
    assert not desk.loop.waits
    desk.open(b"a", timeout_ms=50)
    assert desk.loop.waits
    desk.loop.advance(1)
    assert not desk.loop.waits
    desk.open(b"b", timeout_ms=50)
    desk.loop.advance(1)
    assert [name for name, _ in desk.failed] == [b"a", b"b"], "sweeping begins again"


def test_one_request_too_many_evicts_the_oldest() -> None:
    desk = Desk(limit=2)
    oldest = desk.open(b"a")
    desk.open(b"b")
    desk.open(b"c")
    ((name, error),) = desk.failed
    assert name == b"a"
    assert isinstance(error, BusyError)
    assert str(error) == "Message broker is busy"
    assert len(desk.table) == 2
    assert desk.table.finished(ANSWERER, b"masked-a") == (oldest, LATE)
    desk.loop.advance(2)
    assert [name for name, _ in desk.failed] == [b"a", b"b", b"c"], "an evicted request does not time out as well"


def test_at_the_limit_nobody_is_evicted() -> None:
    desk = Desk(limit=3)
    for name in (b"a", b"b", b"c"):
        desk.open(name)
    assert desk.failed == []
    desk.table.take(ANSWERER, b"masked-b")
    desk.open(b"d")
    assert desk.failed == []


def test_late_and_second_answers_are_told_apart_from_unknown_ones() -> None:
    desk = Desk()
    answered, expired = desk.open(b"a"), desk.open(b"b", timeout_ms=10)
    desk.table.take(ANSWERER, b"masked-a")
    desk.loop.advance(1)
    assert desk.table.finished(ANSWERER, b"masked-a") == (answered, DUPLICATE)
    assert desk.table.finished(ANSWERER, b"masked-b") == (expired, LATE)
    assert desk.table.finished(ANSWERER, b"masked-c") is None


def test_finished_requests_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlation, "KEPT_FINISHED", 3)
    desk = Desk()
    for number in range(10):
        desk.open(b"%d" % number)
        desk.table.take(ANSWERER, b"masked-%d" % number)
    assert desk.table.finished(ANSWERER, b"masked-6") is None
    assert desk.table.finished(ANSWERER, b"masked-7") is not None


def test_answered_requests_with_long_deadlines_do_not_fill_the_memory() -> None:
    desk = Desk(limit=10)
    waiting = desk.open(b"waits", timeout_ms=60_000)
    for number in range(1000):
        desk.open(b"%d" % number, timeout_ms=60_000)
        desk.table.take(ANSWERER, b"masked-%d" % number)
        assert len(desk.table._wheel) <= STALE_DEADLINES * 10 + 1
    desk.loop.advance(61)
    assert [name for name, _ in desk.failed] == [waiting.message_id], "what still waits keeps its deadline"


# ---- answers by name -------------------------------------------------------------------------------------------------

NAME = (b"box", b"r")


def test_a_delivered_request_is_found_by_both_parts_of_its_name_and_once() -> None:
    desk = Desk()
    request = desk.open(b"r")
    desk.table.name(request, NAME)
    assert (desk.table.delivered, desk.table.is_awaited(NAME)) == (1, True)
    assert [desk.table.take_named(name) for name in ((b"box", b"R"), (b"Box", b"r"))] == [None, None]
    assert desk.table.take_named(NAME) is request
    assert desk.table.take_named(NAME) is None
    assert (len(desk.table), desk.table.delivered, desk.table.is_awaited(NAME)) == (0, 0, False)


def test_equal_names_are_answered_in_the_order_in_which_they_were_delivered() -> None:
    desk = Desk()
    requests = [desk.open(name) for name in (b"a", b"b", b"c")]
    for each in requests:
        desk.table.name(each, NAME)
    desk.table.take(ANSWERER, b"masked-b")
    assert [desk.table.take_named(NAME) for _ in range(3)] == [requests[0], requests[2], None]


def test_a_request_that_is_delivered_again_is_answered_once() -> None:
    """Its first consumer broke off, another one got it."""
    desk = Desk()
    asked, other = desk.open(b"a"), desk.open(b"b")
    for each in (asked, other, asked):
        desk.table.name(each, NAME)
    assert desk.table.delivered == 2
    assert [desk.table.take_named(NAME) for _ in range(3)] == [other, asked, None]
    desk.table.name(again := desk.open(b"c"), NAME)
    desk.table.name(again, (b"other", b"r"))
    assert (desk.table.take_named(NAME), desk.table.take_named((b"other", b"r"))) == (None, again)


def test_requests_that_are_over_are_known_by_name() -> None:
    desk = Desk()
    answered, expired = desk.open(b"answered"), desk.open(b"expired", timeout_ms=10)
    abandoned, late, waiting = (desk.open(name, timeout_ms=None) for name in (b"abandoned", b"late", b"open"))
    for each in (answered, expired, abandoned, waiting):
        desk.table.name(each, (b"box", each.message_id))
    desk.table.take_named((b"box", b"answered"))
    desk.loop.advance(1)
    desk.table.close(abandoned, LATE)
    desk.table.close(late, LATE)  # it ended while it waited in the queue, and is delivered after that
    desk.table.name(late, (b"box", b"late"))
    names = [b"answered", b"expired", b"abandoned", b"late", b"open", b"unheard of"]
    wanted = [(answered, DUPLICATE), (expired, LATE), (abandoned, LATE), (late, LATE), None, None]
    assert [desk.table.finished_named((b"box", name)) for name in names] == wanted
    assert [desk.table.take_named((b"box", name)) for name in names[:4]] == [None] * 4
    assert (len(desk.table), desk.table.delivered) == (1, 1)


def test_only_so_many_finished_requests_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correlation, "KEPT_FINISHED", 3)
    desk = Desk()
    for number in (0, 1, 2, 0, 3):
        desk.table.name(desk.open(b"%d" % number), (b"box", b"%d" % number))
        desk.table.take_named((b"box", b"%d" % number))
    known = [number for number in range(4) if desk.table.finished_named((b"box", b"%d" % number)) is not None]
    assert known == [0, 2, 3], "a name that is used again counts from then on"


def test_when_a_requester_goes_its_requests_without_deadline_go_too() -> None:
    desk = Desk()
    patient, expiring = desk.open(b"patient", timeout_ms=None), desk.open(b"expiring")
    desk.table.name(patient, NAME)
    assert desk.table.abandon(ASKER) == [patient]
    assert (desk.table.abandon(ASKER), len(desk.table), desk.table.delivered) == ([], 1, 0)
    assert (patient.open, expiring.open, desk.table.finished_named(NAME)) == (False, True, (patient, LATE))
