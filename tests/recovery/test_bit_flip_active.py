"""Damage inside the active segment: one flipped bit costs nothing, a lost page costs at most the block it lies in."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from raceway.journal.files import Files
from raceway.journal.identity import maybe_read_identity
from raceway.journal.read.reader import Reader
from raceway.journal.read.segment import BlockSegment
from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.journal import Rig, column, quick_folder, rows
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.journal_rows import table
from tests.rigs.rounds import rounds, seeded

PAGE = 4096


def content(number: int) -> bytes:
    return (b"%d " % number) * 40


def make_batch(first: int, count: int) -> Batch:
    """Rows with every kind of column: constants, runs, ramps, plain ones with and without null."""
    return Batch(
        count,
        topic=b"even" if first % 2 == 0 else [b"odd", b"even"] * (count // 2),
        kind=PUBLISH,
        wire=MB,
        message_id=[b"%036d" % number for number in range(first, first + count)],
        parent_id=[b"p%d" % number if number % 3 else None for number in range(first, first + count)],
        timeout_ms=list(range(count)),
        attributes=b'{"a":"b"}' if first % 3 == 0 else None,
        payload=[content(number) for number in range(first, first + count)],
    )


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A killed journal: small blocks, one large block of several stripes, small blocks again; and its rows."""
    rig = Rig(tmp_path_factory.mktemp("flips") / "data", FaultyFiles())
    first = 0
    for count in [4] * 8 + [2000] + [4] * 8:
        rig.journal.append(make_batch(first, count))
        rig.journal.set_state("progress", "rows", first + count)
        rig.commit()
        first += count
    everything = table(rig.journal.read(0))
    rig.crash()
    return rig.folder, everything


def damaged(written: tuple[Path, pa.Table], target: Path, change: Callable[[bytearray], None]) -> Rig:
    """A copy of the journal with its segment changed, opened."""
    shutil.copytree(written[0], target)
    (active,) = target.glob("*.blocks")
    data = bytearray(active.read_bytes())
    change(data)
    active.write_bytes(data)
    return Rig(target, FaultyFiles())


def size_of(written: tuple[Path, pa.Table]) -> int:
    (active,) = written[0].glob("*.blocks")
    return active.stat().st_size


def rows_touched(folder: Path, begin: int, end: int) -> set[int]:
    """Sequences of the blocks that have bytes between two positions of the file."""
    (active,) = folder.glob("*.blocks")
    identity = maybe_read_identity(Files(), folder)
    assert identity is not None
    index = BlockSegment(active, identity.marker_bytes).index
    positions = [*index.positions, active.stat().st_size]
    return {
        sequence
        for chunk in range(len(index))
        if positions[chunk] < end and positions[chunk + 1] > begin
        for sequence in range(index.first_of(chunk), index.last_of(chunk) + 1)
    }


def test_one_flipped_bit_anywhere_is_repaired_and_reported(written: tuple[Path, pa.Table], tmp_path: Path) -> None:
    chance = seeded("bit flips in the active segment")
    padding = 0
    odd_payloads = written[1].filter(pc.field("topic") == "odd")["payload"].to_pylist()
    for _ in range(rounds(200)):
        bit = chance.randrange(8 * size_of(written))

        def flip(data: bytearray, bit: int = bit) -> None:
            data[bit // 8] ^= 1 << bit % 8

        rig = damaged(written, tmp_path / "data", flip)
        assert table(rig.journal.read(0)).equals(written[1]), bit
        odd = rig.journal.read_topic("odd", 0, max_rows=10**6, columns=["payload"])
        assert column(odd, "payload") == odd_payloads
        assert rig.journal.state.get("progress", "rows") == 2064
        health = rig.journal.health()
        assert (health.quarantined_rows, health.missing_rows, health.bytes_cut) == (0, 0, 0), bit
        assert health.repairs == 1 or not health.damage
        padding += not health.damage  # the few bytes between meta and body belong to nobody
        assert rig.journal.next_sequence == written[1].num_rows
        rig.close()
        shutil.rmtree(tmp_path / "data")
    assert padding <= rounds(200) // 20


def test_a_zeroed_page_costs_at_most_the_blocks_it_touches(written: tuple[Path, pa.Table], tmp_path: Path) -> None:
    chance = seeded("zeroed pages in the active segment")
    pages = size_of(written) // PAGE
    for page in {0, pages, *(chance.randrange(pages) for _ in range(rounds(20)))}:

        def wipe(data: bytearray, at: int = page * PAGE) -> None:
            end = min(at + PAGE, len(data))
            data[at:end] = bytes(end - at)

        rig = damaged(written, tmp_path / "data", wipe)
        found = table(rig.journal.read(0))
        lost = set(range(written[1].num_rows)) - set(found["sequence"].to_pylist())
        assert found.equals(written[1].filter(pc.is_in(written[1]["sequence"], found["sequence"])))
        assert lost, page
        assert lost <= rows_touched(written[0], page * PAGE, page * PAGE + PAGE), page
        health = rig.journal.health()
        assert health.quarantined_rows + health.missing_rows == len(lost), (page, health.damage)
        reported = {n for damage in health.damage for n in range(damage.first, damage.last + 1)}
        assert lost <= reported
        rig.keep("even", b"after")
        assert rows(rig.journal.read(0))[-1]["payload"] == b"after"
        rig.close()
        shutil.rmtree(tmp_path / "data")


def test_rows_of_a_damaged_block_that_lie_in_good_stripes_are_kept(
    written: tuple[Path, pa.Table], tmp_path: Path
) -> None:
    """The large block's payloads fill many stripes; a page among them costs the rows of one or two stripes."""
    payload = content(1500)

    def wipe(data: bytearray) -> None:
        at = data.index(payload)
        data[at : at + PAGE] = bytes(PAGE)

    rig = damaged(written, tmp_path / "data", wipe)
    everything = set(range(written[1].num_rows))
    lost = everything - set(column(rig.journal.read(0), "sequence"))
    assert 0 < len(lost) < 700
    assert len(lost) == rig.journal.health().quarantined_rows
    whole = set(column(rig.journal.read(0, columns=["sequence", "topic", "message_id"]), "sequence"))
    assert whole == everything  # other columns of those rows are good
    rig.close()


def test_another_process_reads_past_damage_too(written: tuple[Path, pa.Table], tmp_path: Path) -> None:
    def wipe(data: bytearray) -> None:
        data[100:300] = bytes(200)

    damaged(written, tmp_path / "data", wipe).crash()
    reader = Reader(tmp_path / "data")
    found = table(reader.read(0))
    lost = written[1].num_rows - found.num_rows
    assert found.equals(written[1].slice(lost))
    assert 0 < lost <= 15
    assert any(damage.kind == "missing" for damage in reader.damage)
    reader.close()
