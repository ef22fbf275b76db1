"""The sum of all control rows: everything small that must survive a restart.

A control row's payload is the JSON list [section, key, value]; a later row for the same key replaces the earlier one,
None removes it. Beside the sections stand the next offset of each topic and the time of the last row.

A snapshot is the sum at one position. Starting from it, the control rows behind it lead to the state at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from raceway.journal import checksum

VERSION = 1
_encode = msgspec.json.Encoder().encode
_row_decoder = msgspec.json.Decoder(tuple[str, str, Any])


class _Snapshot(msgspec.Struct, forbid_unknown_fields=False):
    version: int
    sequence: int
    time_us: int
    source: str
    offsets: dict[str, int]
    sections: dict[str, dict[str, Any]]
    unseen: int = 0


_snapshot_decoder = msgspec.json.Decoder(_Snapshot)


class State:
    """What the journal and the bus know. Written through `Journal.set_state` and `Journal.append` only."""

    def __init__(self) -> None:
        self.next_offsets: dict[str, int] = {}
        # The next offset of a topic that is not among them: above 0 once rows of unknown topics were lost.
        self.unseen = 0
        self.time_us = 0
        self._sections: dict[str, dict[str, Any]] = {}

    def get(self, section: str, key: str) -> Any | None:
        return self._sections.get(section, {}).get(key)

    def section(self, name: str) -> Mapping[str, Any]:
        """All keys of a section; empty when there are none. Do not change it."""
        return self._sections.get(name, {})

    def put(self, section: str, key: str, value: Any | None) -> None:
        """Apply one control row."""
        if value is not None:
            self._sections.setdefault(section, {})[key] = value
        elif section in self._sections:
            self._sections[section].pop(key, None)

    def next_offset(self, topic: str) -> int:
        """The offset that the next row of a topic will have."""
        return self.next_offsets.get(topic, self.unseen)

    def reached(self, topic: str, following: int) -> None:
        """Offsets of a topic below `following` were given out."""
        if following > self.next_offsets.get(topic, -1):
            self.next_offsets[topic] = following

    def skip(self, rows: int) -> None:
        """So many rows are lost, and nobody knows of which topics: none can have given out more offsets than that."""
        self.unseen += rows
        for topic in self.next_offsets:
            self.next_offsets[topic] += rows

    def encode_snapshot(self, sequence: int, source: str) -> bytes:
        """The bytes of the file `state-<sequence>`: the sum of all rows up to and including `sequence`."""
        return checksum.protect(
            _encode(_Snapshot(VERSION, sequence, self.time_us, source, self.next_offsets, self._sections, self.unseen))
        )


def encode_row(section: str, key: str, value: Any | None) -> bytes:
    """The payload of a control row."""
    return _encode((section, key, value))


def decode_row(payload: bytes) -> tuple[str, str, Any]:
    return _row_decoder.decode(payload)


def maybe_decode_snapshot(data: bytes) -> tuple[int, str, State] | None:
    """(sequence, source, state), or None when the bytes are damaged beyond mending or of another version."""
    found = checksum.maybe_unprotect(data)
    if found is None:
        return None
    try:
        snapshot = _snapshot_decoder.decode(found[0])
    except msgspec.DecodeError:
        return None
    if snapshot.version != VERSION:
        return None
    state = State()
    state.next_offsets, state.time_us, state._sections = snapshot.offsets, snapshot.time_us, snapshot.sections
    state.unseen = snapshot.unseen
    return snapshot.sequence, snapshot.source, state
