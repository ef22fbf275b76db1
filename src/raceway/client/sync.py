"""The same client for programs without asyncio: an event loop in a thread of its own, and calls that block.

    with connect("mb://127.0.0.1:3001") as bus:
        bus.publish("orders.created", {"id": 7})
        for message in bus.subscribe("orders.#"):
            …

Verbs, arguments and errors are those of `MbClient`. Calls may come from any thread; handlers run in threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar

from raceway import client
from raceway.client.mb import VERSION, MbClient
from raceway.client.messages import Message, Payload, Service, SubscriptionRow, TopicRow
from raceway.client.services import Serving
from raceway.client.subscription import Subscription

T = TypeVar("T")


def connect(url: str, **options: Any) -> SyncClient:
    """Connected at once. `options`: see `Options`. Raises ConfigError, ConnectionLostError."""
    return SyncClient(client.connect(url, **options))


class SyncClient:
    """See the module. Close it, or use it in a `with` block: its thread ends then."""

    def __init__(self, wrapped: MbClient) -> None:
        self._client = wrapped
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raceway-client", daemon=True)
        self._thread.start()
        try:
            self._run(wrapped.open())
        except BaseException:
            self._stop()
            raise

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        # The caller's context goes along, so that a call made by a handler names its parent.
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """May be repeated."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- messages ---------------------------------------------------------------------------------------------------

    def publish(self, topic: str, payload: Payload = b"", *, version: str = VERSION, confirm: bool = True) -> None:
        self._run(self._client.publish(topic, payload, version=version, confirm=confirm))

    def publish_many(
        self, topic: str, payloads: Iterable[Payload], *, version: str = VERSION, confirm: bool = True
    ) -> int:
        return self._run(self._client.publish_many(topic, payloads, version=version, confirm=confirm))

    def request(
        self, topic: str, payload: Payload = b"", *, timeout_ms: int | None = None, version: str = VERSION
    ) -> bytes:
        return self._run(self._client.request(topic, payload, timeout_ms=timeout_ms, version=version))

    def subscribe(self, pattern: str, *, buffer_bytes: int | None = None) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.subscribe(pattern, buffer_bytes=buffer_bytes)), self._run)

    def serve(self, pattern: str, handler: Callable[[Message], Payload], *, priority: float = 0) -> SyncServing:
        """`handler` is called in a thread of a pool; it may use this client."""

        async def handle(message: Message) -> Payload:
            context = contextvars.copy_context()
            return await asyncio.get_running_loop().run_in_executor(None, context.run, handler, message)

        return SyncServing(self._run(self._client.serve(pattern, handle, priority=priority)), self._run)

    # ---- the bus itself ---------------------------------------------------------------------------------------------

    def register(self, name: str, description: str) -> None:
        self._run(self._client.register(name, description))

    def services(self) -> list[Service]:
        return self._run(self._client.services())

    def topics(self) -> list[TopicRow]:
        return self._run(self._client.topics())

    def subscriptions(self, service_id: str | None = None) -> list[SubscriptionRow]:
        return self._run(self._client.subscriptions(service_id))

    def metrics(self, *, show_all: bool = False, filter_by: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._run(self._client.metrics(show_all=show_all, filter_by=filter_by))

    def watch_log(self, levels: Iterable[str] = ("error",), regex: str | None = None) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.watch_log(levels, regex)), self._run)

    def audit(self) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.audit()), self._run)

    def heartbeat(self) -> None:
        self._run(self._client.heartbeat())


class SyncSubscription:
    """An iterator that blocks until the next message comes."""

    def __init__(self, subscription: Subscription, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._subscription, self._run = subscription, run

    @property
    def dropped(self) -> int:
        return self._subscription.dropped

    def get(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when there will be none. Raises TimeoutError."""
        message: Message | None = self._run(self._subscription.get(timeout_s))
        return message

    def __iter__(self) -> Iterator[Message]:
        while (message := self.get()) is not None:
            yield message

    def close(self) -> None:
        self._run(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncServing:
    """A service that runs until it or its client is closed."""

    def __init__(self, serving: Serving, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._serving, self._run = serving, run

    def close(self) -> None:
        self._run(self._serving.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
