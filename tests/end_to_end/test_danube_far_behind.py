"""A consumer of the published Danube client comes back to a long backlog, in a bus that has seen much else meanwhile.

It gets all of it, in order, while the memory of the bus keeps its bound. In `make soak` the numbers are those of a busy
bus: 200,000 messages on one of 10,000 topics, after 5 million messages of the others.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from raceway.client import Producer, connect
from tests.rigs.danube_process import danube_process
from tests.rigs.danube_wire import danube_url
from tests.rigs.rounds import SOAKING
from tests.rigs.server import Server, running_server, wait_until

TOPICS, BACKLOG, OTHERS = (10_000, 200_000, 5_000_000) if SOAKING else (100, 3_000, 40_000)
MIB = 1 << 20
# Rows that are kept in memory for consumers: less than the backlog has, so that it is read from the journal.
RECENT_BYTES = 8 * MIB if SOAKING else 100_000
# Beyond what it had when the topics were there: the rows in memory, the blocks being read, output on its way.
GROWTH_BYTES = 300 * MIB if SOAKING else 60 * MIB
OWN = "/default/far.own"


async def fill(server: Server) -> None:
    """The others first, then the backlog and the rest of the others mixed, as a busy bus would have them."""
    dice = random.Random(5)
    async with connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        others = [await bus.producer(f"far.other{number}", "p") for number in range(TOPICS)]
        own = await bus.producer(OWN, "p")
        server.forget_peak()
        before = server.rss()
        for _ in range(0, OTHERS - BACKLOG, 1000):
            await asyncio.gather(*noise(others, dice))
        for begin in range(0, BACKLOG, 1000):
            backlog = own.send_many([b"%d" % number for number in range(begin, begin + 1000)])
            await asyncio.gather(backlog, *noise(others, dice))
        assert server.peak_rss() - before < GROWTH_BYTES, "while it was filled"


def noise(others: list[Producer], dice: random.Random) -> Iterator[Coroutine[Any, Any, int]]:
    """A thousand messages, ten to each of a hundred topics."""
    return (dice.choice(others).send_many([b"noise" * 20] * 10) for _ in range(100))


@pytest.mark.timeout(3600 if SOAKING else 120)
def test_a_long_backlog_comes_complete_and_in_order_and_from_the_journal(tmp_path: Path) -> None:
    settings = {
        "RACEWAY_BROKER__SUBSCRIPTIONS__RECENT_BYTES": RECENT_BYTES,
        "RACEWAY_JOURNAL__SEGMENT_BYTES": 64 * MIB if SOAKING else MIB,
        "RACEWAY_JOURNAL__UPKEEP_S": 0.2,
        "RACEWAY_JOURNAL__SEAL_KEEP_S": 0,
    }
    with running_server(tmp_path / "data", **settings) as server, danube_process(danube_url(server)) as client:
        client.create("p", OWN)
        client.subscribe("c", OWN, "s")
        client.close("c")
        asyncio.run(fill(server))
        assert server.metric("raceway_subscription_lag", topic="far.own", subscription="s") == BACKLOG
        server.forget_peak()
        before = server.rss()
        client.subscribe("c", OWN, "s")
        client.keep_receiving("c")
        wait_until(lambda: client.progress()[1].get("c", 0) >= BACKLOG, 3000 if SOAKING else 60, "the whole backlog")
        wait_until(lambda: server.metric("raceway_subscriptions_lag") == 0, what="all to be acknowledged")
        # A slow machine lets acknowledgements time out: then some come twice, which is no fault.
        came = dict.fromkeys((each.offset, each.number) for each in client.came("c"))
        assert list(came) == [(number, number) for number in range(BACKLOG)]
        assert server.peak_rss() - before < GROWTH_BYTES, "while it was read"
        print(f"{server.peak_rss() / MIB:.0f} MiB at most, {before / MIB:.0f} MiB before")
