"""Answering requests from a zbus queue."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from raceway.errors import ConnectionLostError, PayloadTypeError, RacewayError, RemoteError
from raceway.net.client.chain import handling
from raceway.net.client.messages import Payload, encode_payload
from raceway.net.client.streams import MessageStream, Resource
from raceway.wires.zbus.client.deliveries import Delivery

log = logging.getLogger("raceway.client")

DeliveryHandler = Callable[[Delivery], Payload | Awaitable[Payload]]


class QueueService(Resource):
    """A running service, made by `ZbusClient.serve`. It ends when it or its client is closed.

    Up to `at_once` requests are handled at the same time.
    """

    def __init__(self, queue: str, consumer: MessageStream[Delivery], handler: DeliveryHandler, at_once: int) -> None:
        self.queue = queue
        self._consumer, self._handler = consumer, handler
        self._free = asyncio.Semaphore(at_once)
        self._handling: set[asyncio.Task[None]] = set()
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while True:
                await self._free.acquire()
                delivery = await self._consumer.get()
                if delivery is None:
                    return
                task = asyncio.get_running_loop().create_task(self._handle(delivery))
                self._handling.add(task)
                task.add_done_callback(self._done)
        except RacewayError as error:
            log.error("service of queue %s ended: %s", self.queue, error)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._handling.discard(task)
        self._free.release()

    async def _handle(self, delivery: Delivery) -> None:
        status, payload = await self._result(delivery)
        if delivery.is_request:
            try:
                await delivery.answer(payload, status=status)
            except ConnectionLostError as error:
                log.warning("answer of queue %s not sent: %s", self.queue, error)

    async def _result(self, delivery: Delivery) -> tuple[int, bytes]:
        """Call the handler and return (status, payload). Never raises: an error is an answer, too."""
        handling.set(delivery.id)
        try:
            result: Any = self._handler(delivery)
            if inspect.isawaitable(result):
                result = await result
            return 200, encode_payload(result)
        except RemoteError as error:
            return _status(error.reported), error.text.encode()
        except PayloadTypeError as error:
            return 400, str(error).encode()
        except Exception as error:  # the handler is the user's code
            log.exception("request handler of queue %s failed", self.queue)
            return 500, f"{type(error).__name__}: {error}".encode()

    async def close(self) -> None:
        """Stop taking requests and wait for those in progress. Idempotent."""
        self._running.cancel()
        await asyncio.gather(self._running, *self._handling, return_exceptions=True)
        await self._consumer.close()


def _status(reported: str) -> int:
    """The HTTP-like status of an error. Codes that are not numeric (those of other wires) map to 500."""
    return int(reported) if reported.isascii() and reported.isdigit() and 400 <= int(reported) < 600 else 500
