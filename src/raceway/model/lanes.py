"""Which lane of a bus a topic is in: the hash of its folded name, so that all spellings of a name agree without asking.

The rule is for ever: where messages are stored depends on it. It is a rule of names alone, and no topic has to exist.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from raceway.model.hashing import fnv1a64
from raceway.model.topics import fold

# Names whose lanes are remembered, so that a common one costs one lookup. Names come from peers, so they are bounded.
KEPT_NAMES = 65_536


class LaneTable:
    """The lanes of a bus that has `count` of them. `aliases` maps names to the topics that they mean."""

    def __init__(self, count: int, aliases: Mapping[str, str] | None = None) -> None:
        self.count = count
        self._aliases = {_comparable(alias): name for alias, name in (aliases or {}).items()}
        self._kept: dict[bytes, int] = {}

    def lane_of(self, sent: bytes) -> int:
        """Return the lane of a name as a peer has sent it, valid or not: the lane then refuses it."""
        lane = self._kept.get(sent)
        if lane is None:
            if len(self._kept) >= KEPT_NAMES:
                self._kept.clear()
            name = _comparable(sent.decode("utf-8", "replace"))
            meant = _comparable(self._aliases.get(name, name))
            found = fnv1a64(meant.encode("utf-8", "replace"))
            # Its lowest bit is the parity of the bytes: without more, names with doubled digits would share a lane.
            lane = self._kept[sent] = (found ^ found >> 32) % self.count
        return lane


def _comparable(name: str) -> str:
    """Return the form in which two spellings of a topic's name are equal."""
    return fold(unicodedata.normalize("NFC", name))
