"""Schema versions out of a journal: from control rows, from snapshots, and for ever."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.journal.files import Files
from raceway.journal.read.reader import Reader
from raceway.journal.write.mark import write_trimmed
from raceway.model.intents.schemas import RegisterSchema
from raceway.model.schemas import SchemaVersion
from raceway.pipeline.schema_book import SchemaBook
from tests.pipeline.schemas import V1, V2, avro
from tests.rigs.archives import Place, archive_all, fill, opened
from tests.rigs.doubles import ManualLoop
from tests.rigs.journal import START_US, Rig, numbered


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


@pytest.mark.parametrize("was_lost", [False, True])
def test_what_retention_removed_or_damage_took_is_taken_from_the_snapshot(
    rig: Rig, tmp_path: Path, was_lost: bool
) -> None:
    register(rig, avro(1, 1, V1), avro(2, 2, V2))
    for _ in range(3):
        talk(rig)
    rig.close()
    oldest, following = sorted(rig.folder.glob("segment-*.blocks"))[:2]
    if not was_lost:
        write_trimmed(Files(), rig.folder, int(following.stem.split("-")[1]))
    for path in rig.folder.glob(f"{oldest.stem}*"):
        path.unlink()
    reader = Reader(rig.folder)
    assert (reader.first_position() == 0) is was_lost
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


def test_subjects_that_share_a_definition_are_all_known_also_when_deleted(rig: Rig, tmp_path: Path) -> None:
    """As the registry of a bus keeps them: a counter says how many there ever were."""
    broker = Broker(config.BrokerSettings(linger_ms=0), rig.journal, ManualLoop(), lambda: START_US)
    for subject in ("a", "b", "c"):
        broker.schemas.register(RegisterSchema(subject, "avro", json.dumps(V1).encode()))
    rig.commit()
    broker.schemas.delete_subject("a")
    broker.schemas.delete_subject("a", permanent=True)
    broker.schemas.delete_subject("b")
    rig.commit()
    talk(rig)
    talk(rig)
    rig.close()
    book = SchemaBook(tmp_path / "book.json")
    book.follow(rig.folder)
    assert sorted((each.subject, each.registry_id) for each in book.versions) == [("a", 1), ("b", 1), ("c", 1)]
    again = SchemaBook(tmp_path / "book.json")
    assert len(again.versions) == 3


def test_a_book_of_a_former_release_is_read(tmp_path: Path) -> None:
    row = msgspec.to_builtins(avro(7, 1, V1))
    (tmp_path / "book.json").write_bytes(msgspec.json.encode({"position": 3, "versions": {"7": row}}))
    assert SchemaBook(tmp_path / "book.json").versions == (avro(7, 1, V1),)


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


def test_subjects_of_topics_are_followed_and_former_ones_stay_known(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "book.json"
    register(rig, avro(1, 1, V1))
    book = SchemaBook(file)
    book.follow(rig.folder)
    assert book.bindings == {}
    for subject in ("subject-1", "other", "subject-1", None):
        rig.journal.set_state("topic_schemas", "orders", {"subject": subject, "policy": "warn"})
        rig.commit()
        book.follow(rig.folder)
    rig.journal.set_state("topic_schemas", "orders", None)
    rig.journal.set_state("topic_schemas", "stock", {"subject": "subject-1"})
    rig.commit()
    again = SchemaBook(file)
    again.follow(rig.folder)
    assert again.bindings == {"orders": ["subject-1", "other"], "stock": ["subject-1"]}
    rig.close()


def test_a_book_of_an_earlier_release_learns_the_subjects_of_topics(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "book.json"
    rig.journal.set_state("topic_schemas", "orders", {"subject": "subject-1"})
    register(rig, avro(1, 1, V1))
    SchemaBook(file).follow(rig.folder)
    kept = json.loads(file.read_text())
    del kept["bindings"]
    file.write_text(json.dumps(kept))
    book = SchemaBook(file)
    book.follow(rig.folder)
    assert (book.bindings, numbers(book)) == ({"orders": ["subject-1"]}, [1])
    rig.close()


def test_an_archive_tells_the_same(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "archive"))
    rig = opened(tmp_path / "data", place)
    register(rig, avro(1, 1, V1))
    fill(rig, 40)
    archive_all(rig)
    rig.close()
    book = SchemaBook(tmp_path / "schemas.json")
    book.follow(place.url)
    assert numbers(book) == [1]
