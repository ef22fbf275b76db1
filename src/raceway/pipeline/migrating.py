"""Tables of the former version, which were folders of Parquet files or Delta tables by ranges of positions.

Their bronze rows are brought over: they may be older than what the journal still has, and captures are nowhere else.
Every other table is computed from them anew. The old folder is moved aside first and deleted last, so an interrupted
migration begins again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow.dataset as ds

from raceway.errors import PipelineError
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.pipeline import registry
from raceway.pipeline.imports.pieces import in_workers
from raceway.pipeline.lake import LANE, Lake
from raceway.pipeline.progress import now_us
from raceway.pipeline.storage import Storage
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.pipeline.written import Written, write_rows
from raceway.wires.captures.columns import BRONZE, IMPORT, REJECTED, schema_of_tuple

_SCHEMAS = {MESSAGES: BRONZE, REJECTED_MESSAGES: REJECTED}
# What the former version kept beside its tables.
_LEFT = ("notes", "links", "active", "compacting", "checkpoint", "format")
_IMPORT_PART = "import-"


class Moved(NamedTuple):
    """Report of a worker: the files that it wrote, as JSON."""

    number: int
    files: str


_MOVED = schema_of_tuple(Moved)


class _Note(msgspec.Struct, kw_only=True):
    """Note of the former version about a part."""

    rows: int = 0
    gaps: list[tuple[int, int]] = []
    wire: str = ""
    path: str = ""


def check_version(lake: Lake, say: Callable[[str], None] = lambda _: None) -> None:
    """Bring tables of a former version over; delete those that another release computed differently.

    `say` is told in words, as either may take long.
    """
    file = lake.folders.version
    known = (maybe_read_file(Files(), file) or b"").decode().strip()
    if is_former(lake):
        say("the tables are of a former version: their messages are brought over, the other tables computed anew")
        say(f"{migrate(lake):,} rows brought over")
    elif known and known != str(registry.VERSION):
        say("another release computed the tables differently: they are computed anew from bronze.messages")
        for table in lake.derived:
            if table.name != REJECTED_MESSAGES:
                lake.remove(table.name)
    if known != str(registry.VERSION):
        write_file(Files(), file, str(registry.VERSION).encode())


def is_former(lake: Lake) -> bool:
    return any((lake.folders.root / name).exists() for name in ("former", "notes", "format"))


def migrate(lake: Lake) -> int:
    """Move the bronze rows of the former version into the tables of this one; return how many."""
    former, folders = lake.folders.former, lake.folders
    if lake.storage.is_remote:
        raise PipelineError(
            f"the tables in {lake.storage.root} are of a former version: remove them, and the folder {folders.root}; "
            "the next run computes them from the journal"
        )
    if not former.exists() and Path(folders.tables).exists():
        Path(folders.tables).rename(former)
    for name in lake.every() if lake.maybe_snapshot(MESSAGES) is None else ():
        lake.remove(name)  # left by an interrupted migration
    rows = 0
    if lake.maybe_snapshot(MESSAGES) is None:
        rows = _bring_over(lake)
    for name in _LEFT:
        path = folders.root / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    # Last: without it, what is left of the former version would make the new tables look like former ones.
    shutil.rmtree(former, ignore_errors=True)
    return rows


def _bring_over(lake: Lake) -> int:
    """Commit the rows of the former tables, `bronze.messages` last: it tells that all is done."""
    messages, refused = (_parts(lake.folders.former / "bronze" / name) for name in ("messages", "rejected"))
    notes = {part: _note(lake, MESSAGES, part) for part in messages}
    captures = [part for part in messages if part.startswith(_IMPORT_PART)]
    of_captures = [file for part, files in refused.items() if part.startswith(_IMPORT_PART) for file in files]
    if of_captures:
        lake.commit(REJECTED_MESSAGES, moved(lake, REJECTED_MESSAGES, of_captures))
    if captures:
        known = [_capture(lake, part, notes[part]) for part in captures]
        lake.commit(registry.CAPTURES.name, lake.write_few(registry.CAPTURES, known))
    lost = [{"first": first, "last": last, "time_us": now_us()} for note in notes.values() for first, last in note.gaps]
    if lost:
        lake.commit(registry.LOSSES.name, lake.write_few(registry.LOSSES, lost))
    ends = [int(part.partition("-")[2]) + 1 for part in messages if not part.startswith(_IMPORT_PART)]
    progress = {IMPORT + part.removeprefix(_IMPORT_PART): 1 for part in captures}
    written = moved(lake, MESSAGES, [file for files in messages.values() for file in files])
    lake.commit(MESSAGES, written, progress=progress | ({LANE: max(ends)} if ends else {}))
    return sum(each.rows for each in written)


def _parts(table: Path) -> dict[str, list[str]]:
    """The files of each part of a former table: by the names of folders, or by the log of a Delta table."""
    if (table / "_delta_log").is_dir():
        from deltalake import DeltaTable

        files = [Path(path) for path in DeltaTable(str(table)).file_uris()]
    else:
        files = sorted(table.glob("range=*/*.parquet"))
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(file.parent.name.removeprefix("range="), []).append(str(file))
    return found


def _note(lake: Lake, table: str, part: str) -> _Note:
    """The note of a part; an empty one if it is lost or damaged."""
    data = maybe_read_file(Files(), lake.folders.root / "notes" / table / f"{part}.json")
    try:
        return msgspec.json.decode(data or b"{}", type=_Note)
    except msgspec.DecodeError:
        return _Note()


def _capture(lake: Lake, part: str, note: _Note) -> dict[str, Any]:
    source = IMPORT + part.removeprefix(_IMPORT_PART)
    refused = _note(lake, REJECTED_MESSAGES, part).rows
    return {
        "source": source,
        "wire": note.wire,
        "path": note.path,
        "messages": note.rows,
        "rejected": refused,
        "time_us": now_us(),
    }


def moved(lake: Lake, table: str, files: list[str]) -> list[Written]:
    """Write the rows of files of ours into a bronze table, by workers; nothing is committed."""
    told = in_workers(lake.spark, len(files), partial(_move, lake.storage, table, files), _MOVED)
    return [Written(*each) for row in told for each in json.loads(row[1])]


def _move(storage: Storage, table: str, files: list[str], number: int) -> dict[str, object]:
    schema = _SCHEMAS[table]
    rows = ds.dataset([files[number]], schema=schema, format="parquet").to_batches()
    return Moved(number, json.dumps(list(write_rows(storage, table, "time_us", schema, rows))))._asdict()
