"""Sealed segments: rows come back as they were, by position and by offset, whatever happened to the files."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raceway.errors import FormatVersionError
from raceway.journal.contract import Damage, Segment
from raceway.journal.format import SCHEMA
from raceway.journal.integrity.checksum import maybe_unprotect, protect
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.write.staging import seal_batches
from tests.rigs.journal_folder import UNSYNCED
from tests.rigs.journal_rows import TOPICS, Row, any_rows, batch, rows, table

FIRST, ROWS, GROUP = 1000, 3000, 500


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six row groups of 500 rows, of about 60 KiB each: stripes and row groups do not fall together."""
    path = tmp_path_factory.mktemp("pristine") / f"segment-{FIRST:020d}.parquet"
    seal_batches(random_batches(), path, GROUP, first=FIRST)
    return path


@pytest.fixture
def sealed(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine.parent, tmp_path, dirs_exist_ok=True)) / pristine.name


def random_batches() -> list[pa.RecordBatch]:
    source = random.Random(3)
    found = rows(FIRST, ROWS)
    for row in found:
        row["payload"] = source.randbytes(100)  # not to be compressed away
    return [batch(found[at : at + 700]) for at in range(0, ROWS, 700)]


ALL = table(random_batches())


def read_all(segment: SealedSegment) -> pa.Table:
    return table(segment.read(segment.first, segment.last + 1))


def kinds(segment: SealedSegment) -> set[tuple[str, str]]:
    return {(damage.kind, damage.file.split(".")[1]) for damage in segment.damage}


def zero(path: Path, at: int, size: int = 4096) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + size] = bytes(min(size, len(data) - at))
    path.write_bytes(data)


# ---- whole files ----------------------------------------------------------------------------------------------------


def test_a_sealed_segment_has_the_shape_of_a_segment(sealed: Path) -> None:
    segment: Segment = SealedSegment(sealed)
    assert (segment.first, segment.last) == (FIRST, FIRST + ROWS - 1)
    assert segment.size == sum(path.stat().st_size for path in sealed.parent.iterdir())
    assert segment.damage == []
    segment.close()


def test_all_rows_come_back_in_order_and_in_the_canonical_schema(sealed: Path) -> None:
    found = list(SealedSegment(sealed).read(0, 10**9))
    assert all(batch.schema.equals(SCHEMA) for batch in found)
    assert max(batch.num_rows for batch in found) <= GROUP
    assert table(found).equals(ALL)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1000), (1000, 1001), (1499, 1501), (1500, 2000), (1234, 3456), (3999, 9999), (4000, 9999)]
)
def test_a_range_of_positions_is_read_exactly(sealed: Path, start: int, stop: int) -> None:
    expected = ALL.filter((pc.field("sequence") >= start) & (pc.field("sequence") < stop))
    assert table(SealedSegment(sealed).read(start, stop)).equals(expected)


def test_chosen_columns_come_in_the_order_asked_for(sealed: Path) -> None:
    found = table(SealedSegment(sealed).read(1400, 1600, ["payload", "topic"]), ALL.select(["payload", "topic"]).schema)
    assert found.equals(ALL.slice(400, 200).select(["payload", "topic"]).combine_chunks())


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("offset", [215, 300, 500, 10**6])
def test_a_topic_is_read_by_offset(sealed: Path, topic: str, offset: int) -> None:
    expected = ALL.filter((pc.field("topic") == topic) & (pc.field("offset") >= offset))
    found = table(SealedSegment(sealed).read_topic(topic, offset, max_rows=10**9, max_bytes=10**9))
    assert found.equals(expected.combine_chunks())


def test_a_topic_read_stops_at_its_limits_but_gives_at_least_one_row(sealed: Path) -> None:
    segment = SealedSegment(sealed)
    assert table(segment.read_topic(TOPICS[0], 300, max_rows=7))["offset"].to_pylist() == list(range(300, 307))
    assert table(segment.read_topic(TOPICS[0], 300, max_bytes=1))["offset"].to_pylist() == [300]
    some = table(segment.read_topic(TOPICS[0], 300, max_bytes=10_000))
    assert some["offset"].to_pylist() == list(range(300, 300 + some.num_rows))
    assert 10 < some.num_rows <= 100  # payloads of 100 bytes


