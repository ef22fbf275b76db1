"""The journal on a lane in memory: takeovers, gaps, lost answers, brokers that are away, snapshots and retention."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.errors import AwayError, FormatVersionError, JournalError, TrimmedError, UnavailableError
from raceway.journal.integrity.recovery import SKIPPED
from raceway.journal.kafka.records import ClaimRule, block_records, is_claim
from raceway.journal.kafka.snapshots import SEGMENT, SNAPSHOT, maybe_owner, snapshots_of
from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.journal import Rig, column, numbered, payloads, topic_payloads
from tests.rigs.lane import AWAY, MemoryLane, SharedLog
from tests.rigs.rounds import rounds

Open = Callable[..., Rig]


@pytest.fixture
def log() -> SharedLog:
    return SharedLog()


@pytest.fixture
def opened(tmp_path: Path, log: SharedLog) -> Iterator[Open]:
    rigs: list[Rig] = []

    def open_node(node: str = "one", cluster: dict[str, Any] | None = None, **settings: Any) -> Rig:
        folder = tmp_path / f"{node}-{len(rigs)}"
        settings = {"retry_s": 0.02, **settings}
        rigs.append(Rig(folder, durability="kafka", log=log, node=node, cluster=cluster, **settings))
        return rigs[-1]

    yield open_node
    log.is_down = False
    for rig in rigs:
        rig.lane.is_held = False
        rig.lane.answer()
        rig.close()


def epochs(log: SharedLog) -> list[int]:
    return [record.offset for record in log.records if is_claim(record)]


def stored(opened: Open, topic: str = "a") -> list[bytes]:
    """What the next owner finds."""
    rig = opened("reader")
    found = payloads_of(rig, topic)
    rig.close()
    return found


def elsewhere(read: Callable[[], Iterable[Any]]) -> list[Any]:
    """Read in another thread, which may wait for Kafka."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(read()))
    thread.start()
    thread.join()
    return found


def fetched(rig: Rig, topic: str, offset: int = 0) -> list[Any]:
    return elsewhere(lambda: rig.journal.read_topic(topic, offset, max_rows=10_000, max_bytes=1 << 30))


def everything(rig: Rig) -> list[Any]:
    return elsewhere(lambda: rig.journal.read(0, columns=["sequence"]))


def payloads_of(rig: Rig, topic: str) -> list[bytes]:
    """All messages of a topic, with their offsets checked to be dense."""
    batches = fetched(rig, topic)
    assert column(batches, "offset") == list(range(sum(batch.num_rows for batch in batches)))
    return column(batches, "payload")


# ---- owners ---------------------------------------------------------------------------------------------------------


def test_a_new_owner_has_rows_state_and_offsets(opened: Open) -> None:
    first = opened("one")
    first.keep("a", *numbered(5))
    first.keep("b", b"other")
    first.journal.set_state("cursors", "s", {"topic": "a", "offset": 3})
    first.commit()
    first.close()
    second = opened("two")
    assert payloads_of(second, "a") == list(numbered(5))
    assert second.journal.state.get("cursors", "s") == {"topic": "a", "offset": 3}
    assert (second.journal.offsets("a"), second.journal.next_sequence) == ((0, 5), 7)
    second.keep("a", b"5")
    assert column(second.journal.read_topic("a", 0), "offset") == list(range(6))
    assert column(everything(second), "sequence") == list(range(8))


def test_a_former_owner_is_told_unavailable_and_its_rows_are_void(opened: Open, log: SharedLog) -> None:
    first = opened("one")
    first.keep("a", b"before")
    lost: list[tuple[str, bool]] = []
    first.kafka.lost = lambda *told: lost.append(told)
    second = opened("two")
    first.publish("a", b"too late")
    first.journal.flush()
    first.pump(lambda: len(first.answers) == 2)
    assert type(first.answers[1]) is UnavailableError
    assert "two has claimed it (epoch 2)" in str(first.answers[1])
    assert first.journal.health().status == "lost"
    assert [is_owned for _, is_owned in lost] == [True]
    with pytest.raises(UnavailableError, match="does not own the lane"):
        first.publish("a", b"later still")
    second.keep("a", b"after")
    assert payloads_of(second, "a") == [b"before", b"after"]
    assert stored(opened) == [b"before", b"after"]


def heard(rig: Rig) -> bool:
    return len(rig.answers) == 1


def test_two_claimants_and_the_later_one_owns(opened: Open) -> None:
    first, second, third = opened("one"), opened("two"), opened("three")
    for rig in (first, second):
        rig.publish("a", b"void")
        rig.journal.flush()
        rig.pump(partial(heard, rig))
        assert rig.answers[0] is not None
    third.keep("a", b"valid")
    assert third.answers == [None]
    assert stored(opened) == [b"valid"]


