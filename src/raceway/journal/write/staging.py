"""Staging of sealed segments, so that they appear complete or not at all: write, sync, check, rename, sync the folder.

A sealed segment consists of three files. They are staged under their own names in a folder `<name>.sealing`, so that
what is checked is exactly what will be read; the Parquet file moves last. A crash leaves that folder, which
`remove_unfinished` removes.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from raceway.errors import JournalError
from raceway.journal.files import TEMPORARY, Files, write_all, write_file
from raceway.journal.integrity.stripes import encode_sums, measure
from raceway.journal.parquet import ParquetSink, row_groups

_STAGING = ".sealing"
# In a folder while it is restored from an archive.
RESTORING = "restoring"


def files_of(path: Path) -> tuple[Path, Path, Path]:
    """Return the files of a sealed segment in the order they are put in place: index, checksums, and last the rows."""
    # Readers look for the Parquet file: when its name appears, the other two must be there.
    return path.with_suffix(".idx"), path.with_suffix(".sum"), path


def seal_batches(
    batches: Iterable[pa.RecordBatch],
    target: Path,
    row_group_rows: int,
    *,
    first: int,
    last: int | None = None,
    sparse: bool = False,
    check: Callable[[Path], None] | None = None,
    files: Files | None = None,
) -> ParquetSink:
    """Write rows of SCHEMA as the sealed segment `target` (`….parquet`), replacing an existing one. Return the sink.

    The file begins at position `first`; positions up to `last` that are not written are recorded as missing, unless the
    file is `sparse`. `check` gets the staged Parquet file and raises if it is wrong: then nothing is put in place.
    """
    files = files or Files()
    staging = target.with_suffix(_STAGING)
    # Left by a child that was killed.
    shutil.rmtree(staging, ignore_errors=True)
    files.make_folder(staging)
    staged = staging / target.name
    try:
        with StagedFile(files, staged) as file, ParquetSink(file, first, sparse=sparse) as sink:
            for group in row_groups(batches, row_group_rows):
                sink.write(group)
            sink.finish(last)
            # Before the rename: a durable name on data that is not durable would be a broken segment after a
            # power failure.
            file.sync()
        # Measured from the file, not from what was written: a fault on the way would show in `check`.
        sums = measure(staged)
        sink.index.covered = sums.size
        write_file(files, staged.with_suffix(".sum"), encode_sums(sums))
        write_file(files, staged.with_suffix(".idx"), sink.index.encode())
        if check is not None:
            check(staged)
        _put_in_place(files, staged, target)
        # The caller removes the blocks later; the new names must be durable by then.
        files.sync_folder(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return sink


def _put_in_place(files: Files, staged: Path, target: Path) -> None:
    """Rename the files of a segment; those of an earlier one of that name are replaced."""
    # Within one file system, so each rename is atomic; the folder `<name>.sealing` lies beside the target.
    moves = list(zip(files_of(staged), files_of(target), strict=True))
    if target.exists():
        # Old checksums beside new rows, or the other way round, would look like damage after a crash. Missing ones are
        # made anew from the rows: so they go first, and come last.
        for _, final in moves[:-1]:
            files.remove(final)
        files.sync_folder(target.parent)
        moves.reverse()
    for path, final in moves:
        files.rename(path, final)


def check_restored(folder: Path, files: Files) -> None:
    """Raise JournalError if the folder is being restored from an archive, and that did not end."""
    if RESTORING in files.names(folder):
        raise JournalError(
            f"{folder} is not restored completely: run `raceway journal restore` again, with the same URL, to go on"
        )


def remove_unfinished(folder: Path, files: Files | None = None) -> list[str]:
    """Remove files that a crash left incomplete, and side files whose rows are gone; return their names."""
    files = files or Files()
    removed = []
    for path in sorted(folder.iterdir()):
        if path.suffix == _STAGING:
            # The child of a killed bus may still be writing there; it fails, and the next one starts over.
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == TEMPORARY or _is_orphan(path):
            files.remove(path)
        else:
            continue
        removed.append(path.name)
    if removed:
        files.sync_folder(folder)
    return removed


def _is_orphan(path: Path) -> bool:
    """Return whether a side file has no rows beside it."""
    # An index serves blocks and Parquet under the same name; checksums only Parquet.
    rows = {".sum": (".parquet",), ".idx": (".parquet", ".blocks")}.get(path.suffix)
    return rows is not None and not any(path.with_suffix(suffix).exists() for suffix in rows)


class StagedFile(io.RawIOBase):
    """New file that Arrow writes to from beginning to end, through the journal's file layer."""

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__()
        self._files = files
        self._position = 0
        self._descriptor = files.open(path, create=True)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: bytes) -> int:  # type: ignore[override]  # Arrow passes bytes
        write_all(self._files, self._descriptor, [data], self._position)
        self._position += len(data)
        return len(data)

    def sync(self) -> None:
        self._files.sync(self._descriptor)

    def close(self) -> None:
        if not self.closed:
            self._files.close(self._descriptor)
        super().close()
