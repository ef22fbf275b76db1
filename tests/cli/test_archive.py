"""`raceway journal archive` and `raceway journal restore`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.config import Retention
from raceway.errors import JournalError
from tests.rigs.archives import Place, archive_all, fill, opened, run_until


def told(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["journal", *words], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.output


def test_how_far_the_archive_is_and_a_folder_from_it(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "there"))
    rig = opened(tmp_path / "data", place)
    fill(rig, 40)
    segments = archive_all(rig)
    data = str(tmp_path / "data")
    found = json.loads(told("archive", "--data", data, "--json"))
    assert (found["segments"], found["only_there"], found["waiting_segments"]) == (segments, 0, 0)
    assert (found["url"], found["error"], found["epoch"]) == (place.url, "", 1)
    assert found["behind"] == 39 - found["last_position"] > 0
    shown = told("archive", "--data", data)
    assert f"0 to {found['last_position']}" in shown
    assert "yes" in shown
    rig.close()
    # Everything that was archived leaves; `info` and `dump` go on in the archive.
    rig = opened(tmp_path / "data", place, retention=Retention(max_bytes=1))
    run_until(rig, lambda: rig.journal.health().segments == 1)
    rig.close()
    assert "archived" in told("info", "--data", data)
    assert len(told("dump", "--data", data).splitlines()) == 40
    assert "0003" in told("read", "--topic", "t", "--offset", "3", "--data", data)
    # The archive is away: told, with a status.
    Path(place.url).rename(tmp_path / "away")
    Path(place.url).write_text("")
    assert "no: the archive" in told("archive", "--data", data, status=1).replace("\n", " ")
    Path(place.url).unlink()
    (tmp_path / "away").rename(place.url)
    new = str(tmp_path / "new")
    said = told("restore", place.url, "--data", new)
    assert f"positions 0 to {found['last_position']} from {place.url}; {segments} of {segments} segments" in said
    assert f"the bus will continue at position {found['reserved']:,}" in said
    with pytest.raises(JournalError, match="is not empty"):
        told("restore", place.url, "--data", new)


def test_a_folder_without_an_archive_says_how_to_have_one(tmp_path: Path) -> None:
    rig = opened(tmp_path / "data", Place(str(tmp_path / "there")), archive="")
    rig.keep("t", b"x")
    rig.close()
    assert "set journal.archive" in told("archive", "--data", str(tmp_path / "data"), status=1)
