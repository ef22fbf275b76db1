"""A model of lanes on Kafka: ownership by claims in the log itself, takeovers, and publishes that outlast them.

The rule: a new owner of a lane appends a *claim*; the claim's offset is its epoch. A *block* names the epoch it was
written in, and is valid if that is the offset of the last claim before it. An owner acknowledges a block if no other
claim lies between its own last record and the block; if one does, it stands down. Everybody who reads the log applies
the rule, so what a former owner appends later is void for all.

Here is no Kafka and no clock: everything that happens is drawn from one seed.

    Log       a partition: keeps the order of each producer, and nothing else is promised
    Node      claims, replays, writes blocks (several in flight), acknowledges, stands down, pauses, dies
    Edge      sends numbered batches to whom it takes for the owner, again after a takeover
    History   the events of one run
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import NamedTuple

IN_FLIGHT = 4
EDGES, BATCHES, NODES = 3, 12, 3
# Kafka answers a repeated produce without the offset of the first one.
UNKNOWN = -1


class Batch(NamedTuple):
    """A publish of an edge, by its number there: it stands for rows, and for the control row that remembers it."""

    edge: int
    number: int


class Claim(NamedTuple):
    """A node becomes the owner, once in each of its lives."""

    node: int
    incarnation: int


class Block(NamedTuple):
    """`number` counts the blocks of an epoch, `first` is the sequence of its first row."""

    epoch: int
    number: int
    first: int
    batches: tuple[Batch, ...]


Record = Claim | Block


def valid_blocks(records: Iterable[Record]) -> Iterator[Block]:
    """Apply the rule to a log, from its beginning."""
    epoch = None
    for offset, record in enumerate(records):
        if isinstance(record, Claim):
            epoch = offset
        elif record.epoch == epoch:
            yield record


class Log:
    """A partition. Producers are idempotent: their records arrive in order, once, after any time."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.records: list[Record] = []

    def produce(self, producer: Producer, record: Record) -> None:
        """Take a record on its way; `producer` hears of it, perhaps late, perhaps without the offset."""
        producer.arrives_at = max(producer.arrives_at, self._history.now) + self._history.delay()
        self._history.at(producer.arrives_at, lambda: self._append(producer, record))

    def _append(self, producer: Producer, record: Record) -> None:
        if producer.is_cut:  # what was still on its way from a machine that died
            return
        self.records.append(record)
        offset = len(self.records) - 1
        lost = self._history.chance.random() < 0.15
        producer.answers_at = max(producer.answers_at, self._history.now) + self._history.delay() * (5 if lost else 1)
        told = UNKNOWN if lost else offset
        self._history.at(producer.answers_at, lambda: producer.node.answered(producer, record, told))


