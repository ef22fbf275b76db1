"""Tables of the former version: their bronze rows are brought over once, captures and losses with them."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from raceway.errors import PipelineError
from raceway.pipeline import keeping, migrating
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.imported import known_captures
from raceway.pipeline.lake import Lake
from raceway.pipeline.storage import storage_of
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.wires.captures.columns import REJECTED
from tests.pipeline.lakes import append
from tests.pipeline.rows import bronze, message

DIGEST = "ab" * 32
SOURCE = f"import:{DIGEST}"
REFUSED = {"source": SOURCE, "partition": 0, "sequence": 1, "time_us": 5, "wire": "mb", "code": "x", "attributes": []}


def former(data: Path, form: str) -> Folders:
    """As the former version left it: parts of the journal and one of a capture, notes, a checkpoint."""
    folders = Folders(data)
    journal = [bronze(message(n) for n in range(first, first + 10)) for first in (0, 10)]
    parts = {f"{n:020d}-{n + 9:020d}": rows for n, rows in zip((0, 10), journal, strict=True)}
    parts[f"import-{DIGEST}"] = bronze([message(0, source=SOURCE)])
    refused = {f"import-{DIGEST}": pa.Table.from_pylist([REFUSED], schema=REJECTED)}
    for table, named in ((MESSAGES, parts), (REJECTED_MESSAGES, refused)):
        for part, rows in named.items():
            _write(Path(folders.table(table)), part, rows, form)
            note = {
                "rows": rows.num_rows,
                "wire": "mb",
                "path": "/a",
                "gaps": [[3, 4]] if part.startswith("0" * 20) else [],
            }
            file = folders.root / "notes" / table / f"{part}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(note))
    (folders.root / "format").write_text(form)
    (folders.root / "checkpoint" / "v1").mkdir(parents=True)
    return folders


def _write(table: Path, part: str, rows: pa.Table, form: str) -> None:
    if form == "delta":
        named = rows.append_column("range", pa.repeat(pa.scalar(part), rows.num_rows))
        write_deltalake(table, named, mode="append", partition_by=["range"])
        return
    (table / f"range={part}").mkdir(parents=True)
    pq.write_table(rows, table / f"range={part}" / "part-00000.parquet")


@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_rows_captures_and_losses_are_brought_over(spark: SparkSession, tmp_path: Path, form: str) -> None:
    lake = Lake(spark, former(tmp_path, form))
    commit = Lake.commit

    def killed(self: Lake, table: str, *args: object, **options: object) -> None:
        if table == MESSAGES:
            raise SystemExit
        commit(self, table, *args, **options)  # type: ignore[arg-type]

    with patch.object(Lake, "commit", killed), pytest.raises(SystemExit):
        migrating.check_version(lake)
    again = Lake(spark, lake.folders)
    assert migrating.is_former(again)
    migrating.check_version(again)
    assert not migrating.is_former(again)
    assert (again.counts(MESSAGES)[0], again.counts(REJECTED_MESSAGES)[0], again.end()) == (21, 1, 20)
    assert [(each.sha256, each.wire, each.path, each.rejected) for each in known_captures(again)] == [
        (DIGEST, "mb", "/a", 1)
    ]
    assert keeping.losses(again) == [(3, 4)]
    assert {path.name for path in again.folders.root.iterdir()} <= {"tables", "version", "spark", "log", "staging"}
    append(again, [message(20)])
    migrating.check_version(again)
    assert again.end() == 21


def test_tables_that_another_release_computed_are_computed_anew(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, Folders(tmp_path))
    append(lake, [message(0)])
    lake.commit("silver.hops")
    migrating.check_version(lake)
    assert lake.maybe_snapshot("silver.hops") is not None
    lake.folders.version.write_text("2")
    migrating.check_version(lake)
    assert lake.maybe_snapshot("silver.hops") is None
    assert (lake.end(), lake.folders.version.read_text()) == (1, "3")


def test_tables_on_an_object_store_are_not_migrated(tmp_path: Path) -> None:
    lake = Lake(None, former(tmp_path, "delta"), storage_of("s3://lake/raceway"))
    with pytest.raises(PipelineError, match="are of a former version: remove them"):
        migrating.check_version(lake)