def test_an_unknown_topic_has_no_rows_and_opens_no_row_group(sealed: Path) -> None:
    segment = SealedSegment(sealed)
    zero(sealed, 0, 100_000)
    assert list(segment.read_topic("nobody", 0)) == []
    assert segment.damage == []


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """Three row groups of 400 KiB, nearly all of it payload; `rare` is in the second one alone."""
    path = tmp_path / "segment-0.parquet"
    source = random.Random(2)
    found = [row | {"payload": source.randbytes(400)} for row in rows(0, 3000)]
    found[1500] |= {"topic": "rare", "offset": 0}
    seal_batches([batch(found)], path, 1000, first=0)
    zero(path, 200_000)
    return path


def test_only_row_groups_with_the_topic_are_opened(wide: Path) -> None:
    segment = SealedSegment(wide)
    assert table(segment.read_topic("rare", 0))["sequence"].to_pylist() == [1500]
    assert segment.damage == []
    assert table(segment.read(0, 3000)).num_rows == 2000


def test_columns_that_lie_outside_a_zeroed_page_are_still_read(wide: Path) -> None:
    segment = SealedSegment(wide)
    topics = pa.schema([SCHEMA.field("topic")])
    assert table(segment.read(0, 3000, ["topic"]), topics).num_rows == 3000
    assert segment.damage == []


def test_topics_give_the_first_and_the_next_offset(sealed: Path) -> None:
    offsets = {topic: ALL.filter(pc.field("topic") == topic)["offset"].drop_null() for topic in TOPICS}
    expected = {topic: (found[0].as_py(), found[-1].as_py() + 1) for topic, found in offsets.items()}
    assert SealedSegment(sealed).topics() == expected


def test_control_rows_are_read_from_the_row_groups_that_hold_them(tmp_path: Path) -> None:
    path = tmp_path / "segment-0.parquet"
    found = rows(0, 100)
    for at in (25, 28, 71):
        found[at] |= {"kind": "control", "topic": "", "offset": None, "payload": b'["a","b",%d]' % at}
    seal_batches([batch(found)], path, 10, first=0)
    schema = pa.schema([SCHEMA.field("kind"), SCHEMA.field("payload")])

    def control(start: int) -> list[bytes]:
        read = table(SealedSegment(path).read_control(start), schema)
        return [row["payload"] for row in read.to_pylist() if row["kind"] == "control"]

    assert control(0) == [b'["a","b",25]', b'["a","b",28]', b'["a","b",71]']
    assert control(26) == [b'["a","b",28]', b'["a","b",71]']
    assert control(72) == []


def test_other_tools_read_the_file_as_ordinary_parquet(sealed: Path) -> None:
    assert pq.read_table(sealed, page_checksum_verification=True).combine_chunks().equals(ALL)
    group = pq.ParquetFile(sealed).metadata.row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}


def test_files_are_for_their_owner_only_and_nothing_else_is_left(sealed: Path) -> None:
    assert {path.suffix for path in sealed.parent.iterdir()} == {".parquet", ".sum", ".idx"}
    assert {path.stat().st_mode & 0o777 for path in sealed.parent.iterdir()} == {0o600}


@given(any_rows(), st.integers(1, 20), st.integers(1, 70))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_rows_in_any_batches_come_back_the_same(
    tmp_path: Path, found: list[Row], per_batch: int, group: int
) -> None:
    path = tmp_path / "segment-100.parquet"
    given_batches = [batch(found[at : at + per_batch]) for at in range(0, len(found), per_batch)]
    seal_batches(given_batches, path, group, first=100, files=UNSYNCED)
    segment = SealedSegment(path)
    assert read_all(segment).equals(table(given_batches))
    for topic, (first, following) in segment.topics().items():
        offsets = table(segment.read_topic(topic, first))["offset"].to_pylist()
        assert offsets == list(range(first, following))


def test_what_was_parsed_is_kept_for_a_few_segments_only(tmp_path: Path) -> None:
    segments = []
    for first in range(0, 1000, 100):
        path = tmp_path / f"segment-{first}.parquet"
        seal_batches([batch(rows(first, 100))], path, GROUP, first=first, files=UNSYNCED)
        segments.append(SealedSegment(path))
    assert [read_all(segment).num_rows for segment in segments] == [100] * 10
    assert sum(segment._parts is not None for segment in segments) == 4
    assert read_all(segments[0]).num_rows == 100


