"""State of the bus: the sum of all control rows, that is, everything small that must survive a restart.

A control row's payload is the JSON list [section, key, value]; a later row for the same key replaces the earlier one,
None removes it. Besides the sections there are the next offset of each topic and the time of the last row.

A snapshot is the sum at one position. Starting from it, the later control rows lead to the state at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from raceway.journal.integrity import checksum

VERSION = 1
_encode = msgspec.json.Encoder().encode
_row_decoder = msgspec.json.Decoder(tuple[str, str, Any])


# Unknown fields are ignored, and `unseen` has a default: snapshots of neighbouring releases can be read.
class _Snapshot(msgspec.Struct, forbid_unknown_fields=False):
    """Content of the file `state-<sequence>`."""

    version: int
    sequence: int
    time_us: int
    source: str
    offsets: dict[str, int]
    sections: dict[str, dict[str, Any]]
    unseen: int = 0


_snapshot_decoder = msgspec.json.Decoder(_Snapshot)


class State(msgspec.Struct, eq=False):
    """State of the journal and the bus. Changed through `Journal.set_state` and `Journal.append` only."""

    next_offsets: dict[str, int] = {}
    # Next offset of a topic that is not in `next_offsets`: above 0 once rows of unknown topics were lost.
    unseen: int = 0
    time_us: int = 0
    sections: dict[str, dict[str, Any]] = {}

    def get(self, section: str, key: str) -> Any | None:
        """Return a value; None if it is not set."""
        return self.sections.get(section, {}).get(key)

    def section(self, name: str) -> Mapping[str, Any]:
        """Return all keys of a section; empty if there are none. Do not change the mapping."""
        return self.sections.get(name, {})

    def put(self, section: str, key: str, value: Any | None) -> None:
        """Apply one control row."""
        if value is not None:
            self.sections.setdefault(section, {})[key] = value
        elif section in self.sections:
            self.sections[section].pop(key, None)

    def next_offset(self, topic: str) -> int:
        """Return the offset that the next row of a topic will get."""
        return self.next_offsets.get(topic, self.unseen)

    def reached(self, topic: str, following: int) -> None:
        """Record that offsets of a topic below `following` were given out."""
        # Never lowered: after losses an offset may be ahead of what the rows say.
        if following > self.next_offsets.get(topic, -1):
            self.next_offsets[topic] = following

    def skip(self, rows: int) -> None:
        """Raise all next offsets by `rows` lost rows of unknown topics: no topic can have given out more offsets than
        that."""
        # A topic may have had all of its rows among the lost ones; its first offset must then not be 0 again.
        self.unseen += rows
        for topic in self.next_offsets:
            self.next_offsets[topic] += rows

    def encode_snapshot(self, sequence: int, source: str) -> bytes:
        """Return the content of `state-<sequence>`: the sum of all rows up to and including `sequence`."""
        return checksum.protect(
            _encode(_Snapshot(VERSION, sequence, self.time_us, source, self.next_offsets, self.sections, self.unseen))
        )


def encode_row(section: str, key: str, value: Any | None) -> bytes:
    """Return the payload of a control row."""
    return _encode((section, key, value))


def decode_row(payload: bytes) -> tuple[str, str, Any]:
    """Return (section, key, value) of a control row."""
    return _row_decoder.decode(payload)


def maybe_decode_snapshot(data: bytes) -> tuple[int, str, State] | None:
    """Return (sequence, source, state); None if the bytes are damaged beyond repair or of another version."""
    found = checksum.maybe_unprotect(data)
    if found is None:
        return None
    try:
        snapshot = _snapshot_decoder.decode(found[0])
    except msgspec.DecodeError:
        return None
    # An unknown version counts as damaged: the state is then summed up from an older snapshot or from the rows.
    if snapshot.version != VERSION:
        return None
    state = State(snapshot.offsets, snapshot.unseen, snapshot.time_us, snapshot.sections)
    return snapshot.sequence, snapshot.source, state
