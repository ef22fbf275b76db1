"""Redrive: publish rejected, undeliverable and dead-lettered messages again.

They are stored on `raceway.rejected`, `raceway.undeliverable` and the dead-letter topics of subscriptions, with the
reason as attributes. A redriven message is published on its topic again unchanged: same payload, ids, correlation,
attributes and sender. The topic's current schema and limits apply. A note about a message that stayed in its topic (too
large for a reader's wire) stands for that message.

Which messages were redriven is stored in the journal's state, for the latest ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.dedup import DEDUP_ID
from raceway.broker.peers import Peer
from raceway.broker.places import offset_at, rows_of
from raceway.broker.registry.schemas import REJECTED
from raceway.broker.steps import Steps
from raceway.broker.subscriptions.table import SubscriptionTable
from raceway.broker.undelivered.dead_letters import LETTER_ATTRIBUTES, ORIGINAL_TOPIC
from raceway.broker.undelivered.undeliverable import OWN_ATTRIBUTES, UNDELIVERABLE
from raceway.errors import InvalidValueError, TrimmedError, UnknownError
from raceway.model.envelope import PUBLISH, Batch, decode_attributes, encode_attributes
from raceway.model.intents.kinds import Done
from raceway.model.intents.reading import (
    ListRejected,
    NoteRedriven,
    ReadRejected,
    RejectedRows,
    Restored,
    RestoreRejected,
)
from raceway.model.security import Principal
from raceway.model.topics import DEFAULT_NAMESPACE

SOURCES = {"rejected": REJECTED, "undeliverable": UNDELIVERABLE}
DEAD_LETTER = "dead_letter"
KINDS = (*SOURCES, DEAD_LETTER)
REDRIVEN, KEPT_REDRIVEN = "redriven", 10_000
# Attribute of a redriven message: the position of its rejected row.
REDRIVEN_FROM = "raceway.redriven"
# One read; a page may need several.
READ_ROWS, READ_BYTES = 200, 8 * 1024 * 1024
# Maximum number of rows read for one page with a filter.
LOOKED_AT = 10_000
_COPIED = ("message_id", "parent_id", "correlation_id", "routing_key", "encoding", "version")
_COPIED_NUMBERS = ("schema_id", "schema_version", "sent_ms")


class UnknownRejectedError(UnknownError, code="unknown", kind="rejected message"):
    """The row at this position is not a rejected or undelivered message."""


class Redrive:
    def __init__(self, bus: Bus, subscriptions: SubscriptionTable) -> None:
        self._bus, self._subscriptions = bus, subscriptions
        self._journal = bus.journal

    def calls(self) -> dict[type, IntentHandler]:
        return {
            ListRejected: self._list,
            ReadRejected: self._find,
            RestoreRejected: self._restore,
            NoteRedriven: self.note,
        }

    # ---- intents -----------------------------------------------------------------------------------------------------

    def _list(self, peer: Peer, call: ListRejected) -> Steps[RejectedRows]:
        kept = self._allowed(peer.principal, self.topics(call.source))
        looking = partial(self._page, kept, call.topic, call.before, call.limit)
        rows, following = yield self._bus.aside(looking)
        return RejectedRows([(row, self.redriven(row["sequence"])) for row in rows], following)

    def _find(self, peer: Peer, call: ReadRejected) -> Steps[tuple[dict[str, Any], Any]]:
        row = yield from self._row(peer, call.position)
        return row, self.redriven(call.position)

    def _restore(self, peer: Peer, call: RestoreRejected) -> Steps[Restored]:
        row = yield from self._row(peer, call.position)
        batch = yield self._bus.aside(partial(self.batch, row, call.topic))
        return Restored(batch, row["producer"])

    def _row(self, peer: Peer, position: int) -> Steps[dict[str, Any]]:
        """Return the row at a position. Raises UnknownRejectedError, also without permission, so as not to reveal which
        positions exist."""
        row: dict[str, Any] = yield self._bus.aside(partial(self.row, position))
        security = self._bus.security
        if security.enabled and not security.allows(peer.principal, "Consume", row["topic"]):
            raise UnknownRejectedError(str(position))
        return row

    def _allowed(self, principal: Principal, kept: Sequence[str]) -> list[str]:
        """Return the topics from which the caller may consume. Raises ForbiddenError if there are none."""
        security = self._bus.security
        if not security.enabled:
            return list(kept)
        allowed = [each for each in kept if security.allows(principal, "Consume", each)]
        if not allowed:  # for the cluster: do not reveal which topics exist
            security.check(principal, "Consume")
        return allowed

    # ---- rows --------------------------------------------------------------------------------------------------------

    def _page(
        self, kept: Sequence[str], topic: str | None, before: int | None, limit: int
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return the rows of a page, and the position below which the next one starts."""
        looked_at = 0
        found: list[dict[str, Any]] = []
        while len(found) < limit and looked_at < LOOKED_AT:
            merged = [row for each in kept for row in self.newest(each, before, limit)]
            rows = sorted(merged, key=lambda row: row["sequence"], reverse=True)[:limit]
            if not rows:
                return found, None
            chosen = [row for row in rows if topic is None or facts_of(row).get("topic") == topic]
            found += chosen[: limit - len(found)]
            full = len(found) == limit
            before = found[-1]["sequence"] if full else rows[-1]["sequence"]
            looked_at += len(rows)
        return found, before

    def topics(self, source: str | None) -> list[str]:
        """Return the topics that store messages of this kind, or of all kinds."""
        kept = [topic for name, topic in SOURCES.items() if source in (name, None)]
        if source in (DEAD_LETTER, None):
            table = self._subscriptions
            named = {table.settings.policy(each.topic.name, each.name).dead_letter_topic for each in table}
            kept += [part for name in sorted(filter(None, named)) for part in self._partitions(name)]
        return kept

    def _partitions(self, name: str) -> list[str]:
        topic = self._bus.topics.maybe_exact(name)
        return [name] if topic is None or not topic.partitions else [part.name for part in topic.partitions]

    def newest(self, topic: str, before: int | None, limit: int) -> list[dict[str, Any]]:
        """Return rows of one of these topics, newest first, with positions below `before`."""
        first, end = self._journal.offsets(topic)
        if before is not None:
            end = offset_at(self._journal, topic, "sequence", before, first, end)
        found: list[dict[str, Any]] = []
        while end > first and len(found) < limit:
            begin = max(first, end - min(limit - len(found), READ_ROWS))
            rows = self._read(topic, begin, end - begin)
            found += reversed(rows)
            end = begin
        return found

    def row(self, position: int) -> dict[str, Any]:
        """Return the row at this position. Raises UnknownRejectedError."""
        try:
            rows = rows_of(self._journal.read(position, position + 1))
        except TrimmedError as error:
            raise UnknownRejectedError(str(position)) from error
        if not rows or not (rows[0]["topic"] in SOURCES.values() or ORIGINAL_TOPIC in (rows[0]["attributes"] or {})):
            raise UnknownRejectedError(str(position))
        return rows[0]

    def redriven(self, position: int) -> Any | None:
        """Return where the message was redriven to, if it was."""
        return self._journal.state.get(REDRIVEN, str(position))

    def batch(self, row: dict[str, Any], topic: str | None) -> Batch:
        """Build the message of a row, for its own topic or another. Raises InvalidValueError, UnknownRejectedError."""
        target = topic or facts_of(row).get("topic", "")
        if not target:
            raise InvalidValueError("the topic", "the row does not contain the original topic: name one")
        message, attributes = self._message(row)
        attributes.pop(DEDUP_ID, None)  # otherwise it would be dropped as a repeat
        attributes[REDRIVEN_FROM] = str(row["sequence"])
        batch = Batch(1, wire=message["wire"].encode(), kind=PUBLISH, topic=target.encode())
        batch.payload, batch.attributes = [message["payload"] or b""], [encode_attributes(attributes)]
        for name in _COPIED:
            if message[name] is not None:
                setattr(batch, name, [message[name].encode()])
        for name in _COPIED_NUMBERS:
            if message[name] is not None:
                setattr(batch, name, [message[name]])
        return batch

    def _message(self, row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the original message of a row, and its own attributes."""
        facts: dict[str, str] = row["attributes"] or {}
        if row["topic"] not in SOURCES.values():
            return row, {name: value for name, value in facts.items() if name not in LETTER_ATTRIBUTES}
        if facts.get("offset", "").isdigit():
            noted = self._noted(facts["topic"], int(facts["offset"]))
            return noted, dict(noted["attributes"] or {})
        return row, decode_attributes(facts.get(OWN_ATTRIBUTES, "").encode())

    def note(self, peer: Peer, call: NoteRedriven) -> Done:
        """Store that the message was redriven; forget the oldest such entries."""
        known = self._journal.state.section(REDRIVEN)
        for oldest in sorted(known, key=int)[: max(len(known) - KEPT_REDRIVEN + 1, 0)]:
            self._bus.set_state(REDRIVEN, oldest, None)
        facts = {"topic": call.topic, "offset": call.offset, "time_us": self._bus.clock_us()}
        self._bus.set_state(REDRIVEN, str(call.position), facts)
        return Done()

    def _noted(self, topic: str, offset: int) -> dict[str, Any]:
        try:
            rows = self._read(topic, offset, 1)
        except TrimmedError:
            rows = []
        if not rows or rows[0]["offset"] != offset:
            raise UnknownRejectedError(f"{topic} {offset}")
        return rows[0]

    def _read(self, topic: str, offset: int, count: int) -> list[dict[str, Any]]:
        """Read `count` rows from an offset on, whatever their size."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            following = found[-1]["offset"] + 1 if found else offset
            rows = rows_of(self._journal.read_topic(topic, following, count - len(found), READ_BYTES))
            if not rows:
                break
            found += rows
        return [row for row in found if row["offset"] < offset + count]


def facts_of(row: dict[str, Any]) -> dict[str, Any]:
    """Describe a rejected message without its payload."""
    attributes: dict[str, str] = row["attributes"] or {}
    source = next((name for name, topic in SOURCES.items() if topic == row["topic"]), DEAD_LETTER)
    told = {name: attributes[name] for name in _TOLD if attributes.get(name)}
    if source == DEAD_LETTER:
        told = _told_of_letter(attributes)
    return {
        "position": row["sequence"], "source": source, "time_us": row["time_us"], "wire": row["wire"],
        "producer": row["producer"], "message_id": row["message_id"], "correlation_id": row["correlation_id"],
        "bytes": len(row["payload"] or b""), **told,
    }  # fmt: skip


def _told_of_letter(attributes: dict[str, str]) -> dict[str, str]:
    attempts = attributes.get("x-delivery-attempt", "?")
    told = {
        "topic": attributes.get(ORIGINAL_TOPIC, "").removeprefix(f"/{DEFAULT_NAMESPACE}/"),
        "subscription": attributes.get("x-original-subscription", ""),
        "offset": attributes.get("x-original-topic-offset", ""),
        "code": DEAD_LETTER,
        "reason": attributes.get("x-failure-reason", "") or f"delivered {attempts} times and not acknowledged",
    }
    return {name: value for name, value in told.items() if value}


_TOLD = ("topic", "code", "reason", "path", "subject", "version", "receiver", "subscription", "offset")
