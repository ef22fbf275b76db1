"""Messages on ordinary topics, gathered into batches of columns.

The receiver adds messages to `Rows`, one after the other; `batches` makes intents of them. Work is done once for all
rows where possible: a topic that all share is one value, ids are validated together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from raceway.model.envelope import MB, Batch, agreed
from raceway.model.intents.batches import Publish, Request, Respond
from raceway.wires.mb.codec.header import ID_LENGTH, PUBLISH, REQUEST, RESPONSE, is_message_id

Messages = Publish | Request | Respond
_INTENTS: dict[bytes, type[Messages]] = {PUBLISH: Publish, REQUEST: Request, RESPONSE: Respond}


class KnownStart:
    """The first three fields of an accepted header. `start` is their exact spelling, with a final colon.

    Compared by identity, which makes it cheap to count equal ones.
    """

    __slots__ = ("action", "start", "topic", "version")

    def __init__(self, action: bytes, topic: bytes, version: bytes, start: bytes) -> None:
        self.action, self.topic, self.version, self.start = action, topic, version, start


class FrameShape(NamedTuple):
    """The layout of a frame: the bytes before its id, length word included, and the lengths of id and payload."""

    known: KnownStart
    start: bytes
    id_length: int
    payload_length: int


class Rows:
    """Rows in order of arrival. An absent id is empty; parents and timeouts are rare, and kept by row number."""

    __slots__ = ("ids", "known", "parents", "payloads", "timeouts")

    def __init__(self) -> None:
        self.known: list[KnownStart] = []
        self.ids: list[bytes] = []
        self.payloads: list[bytes] = []
        self.parents: dict[int, bytes] = {}
        self.timeouts: dict[int, int] = {}

    def add(
        self, known: KnownStart, message_id: bytes, parent_id: bytes | None, timeout_ms: int | None, body: bytes
    ) -> None:
        """Add one message."""
        if parent_id is not None:
            self.parents[len(self.ids)] = parent_id
        if timeout_ms is not None:
            self.timeouts[len(self.ids)] = timeout_ms
        self.known.append(known)
        self.ids.append(message_id)
        self.payloads.append(body)

    def have_good_ids(self) -> bool:
        """Return whether every id that is present is a UUID of version 4."""
        if len(self.ids) == 1:
            return not self.ids[0] or is_message_id(self.ids[0])
        # Each id has 36 bytes or none, so in the joined ids the same position of all of them is one slice: a few
        # comparisons in C instead of a regular expression per id.
        joined = b"".join(self.ids)
        count = len(joined) // ID_LENGTH
        # 8-4-4-4-12 digits; RFC 9562, 4.2: the version is digit 13; 4.1: the variant, 8 to b, is digit 17.
        hyphens = b"-" * count
        return (
            joined[8::ID_LENGTH] == hyphens
            and joined[13::ID_LENGTH] == hyphens
            and joined[14::ID_LENGTH] == b"4" * count
            and joined[18::ID_LENGTH] == hyphens
            and joined[23::ID_LENGTH] == hyphens
            and not joined[19::ID_LENGTH].translate(None, b"89abAB")
            # All others are hexadecimal: without the digits, only the four hyphens of each id remain.
            and len(joined.translate(None, b"0123456789abcdefABCDEF")) == 4 * count
        )

    def batches(self) -> Iterator[Messages]:
        """Yield an intent for each run of messages with the same action. Call it once, after `have_good_ids`."""
        if len(self.known) == 1:
            yield self._only()
            return
        first = 0
        known = self.known
        # Fast path: a publisher's messages all have the same header.
        if known.count(known[0]) == len(known):
            yield _INTENTS[known[0].action](self._batch(0, len(known)))
            return
        actions = [row.action for row in known]
        if actions.count(actions[0]) == len(actions):  # a sender of many topics
            yield _INTENTS[actions[0]](self._batch(0, len(known)))
            return
        for action, run in groupby(actions):
            end = first + sum(1 for _ in run)
            yield _INTENTS[action](self._batch(first, end))
            first = end

    def _only(self) -> Messages:
        """Return the intent of the only message."""
        intent = single(self.known[0], self.ids[0], self.payloads[0])
        if self.parents:
            intent.batch.parent_id = [self.parents[0]]
        if self.timeouts:
            intent.batch.timeout_ms = [self.timeouts[0]]
        return intent

    def _batch(self, first: int, end: int) -> Batch:
        known = self.known[first:end]
        count = end - first
        topic: bytes | list[bytes] = known[0].topic
        version: bytes | list[bytes] = known[0].version
        # A column that is one value for all rows saves memory and, in the journal, disk.
        if known.count(known[0]) != count:
            topic = agreed([row.topic for row in known])
            version = agreed([row.version for row in known])
        batch = Batch(
            count, wire=MB, kind=known[0].action, topic=topic, version=version, payload=self.payloads[first:end]
        )
        self._fill_rare_columns(batch, first, end)
        return batch

    def _fill_rare_columns(self, batch: Batch, first: int, end: int) -> None:
        """Fill in the columns that stay None unless a row uses them."""
        # Absent ids are empty in `Rows`, for slicing, and None in a batch.
        ids: list[bytes | None] = list(self.ids[first:end])
        absent = ids.count(b"")
        if absent < len(ids):
            batch.message_id = [each or None for each in ids] if absent else ids
        rows = range(first, end)
        if self.parents:
            parents = [self.parents.get(row) for row in rows]
            batch.parent_id = parents if any(parents) else None
        if self.timeouts:
            timeouts = [self.timeouts.get(row) for row in rows]
            batch.timeout_ms = timeouts if timeouts.count(None) < len(timeouts) else None


def single(known: KnownStart, message_id: bytes, payload: bytes) -> Messages:
    """Return the intent of one message. Its id is empty if it has none."""
    # A path of its own: most requests and answers arrive alone, and a client waits for each of them.
    batch = Batch(
        1, wire=MB, kind=known.action, topic=known.topic, version=known.version, payload=[payload],
        message_id=[message_id] if message_id else None,
    )  # fmt: skip
    return _INTENTS[known.action](batch)


def last_shape(rows: Rows) -> FrameShape:
    """Return the shape of the last row: a frame with the same bytes in these places is valid as well."""
    known, id_length, payload_length = rows.known[-1], len(rows.ids[-1]), len(rows.payloads[-1])
    # Without an id the colon before it is absent too.
    header = known.start if id_length else known.start[:-1]
    length = len(header) + id_length + 1 + payload_length
    return FrameShape(known, length.to_bytes(4, "big") + header, id_length, payload_length)
