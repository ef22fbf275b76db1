"""A bus with thousands of topics and many messages, for those who look at the console: tests, `bench.console`."""

from __future__ import annotations

import time
from pathlib import Path

from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.journal import Rig

CHUNK = 10_000
# What pages and commands ask for.
QUESTIONS = (
    "/api/overview", "/api/history", "/api/topics?order=rate&limit=100", "/api/topics?order=messages&limit=1000",
    "/api/topics?contains=T99", "/api/topics/many.t17", "/api/messages", "/api/messages?topic=many.t17",
    "/api/graph?limit=500", "/api/journal", "/api/history/bus", "/api/history/topics",
    "/api/peers", "/api/subscriptions", "/asyncapi.json?limit=100", "/metrics",
)  # fmt: skip


def shown(topics: int) -> dict[str, str]:
    """Each page, and a selector of what it has to show."""
    return {
        "": "table[aria-label='Busiest topics'] tbody tr", "topics": "table[aria-label=Topics] tbody tr:nth-child(100)",
        "topics?contains=T99": "table[aria-label=Topics] tbody tr", f"topics/many.t{topics - 1}": ".facts",
        "messages": "table[aria-label=Messages] tbody tr:nth-child(50)", "services": "svg.graph .node",
        "traces": ".empty", "rejected": ".empty", "peers": ".empty", "schemas": ".empty", "pipeline": ".empty",
        "journal": "table[aria-label=Segments] tbody tr",
    }  # fmt: skip


def fill(data: Path, topics: int, messages: int) -> None:
    """Publishes in turn to every topic, written by the journal itself: that takes seconds."""
    rig = Rig(data)
    rig.clock.now_us = time.time_ns() // 1000 - messages
    for start in range(0, messages, CHUNK):
        numbers = range(start, start + CHUNK)
        batch = Batch(
            CHUNK, topic=[b"many.t%d" % (number % topics) for number in numbers], kind=PUBLISH, wire=MB,
            producer=b"filler", payload=[b'{"n":%d}' % number for number in numbers],
        )  # fmt: skip
        rig.journal.append(batch, rig.answers.append)
        rig.commit()
    rig.close()
    assert set(rig.answers) == {None}
