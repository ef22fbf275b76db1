"""A consumer comes back to a long backlog that lies among the rows of thousands of other topics.

It gets all of it, in order, from the journal, while the memory for rows keeps its bound. In `make soak` the numbers are
those of a busy bus: 200,000 messages on one of 10,000 topics, after 5 million messages of the others.
"""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest

from raceway.model.envelope import DANUBE, PUBLISH, Batch
from raceway.model.intents.batches import Send
from raceway.model.subscriptions import ProducerWanted
from tests.rigs.rounds import SOAKING
from tests.rigs.subscribing import TOPIC, SubscribingBench

TOPICS, BACKLOG, OTHERS = (10_000, 200_000, 5_000_000) if SOAKING else (300, 4_000, 40_000)
ROWS = 1000
MIB = 1 << 20


def fill(bench: SubscribingBench, own: int) -> None:
    """The backlog and the others, mixed, in batches as a busy door makes them."""
    dice = random.Random(7)
    names = [f"other.{number}" for number in range(TOPICS)]
    ids = [bench.broker.producers.create(ProducerWanted(name, "p", True)).id for name in names]
    before = OTHERS - BACKLOG  # most of the others come first
    for begin in range(0, before, ROWS):
        store(bench, [dice.randrange(TOPICS) for _ in range(ROWS)], names, ids)
        if not begin % (100 * ROWS):
            bench.settle()
    for begin in range(0, BACKLOG, ROWS // 2):
        mixed = [-1] * (ROWS // 2) + [dice.randrange(TOPICS) for _ in range(ROWS // 2)]
        dice.shuffle(mixed)
        store(bench, mixed, [*names, TOPIC], [*ids, own], begin)
    bench.settle()


def store(bench: SubscribingBench, chosen: list[int], names: list[str], ids: list[int], first: int = 0) -> None:
    numbers = iter(range(first, first + len(chosen)))
    batch = Batch(len(chosen), wire=DANUBE, kind=PUBLISH)
    batch.topic = [names[at].encode() for at in chosen]
    batch.producer_id = [ids[at] for at in chosen]
    batch.message_id = [b"%d-1" % ids[at] for at in chosen]
    batch.payload = [b"%d" % next(numbers) if at == -1 else b"noise" * 20 for at in chosen]
    bench.broker.perform(bench.sender, Send(batch))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_long_backlog_among_many_topics_comes_complete_and_in_order(tmp_path: Path, restarted: bool) -> None:
    bench = SubscribingBench(tmp_path, {"segment_bytes": 64 * MIB if SOAKING else MIB}, recent_bytes=4 * MIB)
    own = bench.producer()
    consumer = bench.member()
    consumer.leave()
    fill(bench, own)
    if restarted:
        bench.restart()
    assert bench.status().lag == BACKLOG
    before = psutil.Process().memory_info().rss
    consumer = bench.open(consumer.id)
    got = 0
    while got < BACKLOG:
        fresh = consumer.sink.got
        consumer.sink.forget()
        assert [message.offset for message in fresh] == list(range(got, got + len(fresh)))
        assert [message.payload for message in fresh] == [b"%d" % (got + at) for at in range(len(fresh))]
        got += len(fresh)
        bench.ack(*(message.offset for message in fresh))
        assert bench.broker.subscriptions.recent.bytes < 6 * MIB
    assert bench.status().lag == 0
    assert psutil.Process().memory_info().rss - before < 200 * MIB
    bench.close()
