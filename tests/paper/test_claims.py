"""The claim rule under pauses, deaths, late and lost answers, and several claimants at once: 10,000 histories in `make
soak`, some hundreds otherwise. No Kafka here: what it promises is in the model."""

from __future__ import annotations

from tests.paper.claims import EDGES, Batch, Block, Claim, History, Record, valid_blocks
from tests.rigs.rounds import SOAKING, seeded

HISTORIES = 10_000 if SOAKING else 400


def faults(history: History) -> list[str]:
    """What a history violates."""
    blocks = list(valid_blocks(history.log.records))
    stored = [batch for block in blocks for batch in block.batches]
    found = []
    if not set(history.acknowledged) <= set(stored):
        found.append("acknowledged, but not valid")
    for edge in range(EDGES):
        numbers = [batch.number for batch in stored if batch.edge == edge]
        if numbers != list(range(1, len(numbers) + 1)):
            found.append("not once, or not in order")
    following = 0
    for block in blocks:
        if block.first != following:
            found.append("sequences with a hole or a repeat")
        following = block.first + len(block.batches)
    return found


def played(seed: int, *, looks: bool = True) -> History:
    history = History(seed, looks=looks)
    history.run()
    return history


def test_what_is_acknowledged_is_valid_once_and_in_order() -> None:
    seed = seeded("claims").randrange(2**31)
    takeovers = voids = 0
    for number in range(seed, seed + HISTORIES):
        history = played(number)
        assert faults(history) == [], f"history {number}"
        assert history.is_over(), f"history {number} does not end"
        takeovers += history.takeovers - 1
        blocks = [record for record in history.log.records if isinstance(record, Block)]
        voids += len(blocks) - len(list(valid_blocks(history.log.records)))
    # Otherwise nothing was proven: former owners did write, and void blocks are among what was read.
    assert takeovers > HISTORIES
    assert voids > HISTORIES // 20


def test_the_same_seed_is_the_same_history() -> None:
    assert played(7).log.records == played(7).log.records
    assert played(7).log.records != played(8).log.records


def test_an_owner_that_does_not_look_into_gaps_is_found_out() -> None:
    """The model can fail: without the look, a former owner acknowledges what nobody will read."""
    broken = [number for number in range(300) if faults(played(number, looks=False))]
    assert broken


def test_a_block_is_valid_in_the_epoch_of_the_last_claim_before_it() -> None:
    one, two = Batch(0, 1), Batch(0, 2)
    early, void, late = Block(0, 0, 0, (one,)), Block(0, 1, 1, (two,)), Block(2, 0, 1, (two,))
    log: list[Record] = [Claim(0, 0), early, Claim(1, 0), void, late]
    assert list(valid_blocks(log)) == [early, late]