def test_an_idle_owner_notices_a_claim(opened: Open, log: SharedLog) -> None:
    rig = opened(cluster={"look_s": 0.02})
    lost: list[tuple[str, bool]] = []
    rig.kafka.lost = lambda *told: lost.append(told)
    log.inject_claim()
    rig.pump(lambda: bool(lost))
    assert rig.journal.health().status == "lost"


def test_the_owner_is_told_and_none_after_it_gave_the_lane_up(opened: Open, log: SharedLog) -> None:
    first = opened("one")
    first.keep("a", b"x")
    first.close()
    owner = maybe_owner(log.values)
    assert owner is not None
    assert (owner.node, owner.epoch) == ("", 0)
    second = opened("two")
    second.keep("a", b"y")
    second.pump(lambda: (found := maybe_owner(log.values)) is not None and found.node == "two")


# ---- gaps -----------------------------------------------------------------------------------------------------------


def test_several_blocks_are_in_flight_and_acknowledged_in_order(opened: Open) -> None:
    rig = opened()
    rig.lane.is_held = True
    for number in range(6):
        rig.publish("a", b"%d" % number)
        rig.journal.flush()
    rig.pump(lambda: rig.lane.held == 4)
    assert rig.answers == []
    rig.lane.answer(2)
    rig.pump(lambda: len(rig.answers) == 2)
    assert payloads(rig.journal) == [b"0", b"1"]
    rig.lane.is_held = False
    rig.lane.answer()
    rig.pump(lambda: len(rig.answers) == 6)
    assert rig.answers == [None] * 6
    assert rig.journal.health().blocks == 5  # the last two in one


def test_a_claim_among_blocks_in_flight_fails_those_behind_it(opened: Open, log: SharedLog) -> None:
    rig = opened()
    rig.lane.is_held = True
    for number in range(4):
        if number == 2:
            rig.pump(lambda: rig.lane.held == 2)
            log.inject_claim()
        rig.publish("a", b"%d" % number)
        rig.journal.flush()
    rig.pump(lambda: rig.lane.held == 4)
    rig.lane.answer()
    rig.pump(lambda: len(rig.answers) == 4)
    assert [error is None for error in rig.answers] == [True, True, False, False]
    assert stored(opened) == [b"0", b"1"]


def test_void_blocks_in_a_gap_do_no_harm(opened: Open, log: SharedLog) -> None:
    rig = opened("one")
    rig = opened("two")
    zombie = next(iter(block_records([b"of before"], 0, 0, 0, 1000)))
    rig.lane.before = lambda: void(log.append(*zombie))
    rig.keep("a", b"1")
    rig.lane.before = lambda: None
    rig.keep("a", b"2")
    assert rig.answers == [None, None]
    assert stored(opened) == [b"1", b"2"]


def void(_: int) -> None: ...


def test_answers_without_an_offset_are_looked_up(opened: Open, log: SharedLog) -> None:
    rig = opened()
    rig.lane.loses_offsets = True
    rig.keep("a", b"1")
    rig.keep("a", b"2")
    assert rig.answers == [None, None]
    log.inject_claim()
    rig.publish("a", b"3")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 3)
    assert rig.answers[2] is not None
    rig.lane.loses_offsets = False
    assert stored(opened) == [b"1", b"2"]


def test_rows_that_cannot_be_encoded_do_not_fail_those_before_them(opened: Open) -> None:
    rig = opened()
    rig.lane.is_held = True
    for payload, timeout_ms in ((b"good", 1), (b"bad", 2**70), (b"behind", 1)):
        rig.publish("a", payload, timeout_ms=timeout_ms)
        rig.journal.flush()
    rig.pump(lambda: rig.lane.held == 1)
    rig.lane.is_held = False
    rig.lane.answer()
    rig.pump(lambda: len(rig.answers) == 3)
    assert rig.answers[0] is None
    assert all(isinstance(error, JournalError) for error in rig.answers[1:])
    rig.keep("a", b"after")
    assert payloads_of(rig, "a") == [b"good", b"after"]


def test_a_large_block_is_cut_into_records_and_counts_only_complete(opened: Open, log: SharedLog) -> None:
    rig = opened(cluster={"record_bytes": 1024})
    rig.keep("a", b"x" * 5000)
    assert len(log.records) > 5
    assert stored(opened) == [b"x" * 5000]
    rig = opened(cluster={"record_bytes": 1024})
    rig.lane.is_held = True
    rig.publish("a", b"y" * 5000)
    rig.journal.flush()
    rig.pump(lambda: rig.lane.held >= 5)
    del log.records[-1]  # the last part did not arrive
    log.inject_claim()
    assert stored(opened) == [b"x" * 5000]


