"""The archive alone as a journal, as a reader in another place sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.config import StorageSettings
from raceway.errors import ArchiveError, JournalError
from raceway.journal.archive.reader import ArchiveReader, open_reader
from raceway.journal.read.reader import Reader
from tests.rigs.archives import Place, archive_all, fill, opened
from tests.rigs.journal import column


def test_rows_by_position_and_topic_without_a_folder_of_the_bus(tmp_path: Path, place: Place) -> None:
    rig = opened(tmp_path / "data", place)
    fill(rig, 40)
    archive_all(rig)
    now = [0.0]
    reader = ArchiveReader(place.url, place.storage, lambda: now[0])
    archived = reader.committed() + 1
    assert 20 <= archived < 40
    assert reader.first_position() == 0
    expected = column(rig.journal.read(5, archived), "payload")
    assert column(reader.read(5), "payload") == expected
    assert column(reader.read_topic("t", 5), "payload") == expected
    assert reader.damage == []
    # What is archived later is seen by the same reader, a moment later.
    fill(rig, 20, first=40)
    archive_all(rig)
    assert reader.committed() + 1 == archived
    now[0] += 60
    assert reader.committed() + 1 > archived
    reader.close()
    rig.close()


def test_a_path_is_a_data_folder_or_an_archive(tmp_path: Path, folder_place: Place) -> None:
    rig = opened(tmp_path / "data", folder_place)
    fill(rig, 20)
    archive_all(rig)
    rig.close()
    for path, kind in ((str(tmp_path / "data"), Reader), (folder_place.url, ArchiveReader)):
        reader = open_reader(path)
        assert type(reader) is kind
        reader.close()
    with pytest.raises(JournalError, match="is not a data folder"):
        open_reader(str(tmp_path / "none"))


def test_a_store_that_does_not_answer_is_named_without_its_keys() -> None:
    storage = StorageSettings(endpoint="http://127.0.0.1:1", access_key="an-access-key", secret_key="a-secret")
    with pytest.raises(ArchiveError, match="the archive s3://bucket/path: its objects cannot be listed") as caught:
        open_reader("s3a://bucket/path", storage)
    assert "an-access-key" not in str(caught.value)
    assert "a-secret" not in str(caught.value)
