"""Import of captures into the bronze tables: all of a file or nothing, and once."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raceway import config
from raceway.pipeline.imports.chains import complete
from raceway.pipeline.imports.imported import has_capture, known_captures
from raceway.pipeline.imports.pieces import Piece, PieceReport, cut, form_of, parse_pieces
from raceway.pipeline.imports.sources import plain_file
from raceway.pipeline.keeping import remove_source
from raceway.pipeline.lake import Lake
from raceway.pipeline.migrating import moved
from raceway.pipeline.progress import now_us
from raceway.pipeline.registry import CAPTURES
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.pipeline.written import open_writer
from raceway.wires.captures.capture import Capture, capture_of
from raceway.wires.captures.columns import BRONZE, IMPORT, TIMESTAMP


class Imported(NamedTuple):
    """Result of an import; `state` is `imported` or `imported before`, `wire` the wire it was read as."""

    path: str
    messages: int
    rejected: int
    state: str
    wire: str


class _Ready(NamedTuple):
    """A capture whose messages are found. `copy` ends with the copy of a file that was packed or elsewhere."""

    capture: Capture
    pieces: list[Piece]
    copy: ExitStack


def import_files(
    lake: Lake, wire: str, sources: Sequence[str], settings: config.Config | None = None
) -> Iterator[Imported]:
    """Parse files and URLs into the bronze tables, in order; those that are there already, under whatever name, stay.

    While Spark parses one, the next are fetched, unpacked and cut at the same time, as many as there are cores.
    """
    chosen = settings or config.Config()
    rest = iter(sources)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        prepare = partial(_prepare, lake.folders.staging, wire, chosen)
        coming = deque(pool.submit(prepare, source) for source in islice(rest, os.cpu_count()))
        try:
            while coming:
                ready = coming[0].result()
                yield _import_new(lake, ready, chosen)
                ready.copy.close()
                coming.popleft()
                coming.extend(pool.submit(prepare, source) for source in islice(rest, 1))
        finally:
            for each in coming:
                if not each.cancel() and each.exception() is None:
                    each.result().copy.close()


def _prepare(staging: Path, wire: str, settings: config.Config, source: str) -> _Ready:
    """Find the messages of a file. Digest and borders are computed at the same time: both read every byte."""
    with ExitStack() as copy:
        file = copy.enter_context(plain_file(source, staging, settings.storage))
        # hashlib releases the interpreter lock, so the two really run in parallel.
        with ThreadPoolExecutor(1) as pool:
            cutting = pool.submit(cut, file, form_of(wire, settings, file))
            capture = capture_of(wire, file, source)
            pieces = cutting.result()
        return _Ready(capture, pieces, copy.pop_all())


def _import_new(lake: Lake, ready: _Ready, settings: config.Config) -> Imported:
    capture, source = ready.capture, IMPORT + ready.capture.sha256
    is_new = not has_capture(lake, source)
    if is_new:
        _import(lake, source, capture, ready.pieces, settings)
    found = next(each for each in known_captures(lake) if each.sha256 == capture.sha256)
    state = "imported" if is_new else "imported before"
    return Imported(str(capture.path), found.messages, found.rejected, state, found.wire or capture.wire)


def _import(lake: Lake, source: str, capture: Capture, pieces: list[Piece], settings: config.Config) -> None:
    """Parse the pieces, complete their rows, and add the files to the tables, `bronze.messages` last: before that
    commit nothing counts as imported."""
    remove_source(lake, source)  # left by an interrupted import
    folder = lake.folders.stage("import")
    told = parse_pieces(lake.spark, capture, pieces, settings, folder) if pieces else []
    raise_times(told)
    complete(lake.spark, capture.wire, told, folder)
    messages = moved(lake, MESSAGES, [each.messages_file for each in told if each.messages_file])
    rejected = moved(lake, REJECTED_MESSAGES, [each.rejected_file for each in told if each.rejected_file])
    facts = {"messages": sum(each.rows for each in messages), "rejected": sum(each.rows for each in rejected)}
    row = {"source": source, "wire": capture.wire, "path": str(capture.path), "time_us": now_us(), **facts}
    if rejected:
        lake.commit(REJECTED_MESSAGES, rejected)
    lake.commit(CAPTURES.name, lake.write_few(CAPTURES, [row]))
    lake.commit(MESSAGES, messages, progress={source: (lake.progress(MESSAGES, source) or 0) + 1})
    shutil.rmtree(folder)


def raise_times(told: list[PieceReport]) -> None:
    """Make times rise from piece to piece: a time before the end of an earlier piece is set to that end."""
    ends = [0, *accumulate((each.last_us for each in told), max)]
    for each, end_us in zip(told, ends, strict=False):
        if each.messages_file and each.first_us < end_us:
            _raise_times(Path(each.messages_file), end_us)


def _raise_times(file: Path, least_us: int) -> None:
    """Rewrite a file with times of at least `least_us`."""
    rows = pq.read_table(file, schema=BRONZE)
    times = pa.array(np.maximum(rows.column("time_us").to_numpy(), least_us))
    for name, column in (("time_us", times), ("time", times.cast(TIMESTAMP))):
        at = BRONZE.get_field_index(name)
        rows = rows.set_column(at, BRONZE.field(at), column)
    with open_writer(file, BRONZE) as writer:
        writer.write_table(rows)
