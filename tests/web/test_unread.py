"""Who is closed for not reading, on a clock moved by hand; through a server: end_to_end/test_unread_answers.py."""

from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.web.unread import UnreadAnswers
from tests.rigs.doubles import Bench

LIMIT, STALL_S, STREAM_STALL_S = 1000, 2.0, 5.0


class Transport:
    def __init__(self, size: int) -> None:
        self.size = size
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def get_extra_info(self, name: str) -> Any:
        return None

    def abort(self) -> None:
        self.aborted = True


class Port:
    def __init__(self) -> None:
        self.bench = Bench()
        http = config.HttpDoorSettings(stall_ms=round(STREAM_STALL_S * 1000))
        listen = config.Listen(output_total_bytes=LIMIT, stall_s=STALL_S, http=http)
        self.unread = UnreadAnswers(self.bench.broker.runtime, listen)

    def watched(self, size: int, *, is_stream: bool = False) -> Any:
        transport: Any = Transport(size)
        self.unread.watch(transport, is_stream=is_stream)
        return transport

    @property
    def closed(self) -> int:
        return self.bench.broker.runtime.counts["bus.slow_closed"]


@pytest.fixture
def port() -> Port:
    return Port()


def test_who_reads_nothing_is_closed_and_who_reads_a_little_is_not(port: Port) -> None:
    stalled, slow = port.watched(100), port.watched(100)
    for _ in range(10):
        slow.size -= 1
        port.bench.loop.advance(STALL_S)
    assert (stalled.aborted, slow.aborted, port.closed) == (True, False, 1)
    port.bench.loop.advance(STALL_S)
    assert (slow.aborted, port.closed) == (True, 2)


def test_who_has_read_everything_may_rest(port: Port) -> None:
    transport = port.watched(100)
    port.unread.forget(transport)
    port.bench.loop.advance(10 * STALL_S)
    assert not transport.aborted


def test_the_next_answer_has_its_own_time(port: Port) -> None:
    transport = port.watched(100)
    port.bench.loop.advance(STALL_S - 0.1)
    port.unread.forget(transport)
    port.unread.watch(transport, is_stream=False)
    port.bench.loop.advance(STALL_S - 0.1)
    assert not transport.aborted
    port.bench.loop.advance(0.2)
    assert transport.aborted


def test_beyond_the_budget_those_with_most_are_closed(port: Port) -> None:
    small, large, middle = port.watched(300), port.watched(400), port.watched(350)
    assert (small.aborted, large.aborted, middle.aborted, port.closed) == (False, True, False, 1)
    port.unread.forget(middle)
    assert not port.watched(600).aborted, "there is room again"
    assert port.watched(2000).aborted, "one alone may not exceed it either"
    assert port.closed == 2


def test_a_stream_counts_nothing_and_has_its_own_time(port: Port) -> None:
    stream = port.watched(900, is_stream=True)
    assert not port.watched(900).aborted
    port.bench.loop.advance(STALL_S)
    assert not stream.aborted
    port.bench.loop.advance(STREAM_STALL_S - STALL_S)
    assert stream.aborted