def test_several_threads_read_more_segments_than_are_kept(tmp_path: Path) -> None:
    segments = []
    for first in range(0, 800, 100):
        path = tmp_path / f"segment-{first}.parquet"
        seal_batches([batch(rows(first, 100))], path, 30, first=first, files=UNSYNCED)
        segments.append(SealedSegment(path))

    def read_at_random(seed: int) -> bool:
        source = random.Random(seed)
        for _ in range(40):
            segment = source.choice(segments)
            start = source.randrange(segment.first, segment.first + 100)
            found = table(segment.read(start, segment.last + 1))["sequence"].to_pylist()
            if found != list(range(start, segment.first + 100)):
                return False
            topic, (first, following) = source.choice(list(segment.topics().items()))
            if table(segment.read_topic(topic, first))["offset"].to_pylist() != list(range(first, following)):
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read_at_random, range(4)))


READING = """
import re, sys
from pathlib import Path
import pyarrow as pa
from raceway.journal.read.sealed import SealedSegment
def grown(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
segment = SealedSegment(Path(sys.argv[1]))
pa.array([1])  # where pandas is installed, Arrow loads it now: 30 MiB that are none of the reader's
before = grown()
rows = sum(batch.num_rows for batch in segment.read(0, 10**9))
offset = 0
while found := list(segment.read_topic("a", offset, 100)):
    offset += sum(batch.num_rows for batch in found)
print(rows, offset, grown() - before)
"""


def test_a_reader_far_behind_needs_memory_for_a_row_group_and_not_for_the_file(tmp_path: Path) -> None:
    """96 MiB that cannot be compressed; the aim is 64 MiB for any amount, measured in bench/sealed.py."""
    source = random.Random(1)
    payloads = [source.randbytes(8192) for _ in range(100)]
    path = tmp_path / "segment-0.parquet"
    found = (
        batch([{"sequence": n, "topic": "a", "offset": n, "time_us": n, "payload": payloads[n % 100]} for n in part])
        for part in (range(at, at + 500) for at in range(0, 12_000, 500))
    )
    seal_batches(found, path, 16_384, first=0, files=UNSYNCED)
    assert pq.read_metadata(path).num_row_groups >= 12
    said = subprocess.run([sys.executable, "-c", READING, str(path)], capture_output=True, text=True, check=True).stdout
    rows_read, offsets_read, grown = map(int, said.split())
    assert (rows_read, offsets_read) == (12_000, 12_000)
    assert grown < 80


# ---- rows that were lost before -------------------------------------------------------------------------------------


