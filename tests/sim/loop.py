"""Event loop in simulated time: asyncio's own, without a selector, a socket or a thread.

The world turns it (`turn`) and moves its time. Connections come from the simulated network, work for other threads
becomes a simulated thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import socket
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.machine import SimMachine
    from tests.sim.network import Network


class SimServer:
    """What `create_server` returns."""

    sockets: tuple[Any, ...] = ()

    def __init__(self, network: Network, port: int) -> None:
        self._network, self._port = network, port

    def close(self) -> None:
        self._network.unlisten(self._port)

    async def wait_closed(self) -> None:
        return

    def is_serving(self) -> bool:
        return self._network.is_listening(self._port)


class SimLoop(base_events.BaseEventLoop):
    """Loop of one boot of the bus. After a crash it is never turned again."""

    _ready: deque[Any]
    # Due times, numbers and timers: compared without a call of Python, of equal times the first set is the first due.
    _scheduled: list[Any]

    def __init__(self, now: Callable[[], float], network: Network, machine: SimMachine) -> None:
        super().__init__()
        self._now, self._network, self._machine = now, network, machine
        self.failures: list[str] = []
        self.is_dead = False
        self._set = 0

    def time(self) -> float:
        return self._now()

    def next_time(self) -> float | None:
        """When a timer is due; now, if something is ready."""
        if self._ready:
            return self._now()
        scheduled = self._scheduled
        while scheduled and scheduled[0][2]._cancelled:
            heapq.heappop(scheduled)
        return scheduled[0][0] if scheduled else None

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._set += 1
        heapq.heappush(self._scheduled, (when, self._set, timer))
        return timer

    def turn(self) -> None:
        """Run what is due and what is ready, once each."""
        scheduled, ready = self._scheduled, self._ready
        end = self._now() + 1e-9
        while scheduled and scheduled[0][0] <= end:
            ready.append(heapq.heappop(scheduled)[2])
        events._set_running_loop(self)
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if self.is_dead:
                    return
        finally:
            events._set_running_loop(None)

    def timers(self) -> list[str]:
        """Names of the callbacks of all timers that are set."""
        called = (timer._callback for *_, timer in self._scheduled if not timer._cancelled)
        return [getattr(call, "__qualname__", type(call).__name__) for call in called]

    def forget(self) -> None:
        """Close what was left of a dead process, so that the garbage collector finds nothing to do at its own time."""
        self._ready.clear()
        self._scheduled.clear()
        for task in asyncio.all_tasks(self):
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        self._closed = True

    # ---- what asyncio asks of a loop ---------------------------------------------------------------------------------

    def _write_to_self(self) -> None:
        """Do nothing: no selector sleeps."""

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("no selector")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what would only be logged: an exception that nobody handles is a failure of the history."""
        if not self.is_dead:
            error = context.get("exception")
            told = f"{type(error).__name__}: {error}" if error else ""
            self.failures.append(f"{context.get('message')} {told}".strip())

    def add_signal_handler(self, *_: Any) -> None:  # type: ignore[override]
        """Do nothing: nobody sends signals here."""

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        port = sock.getsockname()[1]
        self._network.listen(port, protocol_factory)
        return SimServer(self._network, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        # Takes time, so that a caller may give up meanwhile.
        await asyncio.sleep(self._network.latency())
        return self._network.dial(self, protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (str(host), int(port)))]

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def work() -> None:
            try:
                result, error = func(*args), None
            except Exception as raised:
                result, error = None, raised
            self.call_soon_threadsafe(settle, result, error)

        self._machine.thread(work, "executor").start()
        return future
