"""Tables as the former version of the pipeline left them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from raceway.pipeline.folders import Folders
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.wires.captures.columns import REJECTED
from tests.pipeline.rows import bronze, message

DIGEST = "ab" * 32
SOURCE = f"import:{DIGEST}"
REFUSED = {"source": SOURCE, "partition": 0, "sequence": 1, "time_us": 5, "wire": "mb", "code": "x", "attributes": []}


def former(data: Path, form: str) -> Folders:
    """Parts of the journal and one of a capture, notes, a checkpoint."""
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