@given(any_rows(gaps=True), st.integers(1, 30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_gaps_between_sequences_are_recorded_as_missing(tmp_path: Path, found: list[Row], group: int) -> None:
    path = tmp_path / "segment-100.parquet"
    seal_batches([batch(found)], path, group, first=100, last=found[-1]["sequence"] + 3, files=UNSYNCED)
    segment = SealedSegment(path)
    assert read_all(segment).equals(table([batch(found)]))
    assert segment.last == found[-1]["sequence"] + 3
    missing = {n for d in segment.damage for n in range(d.first, d.last + 1)}
    assert missing | {row["sequence"] for row in found} == set(range(100, segment.last + 1))
    assert all(damage.kind == "missing" for damage in segment.damage)


@given(any_rows(gaps=True), st.integers(1, 30), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_sparse_file_is_read_by_position_and_by_offset(
    tmp_path: Path, found: list[Row], group: int, data: st.DataObject
) -> None:
    path = tmp_path / "held-100-999.parquet"
    seal_batches([batch(found)], path, group, first=100, last=999, sparse=True, files=UNSYNCED)
    segment = SealedSegment(path)
    start = data.draw(st.integers(90, 200))
    stop = data.draw(st.integers(start, 400))
    expected = [row["sequence"] for row in found if start <= row["sequence"] < stop]
    assert table(segment.read(start, stop))["sequence"].to_pylist() == expected
    assert segment.damage == []


def test_a_segment_of_which_nothing_is_left_is_sealed_empty(tmp_path: Path) -> None:
    path = tmp_path / "segment-5.parquet"
    seal_batches([], path, GROUP, first=5, last=9)
    segment = SealedSegment(path)
    assert list(segment.read(0, 100)) == []
    assert (segment.first, segment.last, segment.rows) == (5, 9, 0)
    assert [(damage.first, damage.last) for damage in segment.damage] == [(5, 9)]


# ---- damage ---------------------------------------------------------------------------------------------------------


def test_a_zeroed_page_costs_the_row_groups_it_lies_in_and_names_them(sealed: Path) -> None:
    metadata = pq.read_metadata(sealed)
    third = metadata.row_group(3).column(metadata.num_columns - 1).data_page_offset
    zero(sealed, third + 10_000)
    segment = SealedSegment(sealed, may_write=True)
    found = read_all(segment)
    lost = [damage for damage in segment.damage if damage.kind == "quarantined"]
    assert len(lost) == 1
    assert sum(damage.rows for damage in lost) == ROWS - found.num_rows
    missing = {n for damage in lost for n in range(damage.first, damage.last + 1)}
    assert FIRST + 3 * GROUP in missing
    assert set(found["sequence"].to_pylist()) == set(range(FIRST, FIRST + ROWS)) - missing


def test_damage_is_told_once_however_often_it_is_met(sealed: Path) -> None:
    zero(sealed, 100_000)
    segment = SealedSegment(sealed)
    read_all(segment)
    told = list(segment.damage)
    read_all(segment)
    list(segment.read_topic(TOPICS[0], 0))
    assert segment.damage == told


@pytest.mark.parametrize("damage", ["zeroed", "cut", "flipped"])
def test_a_destroyed_footer_loses_nothing(sealed: Path, damage: str) -> None:
    whole = sealed.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    changed = {
        "zeroed": whole[:-footer] + bytes(footer),
        "cut": whole[:-footer],
        "flipped": whole[:-4] + b"PAR0",
    }[damage]
    sealed.write_bytes(changed)
    segment = SealedSegment(sealed, may_write=True)
    assert read_all(segment).equals(ALL)
    assert kinds(segment) == {("repaired", "parquet")}
    assert sealed.read_bytes() == whole


def test_without_may_write_nothing_on_disk_changes(sealed: Path) -> None:
    sealed.with_suffix(".idx").unlink()
    sealed.with_suffix(".sum").unlink()
    before = {path: path.read_bytes() for path in sealed.parent.iterdir()}
    segment = SealedSegment(sealed)
    assert read_all(segment).equals(ALL)
    assert {path: path.read_bytes() for path in sealed.parent.iterdir()} == before
    assert kinds(segment) == {("rebuilt", "sum"), ("rebuilt", "idx")}


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def scramble(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


BREAK = [Path.unlink, empty, halve, fill_with_zeros, scramble]


@pytest.mark.parametrize("suffix", [".sum", ".idx"])
@pytest.mark.parametrize("destroy", BREAK)
def test_a_lost_side_file_is_made_anew(sealed: Path, suffix: str, destroy: Callable[[Path], None]) -> None:
    side = sealed.with_suffix(suffix)
    whole = side.read_bytes()
    destroy(side)
    segment = SealedSegment(sealed, may_write=True)
    assert read_all(segment).equals(ALL)
    assert table(segment.read_topic(TOPICS[1], 400, max_rows=3))["offset"].to_pylist() == [400, 401, 402]
    assert kinds(segment) == {("rebuilt", suffix[1:])}
    assert side.read_bytes() == whole
    assert SealedSegment(sealed).topics() == segment.topics()


@pytest.mark.parametrize("destroy", [empty, halve, fill_with_zeros, scramble])
def test_a_destroyed_parquet_file_never_stops_a_reader(sealed: Path, destroy: Callable[[Path], None]) -> None:
    destroy(sealed)
    segment = SealedSegment(sealed, may_write=True)
    found = read_all(segment)
    lost = {n for d in segment.damage if d.kind == "quarantined" for n in range(d.first, d.last + 1)}
    assert set(found["sequence"].to_pylist()) == set(range(FIRST, FIRST + ROWS)) - lost
    assert found.equals(ALL.filter(pc.is_in(ALL["sequence"], found["sequence"])).combine_chunks())
    assert segment.is_usable()
    assert segment.last == FIRST + ROWS - 1


@pytest.mark.parametrize("destroy", BREAK)
def test_parquet_and_checksums_both_destroyed_leave_a_named_hole(sealed: Path, destroy: Callable[[Path], None]) -> None:
    destroy(sealed.with_suffix(".sum"))
    halve(sealed)
    segment = SealedSegment(sealed, may_write=True)
    assert list(segment.read(0, 10**9)) == []
    assert list(segment.read_topic(TOPICS[0], 0)) == []
    assert not segment.is_usable()
    assert segment.last == FIRST + ROWS - 1  # the index still knows
    assert [(d.kind, d.first, d.last) for d in segment.damage] == [("missing", FIRST, FIRST + ROWS - 1)]


def test_a_row_group_that_fails_its_page_checksums_stays_out_when_the_sums_are_made_anew(sealed: Path) -> None:
    sealed.with_suffix(".sum").unlink()
    metadata = pq.read_metadata(sealed)
    at = metadata.row_group(2).column(metadata.num_columns - 1).data_page_offset
    zero(sealed, at + 1000, 100)
    for _ in range(2):  # the second time with the new .sum, which agrees with the damaged bytes
        segment = SealedSegment(sealed, may_write=True)
        found = read_all(segment)
        assert set(range(FIRST, FIRST + ROWS)) - set(found["sequence"].to_pylist()) == set(
            range(FIRST + 2 * GROUP, FIRST + 3 * GROUP)
        )
        lost = [damage for damage in segment.damage if damage.kind == "quarantined"]
        assert [(damage.first, damage.last, damage.rows) for damage in lost] == [(2000, 2499, 500)]


def test_an_index_is_remade_around_a_lost_row_group(sealed: Path) -> None:
    sealed.with_suffix(".idx").unlink()
    zero(sealed, 100_000)
    segment = SealedSegment(sealed, may_write=True)
    found = read_all(segment)
    assert 0 < found.num_rows < ROWS
    assert segment.last == FIRST + ROWS - 1
    assert table(segment.read_topic(TOPICS[0], 500)).num_rows > 0


def test_an_index_of_other_files_is_not_believed(sealed: Path, tmp_path: Path) -> None:
    """The index of the blocks has the same name until the segment is sealed."""
    other = tmp_path / "other" / sealed.name
    other.parent.mkdir()
    seal_batches([batch(rows(FIRST, 10))], other, 5, first=FIRST)
    sealed.with_suffix(".idx").write_bytes(other.with_suffix(".idx").read_bytes())
    segment = SealedSegment(sealed)
    assert read_all(segment).equals(ALL)
    assert kinds(segment) == {("rebuilt", "idx")}


def test_a_sum_file_of_a_later_release_is_refused_by_name(sealed: Path) -> None:
    side = sealed.with_suffix(".sum")
    opened = maybe_unprotect(side.read_bytes())
    assert opened is not None
    side.write_bytes(protect(opened[0][:4] + b"\x02\x00" + opened[0][6:]))
    with pytest.raises(FormatVersionError, match=r"\.sum has journal format 2"):
        read_all(SealedSegment(sealed))


def test_check_bytes_finds_damage_that_no_reader_has_met(sealed: Path) -> None:
    whole = sealed.read_bytes()
    data = bytearray(whole)
    data[150_000] ^= 4
    sealed.write_bytes(data)
    segment = SealedSegment(sealed, may_write=True)
    segment.check_bytes()
    assert [damage.kind for damage in segment.damage] == ["repaired"]
    assert sealed.read_bytes() == whole


def test_a_reader_that_began_before_the_file_was_removed_goes_on(sealed: Path) -> None:
    segment = SealedSegment(sealed)
    reading = segment.read(0, 10**9)
    begun = next(reading)
    for path in sealed.parent.iterdir():
        path.unlink()
    assert table([begun, *reading]).equals(ALL)
    with pytest.raises(FileNotFoundError):
        next(segment.read(0, 10**9))


def test_a_file_that_retention_removed_is_not_taken_for_a_damaged_one(sealed: Path) -> None:
    """Whoever listed the folder before must be told, so that it lists again."""
    segment = SealedSegment(sealed)
    assert segment.last == FIRST + ROWS - 1
    segment.close()
    for path in sealed.parent.iterdir():
        path.unlink()
    for ask in (segment.topics, segment.is_usable, lambda: next(segment.read(0, 10**9))):
        with pytest.raises(FileNotFoundError):
            ask()
    assert segment.last == FIRST + ROWS - 1
    assert segment.damage == []


def test_a_file_that_cannot_be_used_is_not_looked_at_again_and_again(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed.with_suffix(".sum").unlink()
    empty(sealed)
    segment = SealedSegment(sealed)
    assert not segment.is_usable()
    monkeypatch.setattr("raceway.journal.read.sealed.measure", lambda path: pytest.fail("measured again"))
    assert not segment.is_usable()
    assert list(segment.read(0, 10**9)) == []


def test_damage_of_the_contract_is_what_is_reported(sealed: Path) -> None:
    zero(sealed, 100_000)
    segment = SealedSegment(sealed)
    read_all(segment)
    assert all(isinstance(damage, Damage) and damage.reason for damage in segment.damage)
    assert all(damage.position + damage.size <= 2 * sealed.stat().st_size for damage in segment.damage)
