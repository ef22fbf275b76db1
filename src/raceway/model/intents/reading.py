"""Intents that read stored messages, and their outcomes.

A position in a topic is an offset. A base is read through all its partitions, so a position in it has one offset for
each, in the order of the partitions. As text it is `first`, `end`, or the offsets separated by commas; readers may also
begin at a time with a zone, such as 2026-01-31T12:00:00Z.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raceway.model.envelope import Batch
from raceway.model.intents.kinds import Done, IntentFor, Outcome

FIRST, END = "first", "end"


class Gap(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """Offsets of a topic from `from` to before `next` whose rows are lost."""

    topic: str
    begin: int
    next: int


class Located(Outcome, frozen=True):
    """A position in a topic, or in the partitions of a base."""

    topics: tuple[str, ...]
    begin: tuple[int, ...]


class TopicRead(Outcome, frozen=True):
    """Rows from `begin` on, as mappings by column. `following` is the next position, `end` that of the topic."""

    begin: Sequence[int]
    following: Sequence[int]
    end: Sequence[int]
    rows: list[dict[str, Any]]
    gaps: list[Gap]


class RejectedRows(Outcome, frozen=True):
    """Rows of a page, newest first, each with where it was redriven to, if it was. `following` continues below."""

    rows: list[tuple[dict[str, Any], Any]]
    following: int | None


class Restored(Outcome, frozen=True):
    """The message of a rejected row, and the producer that sent it."""

    batch: Batch
    producer: str | None


class LocateTopic(IntentFor[Located], frozen=True):
    """Find a position in a topic to read from. `creates`: an unknown topic is created, for a reader that waits."""

    topic: str
    start: str
    creates: bool = False


class ReadTopic(IntentFor[TopicRead], frozen=True):
    """Read committed messages of a topic from a position on, at most `limit` with `max_bytes` of payloads."""

    topic: str
    start: str
    limit: int
    max_bytes: int


class RowsRead(msgspec.Struct, frozen=True):
    """Rows of one topic. Without rows, all from the wanted offset to before `end` are lost."""

    rows: list[dict[str, Any]]
    end: int


class ReadRows(IntentFor[RowsRead], frozen=True):
    """Read committed rows of one topic (canonical name) from an offset on."""

    topic: str
    offset: int
    limit: int
    max_bytes: int


class Follow(IntentFor[int], frozen=True):
    """Pass the committed rows of a topic (canonical name) to the peer from now on. The outcome is the first offset."""

    topic: str


class Unfollow(IntentFor[Done], frozen=True):
    """End `Follow`."""

    topic: str


class ListRejected(IntentFor[RejectedRows], frozen=True):
    """List messages that were refused or not delivered: of a source, of a topic, with positions below `before`."""

    source: str | None
    topic: str | None
    before: int | None
    limit: int


class ReadRejected(IntentFor[tuple[dict[str, Any], Any]], frozen=True):
    """Read one message that was refused or not delivered, and where it was redriven to, if it was."""

    position: int


class RestoreRejected(IntentFor[Restored], frozen=True):
    """Build the message of a rejected row, to publish it again to its own topic or another."""

    position: int
    topic: str | None


class NoteRedriven(IntentFor[Done], frozen=True):
    """Note where a rejected message was published again."""

    position: int
    topic: str
    offset: int | None
