"""A journal folder made by hand: segments of blocks in the format of `journal/format.py`, without a running journal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from struct import pack
from typing import Any

from raceway.journal.files import Files
from raceway.journal.format import HAS_CONTROL_ROWS, Meta, encode_head
from raceway.journal.identity import new_identity, write_identity
from raceway.journal.integrity.checksum import sums
from raceway.journal.read.catalogue import segment_path
from raceway.journal.write.columns import lay_out, word_sum
from raceway.journal.write.mark import encode_mark
from raceway.model.envelope import TEXT_COLUMNS, Hop, encode_attributes, encode_hops
from tests.rigs.journal_rows import Row

MARKER = b"\x01marker\xff"


class UnsyncedFiles(Files):
    """For tests that write many files and lose no power."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


UNSYNCED = UnsyncedFiles()


def write_folder(folder: Path, segments: Sequence[Sequence[Row]], rows_per_block: int = 50) -> Path:
    """A folder whose segments hold these rows; the last one is the active segment."""
    folder.mkdir(mode=0o700, exist_ok=True)
    write_identity(UNSYNCED, folder, new_identity(MARKER))
    for rows in segments:
        blocks = [encode_block(rows[at : at + rows_per_block]) for at in range(0, len(rows), rows_per_block)]
        segment_path(folder, rows[0]["sequence"]).write_bytes(b"".join(blocks))
    (folder / "committed").write_bytes(encode_mark(segments[-1][-1]["sequence"]))
    return folder


def encode_block(rows: Sequence[Row]) -> bytes:
    names = {name for row in rows for name in row} - {"partition", "sequence"}
    layout = lay_out([{name: [_stored(name, row.get(name)) for row in rows] for name in names}], [len(rows)])
    body = layout.body()
    stripes = sums(body)
    meta = Meta(layout.columns, layout.constants, _spans(rows), pack(f"<{len(stripes)}I", *stripes), word_sum(body))
    flags = HAS_CONTROL_ROWS if any(row["kind"] == "control" for row in rows) else 0
    return encode_head(MARKER, meta, len(body), rows[0]["sequence"], len(rows), rows[-1]["time_us"], flags) + body


def _stored(name: str, value: Any) -> Any:
    if name == "attributes":
        return encode_attributes(dict(value or ()))
    if name == "hops":
        return encode_hops([Hop(**{key: v for key, v in hop.items() if v is not None}) for hop in value or ()])
    return value.encode() if name in TEXT_COLUMNS and value is not None else value


def _spans(rows: Sequence[Row]) -> list[tuple[str, int, int]]:
    offsets: dict[str, list[int]] = {}
    for row in rows:
        if row.get("offset") is not None:
            offsets.setdefault(row["topic"], []).append(row["offset"])
    spans = []
    for topic, found in offsets.items():
        for _, run in groupby(enumerate(found), key=lambda pair: pair[1] - pair[0]):
            members = [offset for _, offset in run]
            spans.append((topic, members[0], len(members)))
    return spans
