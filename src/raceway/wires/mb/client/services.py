"""Answering MB requests: the result of a handler, or its exception, as the payload of an answer."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from raceway.errors import PayloadTypeError, RemoteError
from raceway.model.envelope import encode_json
from raceway.net.client.chain import handling
from raceway.net.client.messages import Message, Payload, encode_payload
from raceway.net.client.streams import Resource
from raceway.wires.mb.codec.encode import error_body
from raceway.wires.mb.codec.header import MbRefused

log = logging.getLogger("raceway.client")

RequestHandler = Callable[[Message], Payload | Awaitable[Payload]]


class Serving(Resource):
    """A running service, made by `MbClient.serve`. It ends when it or its client is closed."""

    def __init__(
        self, pattern: str, handler: RequestHandler, priority: float, stop: Callable[[Serving], Awaitable[None]]
    ) -> None:
        self.pattern, self.priority = pattern, priority
        self.handler = handler
        self._stop: Callable[[Serving], Awaitable[None]] | None = stop

    async def close(self) -> None:
        """Stop taking requests; those in progress are still answered. Idempotent."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            await stop(self)


async def answer_of(serving: Serving | None, message: Message) -> bytes:
    """Call the handler and return the payload to answer with. Never raises: an error is an answer, too."""
    if serving is None:
        return _failure("NO_ROUTE_FOUND", f"No subscribers for topic {message.topic}")
    handling.set(message.id)
    try:
        result: Any = serving.handler(message)
        if inspect.isawaitable(result):
            result = await result
        return encode_payload(result)
    except RemoteError as error:
        return _failure(error.reported, error.text, error.details)
    except PayloadTypeError as error:
        return _failure("MALFORMED_MESSAGE", str(error), {"path": error.path})
    except Exception as error:  # the handler is the user's code
        log.exception("request handler of topic %s failed", message.topic)
        return _failure("INTERNAL_ERROR", f"{type(error).__name__}: {error}")


def _failure(code: str, text: str, details: Any = None) -> bytes:
    return encode_json({"error": error_body(MbRefused(code, text, details), time.time_ns() // 1000)})
