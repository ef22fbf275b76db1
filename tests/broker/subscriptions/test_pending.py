"""What consumers of a key-shared live subscription have still to get, beside a plain list of it."""

from __future__ import annotations

import random

from raceway.broker.delivery.recent import RowRange
from raceway.broker.subscriptions.consumers import Consumer, ConsumerRecord
from raceway.broker.subscriptions.keys import KeyRing
from raceway.broker.subscriptions.pending import MAX_OFFSETS, MAX_RINGS, PendingOffsets
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.rounds import seeded

PIECE = 1000


def consumers(count: int) -> list[Consumer]:
    return [Consumer(n, ConsumerRecord("t", "s", f"c{n}", number=n, seat=n), 0) for n in range(count)]


class Topic:
    """Rows of some keys, and what each consumer was assigned and not yet handed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.pending = PendingOffsets()
        self.keys: list[bytes] = []
        self.expected: dict[Consumer, list[int]] = {}
        self.ring = KeyRing([])

    def regroup(self, active: list[Consumer]) -> list[range]:
        self.ring = KeyRing(active)
        self.expected = {consumer: self.expected.get(consumer, []) for consumer in active}
        return self.pending.regroup(self.ring, len(self.keys), active)

    def grow(self, count: int) -> None:
        for _ in range(count):
            key = b"k%d" % self._chance.randrange(20)
            owner = self.ring.maybe_owner(key)
            assert owner is not None
            self.pending.add(owner, len(self.keys))
            self.expected[owner].append(len(self.keys))
            self.keys.append(key)

    def piece(self, offset: int) -> RowRange:
        first = offset - offset % PIECE
        keys = self.keys[first : first + PIECE]
        batch = Batch(len(keys), kind=PUBLISH, routing_key=keys)
        return RowRange(first, first + len(keys), batch, 0)

    def take(self, consumer: Consumer, most: int = 1 << 30) -> list[int]:
        """The next pending offsets of a consumer, which are then none any more."""
        taken: list[int] = []
        while consumer in self.pending and len(taken) < most:
            kept = self.pending.kept(consumer)
            if not kept:
                rest = self.pending.maybe_rest(consumer)
                assert rest is not None
                self.pending.refill(consumer, self.piece(rest), len(self.keys))
            while kept and len(taken) < most:
                taken.append(kept.popleft())
            self.pending.settle(consumer)
        del self.expected[consumer][: len(taken)]
        return taken


def test_everybody_gets_what_was_theirs_in_order_however_many_come_and_go() -> None:
    chance = seeded("pending")
    topic, everybody = Topic(chance), consumers(4)
    topic.regroup(everybody)
    for _ in range(30):
        topic.grow(chance.randrange(3000))
        consumer = chance.choice(list(topic.expected))
        wanted = list(topic.expected[consumer])
        got = topic.take(consumer, chance.choice([10, 5000, 1 << 30]))
        assert got == wanted[: len(got)]
        if not chance.randrange(3):
            stays = chance.sample(everybody, chance.randrange(1, 5))
            assert topic.regroup([each for each in everybody if each in stays]) == []
    for consumer, wanted in list(topic.expected.items()):
        wanted = list(wanted)
        assert topic.take(consumer) == wanted
    assert not topic.pending


def test_only_some_offsets_are_kept_in_memory() -> None:
    topic, (one,) = Topic(seeded("pending")), consumers(1)
    topic.regroup([one])
    topic.grow(5 * MAX_OFFSETS)
    assert len(topic.pending.kept(one)) == MAX_OFFSETS
    assert topic.take(one) == list(range(5 * MAX_OFFSETS))


def test_after_too_many_changes_what_cannot_be_found_again_is_named() -> None:
    topic, (one, other) = Topic(seeded("pending")), consumers(2)
    topic.regroup([one])
    topic.grow(MAX_OFFSETS + 500)
    lost: list[range] = []
    for number in range(MAX_RINGS):
        lost += topic.regroup([one, other] if number % 2 == 0 else [one])
        topic.grow(1)
    assert lost == [range(MAX_OFFSETS, MAX_OFFSETS + 500)]
    wanted = [offset for offset in topic.expected[one] if offset not in lost[0]]
    assert topic.take(one) == wanted
