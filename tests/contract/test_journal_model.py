"""Batches in, the same rows out: whatever the borders of blocks and segments, and whatever happens in between."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raceway.errors import DiskFullError
from raceway.model.envelope import COLUMNS, CONTROL, Batch, Envelope, Hop
from tests.rigs.journal import Rig, column, quick_folder, rows
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.rounds import rounds

TOPICS = ("a", "b.c", "Größe")
_short = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_number = st.none() | st.integers(-(2**63), 2**63 - 1)
_hops = st.lists(st.builds(Hop, sid=_short, rid=_short, tms=st.tuples(st.integers(0, 99))), max_size=2).map(tuple)
_envelope = st.builds(
    Envelope,
    topic=st.sampled_from(TOPICS),
    kind=st.sampled_from(["publish", "request", "response"]),
    wire=st.sampled_from(["mb", "zbus"]),
    message_id=st.none() | _short,
    correlation_id=st.none() | _short,
    sent_ms=_number,
    producer_id=_number,
    error=st.none() | _short,
    attributes=st.dictionaries(_short, _short, max_size=2),
    hops=_hops,
    payload=st.binary(max_size=40),
)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Rows of any kind, or of one topic and kind with scalars, as codecs make them."""
    envelopes = draw(st.lists(_envelope, min_size=1, max_size=8))
    batch = Batch.of(envelopes)
    for name in draw(st.sets(st.sampled_from(["topic", "kind", "wire", "sent_ms", "error", "attributes", "payload"]))):
        setattr(batch, name, batch.item(name, 0))
    del batch.__dict__["time_us"]
    return batch


def expected_rows(batch: Batch, first: int, offsets: dict[str, int]) -> list[dict[str, Any]]:
    """What a reader must get, by the plainest possible reckoning."""
    found = []
    for number, row in enumerate(batch):
        offset = None
        if row.kind in ("publish", "request"):
            offset = offsets[row.topic] = offsets.get(row.topic, -1) + 1
        fields = {name: getattr(row, name) for name in COLUMNS if name != "time_us"}
        hops = [{"sid": hop.sid, "rid": hop.rid, "mid": hop.mid, "tms": list(hop.tms)} for hop in row.hops]
        fields |= {"sequence": first + number, "offset": offset, "attributes": list(row.attributes.items())}
        fields |= {"hops": hops, "partition": 0}
        found.append({name: value for name, value in fields.items() if value not in (None, [])})
    return found


def without_time(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "time_us"} for row in found]


@settings(max_examples=rounds(30))
@given(
    appended=st.lists(batches(), min_size=1, max_size=12),
    flushes=st.sets(st.integers(0, 11)),
    durability=st.sampled_from(["sync", "memory"]),
    block_rows=st.integers(1, 12),
    segment_bytes=st.sampled_from([1, 2000, 10**6]),
)
def test_rows_come_out_as_they_went_in(
    appended: list[Batch], flushes: set[int], durability: str, block_rows: int, segment_bytes: int
) -> None:
    with quick_folder() as folder:
        rig = Rig(
            folder / "data", FaultyFiles(), durability=durability, block_rows=block_rows,
            segment_bytes=segment_bytes, block_bytes=300,
        )  # fmt: skip
        offsets: dict[str, int] = {}
        expected: list[dict[str, Any]] = []
        for number, batch in enumerate(appended):
            expected += expected_rows(batch, len(expected), offsets)
            assert rig.journal.append(batch) == len(expected) - batch.count
            if number in flushes:
                rig.journal.flush()
        rig.commit()
        assert without_time(rows(rig.journal.read(0))) == expected
        for topic in TOPICS:
            of_topic = [row for row in expected if row.get("topic") == topic and "offset" in row]
            assert without_time(rows(rig.journal.read_topic(topic, 0, max_rows=1000))) == of_topic
            assert [row["offset"] for row in of_topic] == list(range(len(of_topic)))
        rig.close()


