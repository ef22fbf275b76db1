"""Schema versions out of a journal: from control rows, from snapshots, and for ever."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from raceway.journal.reader import Reader
from raceway.model.schemas import SchemaVersion
from raceway.pipeline.schema_book import SchemaBook
from tests.journal_rig import Rig, numbered
from tests.pipeline.schemas import V1, V2, avro


def register(rig: Rig, *versions: SchemaVersion) -> None:
    """As the bus does it."""
    for version in versions:
        rig.journal.set_state("schemas", str(version.registry_id), msgspec.to_builtins(version))
        rig.journal.set_state("registry", "counters", {"schema_id": 1, "registry_id": version.registry_id})
    rig.commit()


def talk(rig: Rig, messages: int = 400) -> None:
    """Enough for another segment."""
    rig.keep("talk", *numbered(messages, 0, 200))
    rig.commit()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "data", segment_bytes=50_000, seal=False, upkeep_s=0.05)


def numbers(book: SchemaBook) -> list[int]:
    return sorted(version.registry_id for version in book.versions)


def test_versions_are_followed_and_deleted_ones_stay_known(rig: Rig, tmp_path: Path) -> None:
    first, second = avro(1, 1, V1), avro(2, 2, V2)
    book = SchemaBook(tmp_path / "book.json")
    book.follow(rig.folder)
    assert numbers(book) == []
    register(rig, first)
    book.follow(rig.folder)
    assert list(book.versions) == [first]
    rig.journal.set_state("schemas", "1", None)
    register(rig, second)
    again = SchemaBook(tmp_path / "book.json")
    again.follow(rig.folder)
    assert again.versions == (first, second)
    rig.close()


def test_what_retention_removed_is_taken_from_the_snapshot(rig: Rig, tmp_path: Path) -> None:
    register(rig, avro(1, 1, V1), avro(2, 2, V2))
    for _ in range(3):
        talk(rig)
    rig.close()
    oldest = min(rig.folder.glob("segment-*.blocks"))
    for path in rig.folder.glob(f"{oldest.stem}*"):
        path.unlink()
    reader = Reader(rig.folder)
    assert reader.first_position() > 4
    reader.close()
    book = SchemaBook(tmp_path / "book.json")
    book.follow(rig.folder)
    assert numbers(book) == [1, 2]


def test_a_version_deleted_before_anybody_looked_is_found_in_the_rows(rig: Rig, tmp_path: Path) -> None:
    """The snapshot lists what is left and the last number given: one is missing."""
    register(rig, avro(1, 1, V1), avro(2, 2, V2))
    rig.journal.set_state("schemas", "1", None)
    talk(rig)
    talk(rig)
    rig.close()
    book = SchemaBook(tmp_path / "book.json")
    book.follow(rig.folder)
    assert numbers(book) == [1, 2]


def test_a_damaged_snapshot_is_passed_over(rig: Rig, tmp_path: Path) -> None:
    register(rig, avro(1, 1, V1))
    talk(rig)
    rig.close()
    for path in rig.folder.glob("state-*"):
        path.write_bytes(b"nothing of the kind")
    book = SchemaBook(tmp_path / "book.json")
    book.follow(rig.folder)
    assert numbers(book) == [1]


def test_without_a_journal_the_book_stays_what_it_is(tmp_path: Path) -> None:
    book = SchemaBook(tmp_path / "book.json")
    book.learn(avro(1, 1, V1))
    book.follow(tmp_path / "nowhere")
    assert numbers(book) == [1]
