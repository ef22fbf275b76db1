"""Taking a capture out again: no row of it is left in any table, and nothing keeps it from being imported anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from raceway.errors import ConfigError
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.imported import known_captures, named_captures, remove_capture
from raceway.pipeline.imports.importing import import_file
from raceway.pipeline.lake import Lake, ParquetLake
from raceway.pipeline.recompute import refresh
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.pipeline.transforms import messages, topic_stats, traces
from tests.pipeline.rows import bronze, message
from tests.rigs.vectors.mb import frame

# One that hands links on, and one computed from another.
TABLES = (messages.TABLE, traces.TABLE, topic_stats.TABLE)


def captured(folder: Path, name: str, *payloads: str) -> Path:
    path = folder / name
    path.write_bytes(b"".join(frame(f"publish:{name}.x:1.0.0\n{payload}".encode()) for payload in payloads))
    return path


def content(lake: Lake) -> dict[str, list[str]]:
    """All rows as text; parts have names of their own."""
    names = (MESSAGES, REJECTED_MESSAGES, *(table.name for table in TABLES))
    frames = {name: lake.frame(name).drop("part") for name in names}
    return {
        name: sorted(row[0] for row in rows.select(F.to_json(F.struct(*rows.columns))).collect())
        for name, rows in frames.items()
    }


def test_what_was_taken_out_is_in_no_table_and_can_be_imported_as_another_wire(
    lake: ParquetLake, tmp_path: Path
) -> None:
    kept, unwanted, mistaken = (captured(tmp_path, name, "{}", "[]") for name in ("kept", "unwanted", "mistaken"))
    for wire, path in (("mb", kept), ("mb", unwanted), ("zbus", mistaken)):
        import_file(lake, wire, path)
    refresh(lake, TABLES)
    assert [(each.wire, each.messages, each.rejected) for each in named_captures(lake, [str(mistaken)])] == [
        ("zbus", 0, 1)
    ]
    for each in named_captures(lake, [str(unwanted), str(mistaken)]):
        remove_capture(lake, each.sha256)
    # The process ends here, before any table was computed anew.
    again = ParquetLake(lake.spark, lake.folders)
    assert [each.path for each in known_captures(again)] == [str(kept)]
    done = import_file(again, "mb", mistaken)
    assert (done.messages, done.rejected, done.state, done.wire) == (2, 0, "imported", "mb")
    refresh(again, TABLES)

    never = ParquetLake(lake.spark, Folders(tmp_path / "never"))
    for path in (kept, mistaken):
        import_file(never, "mb", path)
    refresh(never, TABLES)
    assert content(again) == content(never)
    assert again.notes.parts(MESSAGES) == never.notes.parts(MESSAGES)
    assert again.notes.parts(REJECTED_MESSAGES) == []
    links = [sorted(path.name for path in each.folders.links.rglob("*.parquet")) for each in (again, never)]
    assert links[0] == links[1]


@pytest.fixture
def files(tmp_path: Path) -> ParquetLake:
    """Three captures; the first two have ids that begin alike."""
    lake = ParquetLake(None, Folders(tmp_path / "data"))
    for digest, name in (("ab" * 31 + "01", "one"), ("ab" * 31 + "02", "two"), ("cd" * 32, "three")):
        file = lake.stage("capture") / "rows.parquet"
        pq.write_table(bronze([message(0, source=f"import:{digest}")]), file)
        lake.append_capture(digest, [file], [], "mb", str(tmp_path / name))
    return lake


def test_captures_are_named_by_id_or_by_the_path_they_had(files: ParquetLake, tmp_path: Path) -> None:
    assert [each.path for each in known_captures(files)] == [str(tmp_path / name) for name in ("one", "two", "three")]
    found = named_captures(files, ["CDCDCDCD", str(tmp_path / "two"), "cd" * 32])
    assert [each.path for each in found] == [str(tmp_path / "three"), str(tmp_path / "two")]


def test_a_name_that_belongs_to_no_capture_or_to_two_is_refused(files: ParquetLake, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x")
    for name, said in [
        ("abababab", "2 imported captures match"),
        ("cd", "no such file or folder"),
        (str(tmp_path / "other"), "was not imported; run `raceway pipeline captures` to list the imported files"),
    ]:
        with pytest.raises(ConfigError, match=said):
            named_captures(files, [name])
    assert len(known_captures(files)) == 3


def test_what_a_killed_import_left_does_not_stay(files: ParquetLake) -> None:
    """Refused messages come first: a try as the wrong wire that was killed then leaves them."""
    digest = "ef" * 32

    def staged() -> list[Path]:
        file = files.stage("capture") / "rows.parquet"
        pq.write_table(bronze([message(0, source=f"import:{digest}")]), file)
        return [file]

    files.append(REJECTED_MESSAGES, f"import-{digest}", staged())
    files.append_capture(digest, staged(), [], "mb", "somewhere")
    assert files.parts(REJECTED_MESSAGES) == []