# ---- Kafka is away --------------------------------------------------------------------------------------------------


def test_brokers_that_refuse_make_it_read_only_until_they_take_blocks_again(opened: Open, log: SharedLog) -> None:
    rig = opened()
    rig.keep("a", b"before")
    rig.lane.refuses = True
    rig.publish("a", b"refused")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 2)
    assert type(rig.answers[1]) is UnavailableError
    assert AWAY in str(rig.answers[1])
    assert rig.journal.health().status == "away"
    assert payloads(rig.journal) == [b"before"]  # can be read
    with pytest.raises(UnavailableError, match="does not accept blocks"):
        rig.publish("a", b"refused")
    rig.journal.set_state("cursors", "s", 1)  # is kept until then
    rig.lane.refuses = False
    rig.pump(lambda: rig.journal.health().status == "ok")
    rig.keep("a", b"after")
    assert payloads_of(rig, "a") == [b"before", b"after"]
    assert len(epochs(log)) == 2
    rig.close()
    reader = opened("reader")
    assert reader.journal.state.get("cursors", "s") == 1


def test_blocks_in_doubt_that_were_stored_make_it_begin_anew(opened: Open) -> None:
    rig = opened()
    lost: list[tuple[str, bool]] = []
    rig.kafka.lost = lambda *told: lost.append(told)
    rig.keep("a", b"before")
    rig.lane.doubts = True
    rig.publish("a", b"in doubt")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 2)
    assert rig.answers[1] is not None
    rig.lane.doubts = False
    rig.pump(lambda: bool(lost))
    assert "outcome was unknown" in lost[0][0]
    assert not lost[0][1]
    assert stored(opened) == [b"before", b"in doubt"]


def test_whoever_returns_takes_the_lane_from_nobody(opened: Open, log: SharedLog) -> None:
    rig = opened()
    rig.lane.refuses = True
    rig.publish("a", b"refused")
    log.inject_claim()
    rig.journal.flush()
    rig.pump(lambda: rig.journal.health().status == "away")
    rig.lane.refuses = False
    rig.pump(lambda: rig.journal.health().status == "lost")
    assert len(epochs(log)) == 2


def test_a_block_that_never_arrived_makes_void_what_follows_it(opened: Open, log: SharedLog) -> None:
    rig = opened()
    rig.keep("a", b"0")
    rig.lane.is_held = True
    for number in (1, 2):
        rig.publish("a", b"%d" % number)
        rig.journal.flush()
    rig.pump(lambda: rig.lane.held == 2)
    records, log.records = log.records, []
    for record in records[:-2] + records[-1:]:  # without block 1
        log.append(record.headers, record.value)
    assert stored(opened) == [b"0"]


def test_no_broker_at_the_start(opened: Open, log: SharedLog) -> None:
    log.is_down = True
    with pytest.raises(UnavailableError, match=AWAY):
        opened()


# ---- snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_bounds_what_the_next_owner_reads(opened: Open, log: SharedLog) -> None:
    rig = opened(segment_bytes=4000)
    for number in range(40):
        rig.publish("a", b"%d" % number, b"." * 500)
        rig.journal.set_state("cursors", "s", number)
        rig.commit()
    rig.close()
    log.reads.clear()
    end = len(log.records)
    reader = opened("reader")
    assert log.reads == [(end, end)]
    assert len(reader.kafka._catalogue.listing.segments) > 3
    assert reader.journal.state.get("cursors", "s") == 39
    reader.keep("a", b"next")
    assert column(fetched(reader, "a"), "offset") == list(range(81))


def test_a_snapshot_is_written_while_blocks_come(opened: Open, log: SharedLog) -> None:
    rig = opened(cluster={"snapshot_bytes": 2000})
    for number in range(20):
        rig.keep("a", b"%d" % number, b"." * 500)
    rig.pump(lambda: bool(snapshots_of(log.values)))
    # As after a kill: nothing is closed.
    log.reads.clear()
    reader = opened("reader")
    assert log.reads[0][0] > 0
    assert column(fetched(reader, "a"), "offset") == list(range(40))


