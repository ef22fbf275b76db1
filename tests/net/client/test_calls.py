"""Calls that wait for answers."""

from __future__ import annotations

import asyncio

import pytest

from raceway.errors import ConnectionLostError, RemoteError, RequestTimeoutError
from raceway.net.client.calls import Calls
from raceway.wires.mb.client.calls import MbBlock, MbCall
from raceway.wires.mb.codec.encode import SUCCESS

LOST = ConnectionLostError("mb://x", "gone")


class Clock:
    """A clock that a test advances by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_answers_find_their_calls_in_any_order() -> None:
    async def scene() -> None:
        calls, one, two = Calls[bytes](Clock()), MbCall("a", 1), MbCall("a", 1)
        calls.add(b"1", one)
        calls.add(b"2", two)
        calls.answer(b"2", b"second")
        calls.answer(b"1", b"first")
        assert (await one.result(), await two.result()) == (b"first", b"second")
        assert (len(calls), calls.unmatched) == (0, 0)

    asyncio.run(scene())


def test_answers_nobody_waits_for_are_counted() -> None:
    calls = Calls[bytes](Clock())
    calls.answer(b"unknown", b"")
    calls.answer(None, b"")
    assert calls.unmatched == 2


def test_failure_becomes_an_error_with_its_code_text_and_details() -> None:
    async def scene() -> None:
        call = MbCall("a", 1)
        call.answered(b'{"error":{"code":"TIMEOUT","message":"Request timed out","timestamp":"t","details":{"x":1}}}')
        with pytest.raises(RemoteError) as caught:
            await call.result()
        assert caught.value.args == ("TIMEOUT", "Request timed out", {"x": 1})

    asyncio.run(scene())


def test_call_that_waited_too_long_is_given_up_and_a_later_answer_ignored() -> None:
    async def scene() -> None:
        clock = Clock()
        calls, late, patient = Calls[bytes](clock), MbCall("a", 1), MbCall("b", 3)
        calls.add(b"1", late)
        calls.add(b"2", patient)
        clock.now = 2
        calls.sweep()
        with pytest.raises(RequestTimeoutError) as caught:
            await late.result()
        assert caught.value.topic == "a"
        assert len(calls) == 1
        calls.answer(b"1", b"")
        assert calls.unmatched == 1

    asyncio.run(scene())


def test_loss_fails_what_cannot_be_repeated_and_keeps_the_rest() -> None:
    async def scene() -> None:
        calls, once, again = Calls[bytes](Clock()), MbCall("a", 1), MbCall("b", 1, repeat=b"message")
        calls.add(b"1", once)
        calls.add(b"2", again)
        calls.lose(LOST, keep_repeatable=True)
        assert calls.repeatable() == [b"message"]
        with pytest.raises(ConnectionLostError):
            await once.result()
        calls.lose(LOST, keep_repeatable=False)
        with pytest.raises(ConnectionLostError):
            await again.result()

    asyncio.run(scene())


def test_abandoned_call_may_still_be_answered() -> None:
    async def scene() -> None:
        calls, call = Calls[bytes](Clock()), MbCall("a", 1)
        calls.add(b"1", call)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await call.result()
        calls.answer(b"1", b'{"error":1}')
        assert len(calls) == 0

    asyncio.run(scene())


def test_block_is_done_with_its_last_answer_and_raises_its_first_error() -> None:
    async def scene() -> None:
        calls, block = Calls[bytes](Clock()), MbBlock("a", 3, 1)
        for message_id in (b"1", b"2", b"3"):
            calls.add(message_id, block)
        calls.answer(b"1", SUCCESS)
        calls.answer(b"3", b'{"error":{"code":"FIRST","message":""}}')
        waiting = asyncio.ensure_future(block.result())
        await asyncio.sleep(0)
        assert not waiting.done()
        calls.answer(b"2", b'{"error":{"code":"SECOND","message":""}}')
        with pytest.raises(RemoteError, match="FIRST"):
            await waiting

    asyncio.run(scene())
