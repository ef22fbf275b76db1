"""Taking a capture out again: no row of it is left in any table, and nothing keeps it from being imported anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from raceway.errors import ConfigError
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.imported import known_captures, named_captures, remove_capture
from raceway.pipeline.lake import Lake
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.registry import CAPTURES
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.pipeline.transforms import exchanges, messages, topic_stats, traces
from raceway.pipeline.written import write_rows
from raceway.wires.captures.columns import BRONZE
from tests.pipeline.captures import import_file
from tests.pipeline.rows import bronze, message
from tests.rigs.vectors.mb import frame

# One that looks others up, one that is replaced, and one computed from another.
TABLES = (messages.STATE, messages.TABLE, exchanges.TABLE, traces.TABLE, topic_stats.TABLE)


def captured(folder: Path, name: str, *payloads: str) -> Path:
    path = folder / name
    path.write_bytes(b"".join(frame(f"publish:{name}.x:1.0.0\n{payload}".encode()) for payload in payloads))
    return path


def content(lake: Lake) -> dict[str, list[str]]:
    """All rows as text."""
    names = (MESSAGES, REJECTED_MESSAGES, *(table.name for table in TABLES))
    frames = {name: lake.frame(name) for name in names}
    return {
        name: sorted(row[0] for row in rows.select(F.to_json(F.struct(*rows.columns))).collect())
        for name, rows in frames.items()
    }


def test_what_was_taken_out_is_in_no_table_and_can_be_imported_as_another_wire(lake: Lake, tmp_path: Path) -> None:
    kept, unwanted, mistaken = (captured(tmp_path, name, "{}", "[]") for name in ("kept", "unwanted", "mistaken"))
    for wire, path in (("mb", kept), ("mb", unwanted), ("zbus", mistaken)):
        import_file(lake, wire, path)
    refresh(lake, TABLES)
    assert [(each.wire, each.messages, each.rejected) for each in named_captures(lake, [str(mistaken)])] == [
        ("zbus", 0, 1)
    ]
    for each in named_captures(lake, [str(unwanted), str(mistaken)]):
        remove_capture(lake, each.sha256)
    again = Lake(lake.spark, lake.folders)
    assert [each.path for each in known_captures(again)] == [str(kept)]
    assert content(again)[MESSAGES] == [row for row in content(again)[MESSAGES] if "kept.x" in row]
    done = import_file(again, "mb", mistaken)
    assert (done.messages, done.rejected, done.state, done.wire) == (2, 0, "imported", "mb")
    refresh(again, TABLES)

    never = Lake(lake.spark, Folders(tmp_path / "never"))
    for path in (kept, mistaken):
        import_file(never, "mb", path)
    refresh(never, TABLES)
    assert content(again) == content(never)
    assert again.frame(REJECTED_MESSAGES).count() == 0


@pytest.fixture
def files(tmp_path: Path) -> Lake:
    """Three captures; the first two have ids that begin alike."""
    lake = Lake(None, Folders(tmp_path / "data"))
    facts = {"wire": "mb", "messages": 1, "rejected": 0, "time_us": 1}
    for digest, name in (("ab" * 31 + "01", "one"), ("ab" * 31 + "02", "two"), ("cd" * 32, "three")):
        source = f"import:{digest}"
        row = facts | {"source": source, "path": str(tmp_path / name)}
        lake.commit(CAPTURES.name, lake.write_few(CAPTURES, [row]))
        rows = bronze([message(0, source=source)]).to_batches()
        lake.commit(MESSAGES, list(write_rows(lake.storage, MESSAGES, "time_us", BRONZE, rows)), progress={source: 1})
    return lake


def test_captures_are_named_by_id_or_by_the_path_they_had(files: Lake, tmp_path: Path) -> None:
    assert [each.path for each in known_captures(files)] == [str(tmp_path / name) for name in ("one", "two", "three")]
    found = named_captures(files, ["CDCDCDCD", str(tmp_path / "two"), "cd" * 32])
    assert [each.path for each in found] == [str(tmp_path / "three"), str(tmp_path / "two")]


def test_a_name_that_belongs_to_no_capture_or_to_two_is_refused(files: Lake, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x")
    for name, said in [
        ("abababab", "2 imported captures match"),
        ("cd", "no such file or folder"),
        (str(tmp_path / "other"), "was not imported; run `raceway pipeline captures` to list the imported files"),
    ]:
        with pytest.raises(ConfigError, match=said):
            named_captures(files, [name])
    assert len(known_captures(files)) == 3