def test_a_damaged_snapshot_is_replaced_by_an_older_one_or_by_the_lane(opened: Open, log: SharedLog) -> None:
    rig = opened(segment_bytes=4000, cluster={"snapshot_bytes": 2000})
    for number in range(20):
        rig.keep("a", b"%d" % number, b"." * 500)
    rig.close()
    newest = max(
        (key for key in log.values if key.startswith(SNAPSHOT)), key=lambda key: int.from_bytes(log.values[key][:8])
    )
    log.values[newest] = log.values[newest][:16] + bytes(50)
    reader = opened("reader")
    assert column(fetched(reader, "a"), "offset") == list(range(40))
    for key in list(log.values):
        if key.startswith(SEGMENT):
            del log.values[key]
    other = opened("other")
    assert column(fetched(other, "a"), "offset") == list(range(40))
    assert other.journal.next_sequence == 40


def test_values_of_former_owners_are_removed(opened: Open, log: SharedLog) -> None:
    for node in ("one", "two", "three"):
        rig = opened(node)
        rig.keep("a", node.encode())
        rig.close()

    def written() -> set[int]:
        return {int(key.split("/")[1]) for key in log.values if key.startswith(SNAPSHOT)}

    # The owner before is needed should the only snapshot of this one be damaged.
    assert written() == set(epochs(log)[-2:])
    rig = opened("four", cluster={"snapshot_bytes": 1})
    rig.keep("a", b"four")
    rig.keep("a", b"five")
    rig.close()
    assert written() == {epochs(log)[-1]}
    assert {int(key.split("/")[1]) for key in log.values if key.startswith(SEGMENT)} == {epochs(log)[-1]}
    assert stored(opened) == [b"one", b"two", b"three", b"four", b"five"]


def test_the_only_snapshot_of_an_owner_may_be_damaged(opened: Open, log: SharedLog) -> None:
    for node in ("one", "two"):
        rig = opened(node)
        for number in range(20):
            rig.keep("a", b"%d" % number, b"." * 500)
        rig.close()
    for key in log.values:
        if key.startswith(f"{SNAPSHOT}{epochs(log)[-1]}/"):
            log.values[key] = log.values[key][:16] + bytes(50)
    log.reads.clear()
    reader = opened("reader")
    assert column(fetched(reader, "a"), "offset") == list(range(80))
    assert log.reads[0][0] > epochs(log)[0] + 20  # from the snapshot of the first owner, not from the beginning


def test_segments_of_a_former_owner_are_kept_under_keys_of_the_new_one(opened: Open, log: SharedLog) -> None:
    first = opened("one", segment_bytes=4000, cluster={"snapshot_bytes": 2000})
    for number in range(20):
        first.keep("a", b"%d" % number, b"." * 500)
    second = opened("two")
    second.keep("b", b"mine")
    second.close()
    # What the former owner had begun to do: remove values of segments that it does not need any more.
    for key in list(log.values):
        if key.startswith((f"{SEGMENT}{epochs(log)[0]}/", f"{SNAPSHOT}{epochs(log)[0]}/")):
            del log.values[key]
    log.reads.clear()
    third = opened("three")
    assert log.reads[0][0] > epochs(log)[1]  # from the snapshot of the second
    assert column(fetched(third, "a"), "offset") == list(range(40))


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_offsets_of_a_damaged_block_are_not_given_again(opened: Open, log: SharedLog, behind: int) -> None:
    first = opened("one")
    for number in range(5):
        first.keep("a", b"%d" % number)
    blocks = [number for number, record in enumerate(log.records) if not is_claim(record)]
    damaged = blocks[-1 - behind]
    log.records[damaged] = log.records[damaged]._replace(value=bytes(len(log.records[damaged].value)))
    second = opened("two")
    lost = [each for each in second.journal.health().damage if each.kind == "missing"]
    assert [(each.first, each.position) for each in lost] == [(4 - behind, damaged)]
    # With a block behind it the rows are known by number; without, as many are left out as none can have had.
    rows = 1 if behind else SKIPPED
    assert lost[0].last == lost[0].first + rows - 1
    assert second.journal.next_sequence == 5 + (0 if behind else rows - 1)
    second.keep("a", b"new")
    offsets = column(fetched(second, "a"), "offset")
    assert len(set(offsets)) == len(offsets) == 5
    assert offsets[-1] >= 5


# ---- reading --------------------------------------------------------------------------------------------------------


def test_rows_that_are_not_in_the_cache_are_brought_back(opened: Open) -> None:
    rig = opened()
    rig.keep("a", *numbered(3))
    rig.close()
    reader = opened("reader")
    reader.journal.flush()
    with pytest.raises(AwayError) as away:
        payloads(reader.journal)
    reader.journal.bring_back(away.value.segment)
    assert payloads(reader.journal) == list(numbered(3))


def test_a_bus_that_starts_may_wait_for_rows(opened: Open) -> None:
    rig = opened()
    rig.keep("a", *numbered(3))
    rig.close()
    assert payloads(opened("reader").journal) == list(numbered(3))