class Producer:
    """The connection of one life of a node to the log."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.arrives_at = self.answers_at = 0.0
        self.is_cut = False


class Node:
    """An owner, or one that would be. `looks` is False for a node that does not look into gaps: a broken one."""

    def __init__(self, history: History, number: int, *, looks: bool = True) -> None:
        self._history, self.number, self._looks = history, number, looks
        self._incarnation = 0
        self._deferred: list[Callable[[], None]] = []
        self.is_paused = False
        self._begin()

    def _begin(self) -> None:
        """Begin a life that remembers nothing."""
        self._producer = Producer(self)
        self._incarnation, self._is_claiming = self._incarnation + 1, False
        self.epoch: int | None = None
        self._seen = -1
        self._flying: list[Block] = []
        self._waiting: list[Batch] = []
        self._blocks = self._sequence = 0
        # Per edge: the last number taken.
        self.taken: dict[int, int] = defaultdict(int)

    # ---- what happens to it ------------------------------------------------------------------------------------------

    def pause(self, for_s: float) -> None:
        """Stop where it is, as with SIGSTOP; what it was told meanwhile it hears afterwards."""
        self.is_paused = True
        self._history.at(self._history.now + for_s, self._resume)

    def _resume(self) -> None:
        self.is_paused = False
        deferred, self._deferred = self._deferred, []
        for call in deferred:
            call()

    def die(self) -> None:
        """Lose everything, some of it on the way to the log, and begin anew."""
        self._producer.is_cut = self._history.chance.random() < 0.5
        self._deferred.clear()
        self._begin()

    def claim(self) -> None:
        """Become the owner: append a claim. Whoever should own the lane is told so, rightly or wrongly."""
        if self.is_paused:
            self._deferred.append(self.claim)
        elif self.epoch is None and not self._is_claiming:
            self._is_claiming = True
            self._history.log.produce(self._producer, Claim(self.number, self._incarnation))

    # ---- owning ------------------------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """Take a publish, if it is the next of its edge."""
        if self.is_paused or self.epoch is None or batch.number != self.taken[batch.edge] + 1:
            return
        self.taken[batch.edge] = batch.number
        self._waiting.append(batch)
        self._write()

    def _write(self) -> None:
        while self._waiting and len(self._flying) < IN_FLIGHT and self.epoch is not None:
            size = self._history.chance.randrange(1, len(self._waiting) + 1)
            batches, self._waiting = tuple(self._waiting[:size]), self._waiting[size:]
            block = Block(self.epoch, self._blocks, self._sequence, batches)
            self._blocks, self._sequence = self._blocks + 1, self._sequence + size
            self._flying.append(block)
            self._history.log.produce(self._producer, block)

    def answered(self, producer: Producer, record: Record, offset: int) -> None:
        """Hear that a record is in the log."""
        if producer is not self._producer:
            return
        if self.is_paused:
            self._deferred.append(lambda: self.answered(producer, record, offset))
        elif isinstance(record, Claim):
            self._open(self._place_of(record) if offset == UNKNOWN else offset)
        elif self.epoch == record.epoch:
            self._settle(record, self._place_of(record) if offset == UNKNOWN else offset)

    def _place_of(self, record: Record) -> int:
        return self._history.log.records.index(record)

    def _open(self, epoch: int) -> None:
        """Replay the log up to the claim: the state there is exact, whatever others append behind it."""
        self.epoch = self._seen = epoch
        self._flying.clear()
        self._waiting.clear()
        self.taken.clear()
        self._blocks = self._sequence = 0
        for block in valid_blocks(self._history.log.records[:epoch]):
            self._sequence = block.first + len(block.batches)
            for batch in block.batches:
                self.taken[batch.edge] = batch.number
        self._history.welcome(self)

    def _settle(self, block: Block, offset: int) -> None:
        """Acknowledge a block, or stand down if there is a claim before it."""
        between = self._history.log.records[self._seen + 1 : offset]
        if self._looks and any(isinstance(each, Claim) for each in between):
            self._begin()
            return
        self._seen = offset
        self._flying.remove(block)
        for batch in block.batches:
            self._history.acknowledge(batch)
        self._write()


class Edge:
    """Publishes its batches in order, at most a few without an answer, each until it is acknowledged."""

    def __init__(self, history: History, number: int) -> None:
        self._history, self.number = history, number
        self.acknowledged = 0

    def send(self, node: Node, behind: int) -> None:
        """Send what this node does not have yet; it said so when it became the owner."""
        for number in range(behind + 1, min(behind + 4, BATCHES) + 1):
            batch = Batch(self.number, number)
            self._history.at(self._history.now + self._history.delay(), lambda batch=batch: node.take(batch))  # type: ignore[misc]


class History:
    """One run: everything that happens, in an order that the seed decides."""

    def __init__(self, seed: int, *, looks: bool = True) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tie = count()
        self.log = Log(self)
        self.nodes = [Node(self, number, looks=looks) for number in range(NODES)]
        self.edges = [Edge(self, number) for number in range(EDGES)]
        self.acknowledged: list[Batch] = []
        self.takeovers = 0

    def at(self, time: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._tie), call))

    def delay(self) -> float:
        """A time on the way: mostly short, sometimes long."""
        return self.chance.expovariate(1.0) * (20 if self.chance.random() < 0.05 else 1)

    def run(self) -> None:
        """Let faults happen for a while, then none, until all is acknowledged."""
        for _ in range(self.chance.randrange(1, 12)):
            self.at(self.chance.uniform(0, 60), self._fault)
        self.at(0, self.nodes[0].claim)
        self._tick()
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()

    def _tick(self) -> None:
        """Edges send again what is not acknowledged; when faults are over, a lane without an owner gets one."""
        if self.is_over() or self.now > 2000:
            return
        for edge in self.edges:
            owners = [node for node in self.nodes if node.epoch is not None and not node.is_paused]
            if owners:
                node = self.chance.choice(owners)  # an edge may take a former owner for the present one
                edge.send(node, node.taken[edge.number])
        if self.now > 80 and self.chance.random() < 0.2:
            self.chance.choice(self.nodes).claim()
        self.at(self.now + 1.0, self._tick)

    def _fault(self) -> None:
        node = self.chance.choice(self.nodes)
        what = self.chance.random()
        if what < 0.35:
            node.pause(self.chance.uniform(0.5, 25))
        elif what < 0.6:
            node.die()
        # The group may name two at once, and one that is paused.
        for other in self.chance.sample(self.nodes, self.chance.choice((1, 1, 2, 3))):
            self.at(self.now + self.delay(), other.claim)

    def welcome(self, node: Node) -> None:
        """Tell the edges what a new owner has found of theirs: it is in the log, so it is acknowledged."""
        self.takeovers += 1
        for edge in self.edges:
            for number in range(edge.acknowledged + 1, node.taken[edge.number] + 1):
                self.acknowledge(Batch(edge.number, number))

    def acknowledge(self, batch: Batch) -> None:
        self.acknowledged.append(batch)
        edge = self.edges[batch.edge]
        edge.acknowledged = max(edge.acknowledged, batch.number)

    def is_over(self) -> bool:
        return all(edge.acknowledged == BATCHES for edge in self.edges)
