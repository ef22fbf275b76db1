from __future__ import annotations

import asyncio
import threading

import pytest

from raceway.errors import BusyError
from raceway.web.asking import MAX_WAITING, THREADS, QueryPool
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench

DEADLINE_S = 60


class Held:
    """Work that goes on until it is let go."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self._begun = threading.Semaphore(0)

    def __call__(self) -> None:
        self._begun.release()
        assert self._go.wait(DEADLINE_S)

    async def begun(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self._begun.acquire, timeout=DEADLINE_S)

    def let_go(self) -> None:
        self._go.set()


def test_queries_that_were_given_up_are_never_run_and_make_room() -> None:
    pool, held, ran = QueryPool(DOOR(Bench().broker).view, None), Held(), list[str]()

    async def play() -> None:
        running = [asyncio.create_task(pool.run(held)) for _ in range(THREADS)]
        await held.begun(THREADS)
        waiting = [asyncio.create_task(pool.run(lambda: ran.append("given up"))) for _ in range(MAX_WAITING - THREADS)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="16 queries are waiting already"):
            await pool.run(lambda: None)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        other = asyncio.create_task(pool.run(lambda: ran.append("other")))
        await asyncio.sleep(0)
        held.let_go()
        await asyncio.gather(other, *running)

    asyncio.run(play())
    pool.close()
    assert ran == ["other"]