class JournalMachine(RuleBasedStateMachine):
    """A journal on files beside a list of what was acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = ExitStack()
        self.folder = self.exits.enter_context(quick_folder())
        self.files = FaultyFiles()
        self.kept: list[tuple[str, bytes]] = []
        self.open: list[tuple[str, bytes]] = []
        self.state: dict[str, int] = {}
        self.numbers = itertools.count()

    @initialize(block_rows=st.integers(1, 6), segment_bytes=st.sampled_from([600, 10**6]))
    def start(self, block_rows: int, segment_bytes: int) -> None:
        self.rig = Rig(
            self.folder / "data", self.files, block_rows=block_rows, segment_bytes=segment_bytes,
            retry_s=0.01, seal=False,
        )  # fmt: skip

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 8))
    def append(self, topic: str, count: int) -> None:
        payloads = [b"%d" % next(self.numbers) for _ in range(count)]
        self.rig.publish(topic, *payloads)
        self.open += [(topic, payload) for payload in payloads]

    @rule(key=st.sampled_from("xyz"))
    def set_state(self, key: str) -> None:
        value = next(self.numbers)
        self.rig.journal.set_state("s", key, value)
        self.state[key] = value

    @rule()
    def flush(self) -> None:
        self.rig.journal.flush()

    @rule()
    def commit(self) -> None:
        self.rig.commit()
        self.kept += self.open
        self.open = []

    @precondition(lambda self: self.open)
    @rule()
    def fill_the_disk(self) -> None:
        """What is in flight may be committed before the disk is full; everything else is refused."""
        answered = len(self.rig.answers)
        appended = len(self.open)
        self.files.free = 0
        self.rig.journal.flush()
        self.rig.pump(lambda: self.rig.journal.health().status == "disk_full" or not self.unanswered())
        self.files.free = None
        self.rig.pump(lambda: self.rig.journal.health().status == "ok")
        self.rig.commit()
        committed = self.rig.answers[answered:].count(None)
        assert all(isinstance(answer, DiskFullError | None) for answer in self.rig.answers[answered:])
        found = self.payloads()
        assert found[: len(self.kept)] == self.kept
        assert found[len(self.kept) :] == self.open[: len(found) - len(self.kept)]
        assert committed or len(found) - len(self.kept) < appended
        self.kept, self.open = found, []

    def unanswered(self) -> bool:
        return self.rig.journal.health().unsynced_bytes > 0

    @rule()
    def reopen(self) -> None:
        self.rig.reopen(self.files)
        self.kept += self.open
        self.open = []

    @precondition(lambda self: not self.open)
    @rule()
    def crash(self) -> None:
        self.rig.commit()
        self.rig.restart(self.files)

    def payloads(self) -> list[tuple[str, bytes]]:
        found = rows(self.rig.journal.read(0, columns=["topic", "payload", "kind"]))
        return [(row["topic"], row["payload"]) for row in found if row["kind"] != CONTROL.decode()]

    @invariant()
    def the_journal_holds_what_was_acknowledged(self) -> None:
        if not hasattr(self, "rig"):
            return
        found = self.payloads()
        assert found[: len(self.kept)] == self.kept
        assert found[len(self.kept) :] == self.open[: len(found) - len(self.kept)]
        assert dict(self.rig.journal.state.section("s")) == self.state
        for topic in TOPICS:
            offsets = column(self.rig.journal.read_topic(topic, 0, max_rows=10**6, columns=["offset"]), "offset")
            assert offsets == list(range(len(offsets)))
            # The writer may have committed a block between the two readings.
            assert len(offsets) >= sum(1 for name, _ in found if name == topic)

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.close()
        self.exits.close()


JournalMachine.TestCase.settings = settings(max_examples=rounds(25), stateful_step_count=20, deadline=None)
TestJournalMachine = JournalMachine.TestCase
