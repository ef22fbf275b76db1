"""From a handler to the payload of an answer."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from raceway.errors import RemoteError
from raceway.net.client.chain import handling
from raceway.net.client.messages import Message
from raceway.wires.mb.client.services import RequestHandler, Serving, answer_of
from tests.rigs.vectors.mb import I

MESSAGE = Message("a", b"payload", id=I)


async def stop(serving: Serving) -> None:
    serving.priority = -1


def answered(handler: RequestHandler | None) -> bytes:
    serving = Serving("a", handler, 0, stop) if handler is not None else None
    return asyncio.run(answer_of(serving, MESSAGE))


def failure(handler: RequestHandler | None) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answered(handler))["error"]
    return error


def test_plain_and_awaited_results_are_answers() -> None:
    async def later(message: Message) -> dict[str, str]:
        return {"text": message.text}

    assert answered(lambda message: message.payload) == b"payload"
    assert answered(later) == b'{"text":"payload"}'
    assert answered(lambda message: None) == b""


def test_remote_error_is_answered_in_its_own_words() -> None:
    def refuse(message: Message) -> None:
        raise RemoteError("NOT_FOR_SALE", "no apples", {"fruit": "apple"})

    error = failure(refuse)
    assert list(error) == ["code", "message", "timestamp", "details"]
    assert (error["code"], error["message"], error["details"]) == ("NOT_FOR_SALE", "no apples", {"fruit": "apple"})


def test_any_other_exception_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message) -> None:
        raise KeyError("apple")

    with caplog.at_level(logging.ERROR):
        error = failure(fail)
    assert (error["code"], error["message"]) == ("INTERNAL_ERROR", "KeyError: 'apple'")
    assert "request handler of topic a failed" in caplog.text


def test_result_that_cannot_be_encoded_is_a_failure() -> None:
    assert failure(lambda message: object())["code"] == "INTERNAL_ERROR"


def test_request_nobody_serves_any_more_is_answered_too() -> None:
    assert failure(None)["code"] == "NO_ROUTE_FOUND"


def test_handler_knows_which_request_it_is_in() -> None:
    assert answered(lambda message: handling.get()) == I.encode()
    assert handling.get() is None


def test_service_is_stopped_once() -> None:
    async def scene() -> None:
        async with Serving("a", lambda message: None, 0, stop) as serving:
            await serving.close()
            assert serving.priority == -1
            serving.priority = 7
        assert serving.priority == 7

    asyncio.run(scene())
