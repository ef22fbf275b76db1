from __future__ import annotations

import time

import pytest

from raceway.broker.logs import MAX_REGEX, LogWatch
from raceway.errors import MalformedError
from tests.rigs.doubles import RecordingPeer


@pytest.fixture
def logs() -> LogWatch:
    return LogWatch(lambda: 42)


def messages(peer: RecordingPeer) -> list[str]:
    return [message for _, message, _, _ in peer.records]


def test_a_record_has_its_level_message_time_and_extras(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("error",), None)
    logs.emit("error", "it broke", module="mb")
    assert peer.records == [("error", "it broke", 42, {"module": "mb"})]


def test_only_listed_levels_come(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("debug", "warn"), None)
    for level in ("debug", "info", "warn", "error"):
        logs.emit(level, level)
    assert messages(peer) == ["debug", "warn"]


def test_no_level_means_no_record(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, (), None)
    logs.emit("error", "x")
    assert peer.records == []


def test_the_regular_expression_searches_the_message(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("error",), r"TIME\w+\]")
    logs.emit("error", "[TIMEOUT] too late")
    logs.emit("error", "[BUSY] no time")
    assert messages(peer) == ["[TIMEOUT] too late"]


def test_a_second_wish_replaces_the_first(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("error",), "a")
    logs.watch(peer, ("warn",), None)
    logs.emit("error", "a")
    logs.emit("warn", "b")
    assert messages(peer) == ["b"]


def test_who_unwatches_gets_nothing_more(logs: LogWatch) -> None:
    peer, other = RecordingPeer(), RecordingPeer()
    logs.watch(peer, ("error",), None)
    logs.watch(other, ("error",), None)
    logs.unwatch(peer)
    logs.unwatch(peer)
    logs.emit("error", "x")
    assert (messages(peer), messages(other)) == ([], ["x"])


@pytest.mark.parametrize("regex", ["(", r"(?<=a)b", r"(a)\1", "x" * (MAX_REGEX + 1)])
def test_a_pattern_that_re2_does_not_take_is_refused_and_the_former_wish_stays(logs: LogWatch, regex: str) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("error",), "kept")
    with pytest.raises(MalformedError):
        logs.watch(peer, ("error",), regex)
    logs.emit("error", "kept")
    assert messages(peer) == ["kept"]


def test_a_pattern_that_would_make_others_backtrack_takes_linear_time(logs: LogWatch) -> None:
    peer = RecordingPeer()
    logs.watch(peer, ("error",), "(a+)+$")
    begin = time.process_time()
    logs.emit("error", "a" * 20_000 + "b")
    assert time.process_time() - begin < 1
    assert peer.records == []


def test_a_watcher_may_leave_while_it_is_told(logs: LogWatch) -> None:
    class Leaving(RecordingPeer):
        """Unwatches in the middle of a record."""

        def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
            super().log_record(level, message, time_us, extra)
            logs.unwatch(self)

    leaving, staying = Leaving(), RecordingPeer()
    logs.watch(leaving, ("error",), None)
    logs.watch(staying, ("error",), None)
    logs.emit("error", "one")
    logs.emit("error", "two")
    assert (messages(leaving), messages(staying)) == (["one"], ["one", "two"])
