"""Inspection of a journal from outside: what is in the folder, and rows as documents for people and programs.

Works with and without a bus writing to the folder: nothing is locked and nothing is changed.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from raceway.errors import JournalError
from raceway.journal.contract import Damage, Segment
from raceway.journal.files import Files, maybe_read_file
from raceway.journal.format import Batches
from raceway.journal.identity import maybe_read_identity
from raceway.journal.read.catalogue import ARCHIVE, BLOCKS, HELD
from raceway.journal.read.reader import Reader
from raceway.journal.read.rows import of_topic
from raceway.journal.read.segment import BlockSegment
from raceway.journal.state import maybe_decode_snapshot
from raceway.journal.write.active import snapshot_paths


class SegmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about one file of rows. `kind` is `active` for the segment being written."""

    file: str
    kind: Literal["active", "blocks", "sealed", "held", "archived"]
    first: int
    last: int
    rows: int
    bytes: int
    oldest_us: int
    newest_us: int
    has_blocks: bool = False


class TopicFacts(msgspec.Struct, frozen=True):
    """Offsets of a topic from `first` to before `next`, the one that will be given next."""

    topic: str
    first: int
    next: int


class SnapshotFacts(msgspec.Struct, frozen=True):
    """Facts about a state snapshot; `sequence` is -1 if it cannot be read."""

    file: str
    sequence: int
    sections: dict[str, int]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a folder, as far as they can be told without reading rows."""

    folder: str
    format: int
    source: str
    first_position: int
    committed: int
    rows: int
    bytes: int
    segments: list[SegmentFacts]
    topics: list[TopicFacts]
    topic_count: int
    snapshots: list[SnapshotFacts]
    damage: list[Damage]


def survey(folder: Path, top: int = 20) -> Survey:
    """Survey a folder, listing the `top` topics with the most offsets. Raises JournalError if there is no journal."""
    files = Files()
    reader = Reader(folder)
    committed = reader.committed()
    reader.look_for_holes()  # also follows the writer
    listed = (*reader.held(), *reader.segments())
    segments = [_segment_facts(segment) for segment in listed]
    topics = _topics(listed)
    identity = maybe_read_identity(files, folder)
    found = Survey(
        folder=str(folder),
        format=identity.format if identity else 0,
        source=identity.source if identity else "",
        first_position=reader.first_position(),
        committed=committed,
        rows=sum(facts.rows for facts in segments),
        bytes=sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
        segments=segments,
        topics=sorted(topics, key=lambda facts: (facts.first - facts.next, facts.topic))[:top],
        topic_count=len(topics),
        snapshots=[_snapshot_facts(files, path) for path in snapshot_paths(folder, files.names(folder))],
        damage=list(reader.damage),
    )
    reader.close()
    return found


def _segment_facts(segment: Segment) -> SegmentFacts:
    """Return the facts about a segment, from its index alone."""
    oldest_us, newest_us = segment.time_range_us
    if isinstance(segment, BlockSegment):
        kind: Literal["active", "blocks", "sealed", "held", "archived"] = "active" if segment.is_growing else "blocks"
    else:
        kind = "held" if segment.path.name.startswith(HELD) else "sealed"
        kind = "archived" if segment.path.parent.name == ARCHIVE else kind
    has_blocks = kind == "sealed" and segment.path.with_suffix(BLOCKS).exists()
    return SegmentFacts(
        file=segment.path.name, kind=kind, first=segment.first, last=segment.last, rows=segment.rows,
        bytes=segment.size, oldest_us=oldest_us, newest_us=newest_us, has_blocks=has_blocks,
    )  # fmt: skip


def _topics(segments: Sequence[Segment]) -> list[TopicFacts]:
    """Return the first and next offset of each topic over all segments."""
    found: dict[str, tuple[int, int]] = {}
    for segment in segments:
        for topic, (first, following) in segment.topics().items():
            # Held files may hold the same offsets as a segment, so minimum and maximum, not first and last.
            known = found.get(topic, (first, following))
            found[topic] = (min(first, known[0]), max(following, known[1]))
    return [TopicFacts(topic, *offsets) for topic, offsets in found.items()]


def _snapshot_facts(files: Files, path: Path) -> SnapshotFacts:
    """Return the facts about a snapshot file."""
    found = maybe_decode_snapshot(maybe_read_file(files, path) or b"")
    if found is None:
        return SnapshotFacts(path.name, -1, {})
    sequence, _, state = found
    sizes = {name: len(values) for name, values in state.sections.items()}
    return SnapshotFacts(path.name, sequence, sizes | {"topics": len(state.next_offsets)})


# ---- rows -----------------------------------------------------------------------------------------------------------


def select_rows(
    reader: Reader, start: int | None, stop: int | None, topic: str | None = None, limit: int | None = None
) -> Batches:
    """Yield rows from position `start` (None: the first one left) until `stop`, of topics that match `topic`."""
    left = limit
    for batch in reader.read(reader.first_position() if start is None else start, stop):
        found = batch if topic is None else batch.filter(of_topic(batch.column("topic"), topic))
        if left is not None:
            found = found.slice(0, left)
            left -= found.num_rows
        if found.num_rows or topic is not None:  # an empty batch lets the caller show progress
            yield found
        if left is not None and left <= 0:
            return


def row_at(reader: Reader, position: int) -> dict[str, Any]:
    """Return the row at a position. Raises JournalError if there is none: not written yet, removed, or damaged."""
    if position > reader.committed():
        raise JournalError(f"position {position} does not exist yet; the last committed one is {reader.committed()}")
    row = _maybe_first(reader.read(position, position + 1))
    if row is None:
        raise JournalError(f"the row at position {position} is damaged; run `raceway journal verify` for details")
    return row


def row_of_topic(reader: Reader, topic: str, offset: int | None) -> dict[str, Any]:
    """Return the row with this offset, by default the newest row of the topic. Raises JournalError if there is none."""
    following = next_offset(reader, topic)
    wanted = following - 1 if offset is None else offset
    if wanted >= following:
        raise JournalError(f"topic {topic!r} has no offset {wanted} yet; the last one is {following - 1}")
    row = _maybe_first(reader.read_topic(topic, wanted, max_rows=1))
    # A lost row is skipped by readers, so the next offset comes instead.
    if row is None or row["offset"] != wanted:
        raise JournalError(f"offset {wanted} of topic {topic!r} is damaged; run `raceway journal verify` for details")
    return row


def next_offset(reader: Reader, topic: str) -> int:
    """Return the offset after the last row of a topic. Raises JournalError if it has none."""
    reader.read(0, 0)  # follows the writer; reads nothing
    for segment in reversed(reader.segments()):
        if topic in (topics := segment.topics()):
            return topics[topic][1]
    raise JournalError(f"topic {topic!r} has no rows; run `raceway journal info` to list the topics")


def _maybe_first(batches: Batches) -> dict[str, Any] | None:
    """Return the first row; None if there is none."""
    return next((row for batch in batches for row in batch.slice(0, 1).to_pylist()), None)


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a JSON document: absent values are left out; a payload that is not UTF-8 text is base64."""
    # 0 is a value and stays; `in` compares by equality, and no number equals None, [] or an empty text.
    shown = {name: value for name, value in row.items() if value not in (None, [], "") and name != "payload"}
    if row.get("attributes"):
        shown["attributes"] = dict(row["attributes"])
    payload = row.get("payload")
    if payload is None:
        return shown
    try:
        return shown | {"payload": payload.decode()}
    except UnicodeDecodeError:
        return shown | {"payload_base64": base64.b64encode(payload).decode()}