def test_a_cache_that_cannot_be_written_is_in_memory(opened: Open, tmp_path: Path) -> None:
    rig = opened()
    rig.folder.mkdir(exist_ok=True)
    (rig.folder / "lane-cache").write_bytes(b"no folder")
    rig.keep("a", *numbered(3))
    assert payloads(rig.journal) == list(numbered(3))


# ---- retention ------------------------------------------------------------------------------------------------------


def test_retention_removes_segments_values_and_records(opened: Open, log: SharedLog) -> None:
    rig = opened(segment_bytes=4000, retention=config.Retention(max_bytes=8000))
    for number in range(40):
        rig.keep("a", b"%d" % number, b"." * 500)
    segments = len(rig.kafka._catalogue.listing.segments)
    rig.journal.upkeep()
    rig.pump(lambda: rig.journal.first_position() > 0)
    first = rig.journal.offsets("a")[0]
    assert len(rig.kafka._catalogue.listing.segments) < segments
    with pytest.raises(TrimmedError):
        topic_payloads(rig.journal, "a", 0)
    rig.keep("a", b"more")  # a snapshot, and another one: the lane is trimmed up to the first
    rig.kafka._take_snapshot()
    rig.close()
    assert log.low > 0
    reader = opened("reader")
    assert reader.journal.offsets("a") == (first, 81)
    assert column(fetched(reader, "a", first), "offset") == list(range(first, 81))


# ---- versions -------------------------------------------------------------------------------------------------------


def test_a_lane_of_a_newer_release_is_refused(opened: Open, log: SharedLog) -> None:
    log.append({"c": (99).to_bytes(8)}, b"{}")
    with pytest.raises(FormatVersionError, match="format 99"):
        opened()


# ---- histories ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(rounds(25)))
def test_acknowledged_rows_are_valid_once_and_in_order(tmp_path: Path, seed: int) -> None:
    """Several nodes, of which any may claim at any time; answers that wait, lack their offset, or never come."""
    chance, log = random.Random(seed), SharedLog()
    nodes: list[Rig] = []
    acknowledged: list[bytes] = []
    number = 0

    def claim() -> None:
        folder = tmp_path / f"{len(nodes)}"
        nodes.append(
            Rig(
                folder,
                durability="kafka",
                log=log,
                node=f"n{len(nodes)}",
                retry_s=0.005,
                cluster={"commit_timeout_s": 0.2},
            )
        )

    def publish(rig: Rig) -> None:
        nonlocal number
        payload = b"%d" % number
        number += 1
        batch_done = lambda error: acknowledged.append(payload) if error is None else None  # noqa: E731
        try:
            rig.journal.append(_message(payload), batch_done)
        except UnavailableError:
            return
        rig.journal.flush()

    claim()
    for _ in range(chance.randrange(20, 60)):
        rig = chance.choice(nodes[-3:])
        lane: MemoryLane = rig.lane
        what = chance.random()
        if what < 0.06 and len(nodes) < 6:
            claim()
        elif what < 0.6:
            publish(rig)
        elif what < 0.7:
            lane.is_held = not lane.is_held
        elif what < 0.75:
            lane.loses_offsets = not lane.loses_offsets
        elif what < 0.8:
            lane.doubts = not lane.doubts
        elif what < 0.85:
            lane.refuses = not lane.refuses
        else:
            lane.answer(min(lane.held, chance.randrange(3)))
        drain(rig)
    for rig in nodes:
        rig.lane.is_held = rig.lane.doubts = rig.lane.refuses = False
        rig.lane.answer()
        drain(rig)
    reader = Rig(tmp_path / "reader", durability="kafka", log=log, node="reader")
    found = payloads_of(reader, "a")
    assert column(everything(reader), "sequence") == list(range(len(found)))
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    assert len(acknowledged) == len(set(acknowledged))
    for rig in (*nodes, reader):
        rig.close()
    # The log itself, by the rule alone.
    rule = ClaimRule(-1)
    blocks = [block for record in log.records if (block := rule.maybe_block(record)) is not None]
    assert [block.first for block in blocks] == sorted(block.first for block in blocks)


def _message(payload: bytes) -> Batch:
    return Batch(1, topic=b"a", kind=PUBLISH, wire=MB, payload=[payload])


def drain(rig: Rig) -> None:
    """Let the writer do what it can, and take its calls."""
    done: list[None] = []
    rig.kafka._writer._jobs.put(lambda: rig._calls.put(lambda: done.append(None)))
    rig.pump(lambda: bool(done) and rig._calls.empty())
