"""Reading stored messages of topics: pages by position, and rows as they are committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.places import find_offset, rows_of
from raceway.broker.steps import Steps
from raceway.broker.topics import Topic
from raceway.errors import InvalidValueError, MalformedError, TrimmedError, UnavailableError, UnknownTopicError
from raceway.journal.contract import Journal
from raceway.model.envelope import Batch
from raceway.model.intents import reading as intents
from raceway.model.intents.kinds import Done
from raceway.model.security import Principal
from raceway.model.subscriptions import Start, parse_start
from raceway.model.topics import canonical_name, parse_namespaced_topic

# Gaps in one answer, and rows per read, when a range of offsets is searched for gaps.
MOST_GAPS, READ_ROWS = 100, 65_536


class FollowedTopic:
    """A reader of one topic that passes committed rows to a peer, until it is closed."""

    def __init__(self, peer: Peer, topic: Topic) -> None:
        self._peer, self.topic = peer, topic
        self.closed = False

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        if not self.closed:  # rows that were appended before may be committed after
            self._peer.note_committed(self.topic.name, batch, rows)

    def withdrawn(self, batch: Batch, row: int) -> None:
        """Do nothing: uncommitted rows were not passed on."""


class Reading:
    def __init__(self, bus: Bus) -> None:
        self._bus, self._journal = bus, bus.journal
        self._followed: dict[tuple[Peer, str], FollowedTopic] = {}

    def calls(self) -> dict[type, IntentHandler]:
        return {
            intents.LocateTopic: self.locate,
            intents.ReadTopic: self.read,
            intents.ReadRows: self.read_rows,
            intents.Follow: self.follow,
            intents.Unfollow: self.unfollow,
        }

    # ---- intents -----------------------------------------------------------------------------------------------------

    def locate(self, peer: Peer, call: intents.LocateTopic) -> Steps[intents.Located]:
        """Raises NameInvalidError, ForbiddenError, UnknownTopicError, MalformedError."""
        topics = self.readable(peer.principal, call.topic, peer.network if call.creates else None)
        begin = yield from self._begin(topics, call.start)
        return intents.Located(tuple(topic.name for topic in topics), tuple(begin))

    def read(self, peer: Peer, call: intents.ReadTopic) -> Steps[intents.TopicRead]:
        """Raises as `locate`, and TrimmedError. Rows that cannot be found up to the end after a commit are lost."""
        topics = self.readable(peer.principal, call.topic)
        begin = yield from self._begin(topics, call.start)
        ends = self._ends(topics)
        work = self._bus.aside(partial(_read, self._journal, topics, begin, call.limit, call.max_bytes))
        found, following, gaps = yield work
        if not found and begin != ends:
            with contextlib.suppress(UnavailableError):  # rows that could not be stored cannot be read either
                yield self._bus.commit
            # Now, before others get the offsets of rows that could not be stored.
            ends = [min(pair) for pair in zip(ends, self._ends(topics), strict=True)]
            found, following, gaps = yield work
            if not found:
                places = list(zip(topics, begin, ends, strict=True))
                gaps = [intents.Gap(topic.name, first, end) for topic, first, end in places if first < end]
                following = [max(first, end) for _, first, end in places]
        return intents.TopicRead(begin, following, self._ends(topics), found, gaps)

    def read_rows(self, peer: Peer, call: intents.ReadRows) -> Steps[intents.RowsRead]:
        """Raises ForbiddenError, TrimmedError."""
        self._bus.security.check(peer.principal, "Consume", call.topic)
        work = self._bus.aside(partial(read_rows, self._journal, call.topic, call.offset, call.limit, call.max_bytes))
        rows: list[dict[str, Any]] = yield work
        end = self._journal.offsets(call.topic)[1]
        if not rows:
            with contextlib.suppress(UnavailableError):  # rows that could not be stored cannot be read either
                yield self._bus.commit
            end = min(end, self._journal.offsets(call.topic)[1])
            rows = yield work
        return intents.RowsRead(rows, end)

    def follow(self, peer: Peer, call: intents.Follow) -> int:
        """Raises ForbiddenError."""
        self._bus.security.check(peer.principal, "Consume", call.topic)
        topic = self._bus.topics.own(call.topic)
        followed = self._followed[peer, call.topic] = FollowedTopic(peer, topic)
        self._bus.readers.add(topic, followed)
        return self._journal.offsets(topic.name)[1]

    def unfollow(self, peer: Peer, call: intents.Unfollow) -> Done:
        followed = self._followed.pop((peer, call.topic))
        followed.closed = True
        self._bus.readers.remove(followed.topic, followed)
        return Done()

    # ---- topics and positions ----------------------------------------------------------------------------------------

    def readable(self, principal: Principal, text: str, maker: str | None = None) -> tuple[Topic, ...]:
        """Return the topic, or the partitions of a base. Raises NameInvalidError, ForbiddenError, UnknownTopicError.

        `maker`: network of a caller that waits for future messages; an unknown topic is created for it.
        """
        name = topic_name(self._bus, text)
        self._bus.security.check(principal, "Consume", name)
        topic = self._bus.topics.maybe_exact(name)
        if topic is None:
            if maker is None:
                raise UnknownTopicError(name)
            topic = self._bus.topics.named(name, maker)
        return topic.partitions or (topic,)

    def _begin(self, topics: Sequence[Topic], text: str) -> Steps[list[int]]:
        """Find a position or a time. Raises MalformedError."""
        start = _maybe_time(text)
        if start is None:
            return self.positions(topics, text)
        found: list[int] = yield self._bus.aside(
            lambda: [find_offset(self._journal, topic.name, start) for topic in topics]
        )
        return found

    def positions(self, topics: Sequence[Topic], text: str) -> list[int]:
        """Parse a position: `first`, `end`, or an offset for each topic. Raises MalformedError."""
        ranges = [self._journal.offsets(topic.name) for topic in topics]
        if text == intents.FIRST:
            return [first for first, _ in ranges]
        if text == intents.END:
            return [end for _, end in ranges]
        parts = text.split(",")
        if len(parts) != len(topics) or not all(
            part.isascii() and part.isdigit() and len(part) <= 18 for part in parts
        ):
            several = f"{len(topics)} offsets separated by commas, one for each partition"
            offsets = "an offset" if len(topics) == 1 else several
            raise MalformedError(f"a position is `{intents.FIRST}`, `{intents.END}` or {offsets}, not {text[:100]!r}")
        return [min(int(part), end) for part, (_, end) in zip(parts, ranges, strict=True)]

    def find_gaps(self, topics: Sequence[Topic], begin: Sequence[int]) -> Steps[list[intents.Gap]]:
        """Return the gaps between a position and the end, at most MOST_GAPS."""
        found: list[intents.Gap] = yield self._bus.aside(
            partial(_gaps, self._journal, topics, begin, self._ends(topics))
        )
        return found

    def _ends(self, topics: Sequence[Topic]) -> list[int]:
        return [self._journal.offsets(topic.name)[1] for topic in topics]


def _maybe_time(text: str) -> Start | None:
    """Parse a time with a zone, such as 2026-01-31T12:00:00Z; None for everything else."""
    try:
        start = parse_start(text)
    except InvalidValueError:
        return None
    return start if start.at == "time" else None


def topic_name(bus: Bus, text: str) -> str:
    """Return the canonical name of a topic; `/ns/x` and `ns/x` are a topic of the namespace `ns`.

    Raises NameInvalidError.
    """
    if "/" in text:
        return parse_namespaced_topic("/" + text.removeprefix("/"))
    name = canonical_name(text)
    return bus.settings.subscriptions.aliases.get(name, name)


# ---- in another thread -----------------------------------------------------------------------------------------------


def read_rows(journal: Journal, topic: str, offset: int, limit: int, max_bytes: int) -> list[dict[str, Any]]:
    """Read committed rows of one topic within limits, at least one if there is one. Raises TrimmedError."""
    return rows_of(journal.read_topic(topic, offset, limit, max_bytes))


def _gaps_in(topic: Topic, begin: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[intents.Gap]:
    """Yield the gaps before and between rows from `begin` on: offsets are dense otherwise."""
    for row in rows:
        if row["offset"] > begin:
            yield intents.Gap(topic.name, begin, row["offset"])
        begin = row["offset"] + 1


def _read(
    journal: Journal, topics: Sequence[Topic], begin: Sequence[int], limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], list[int], list[intents.Gap]]:
    """Return rows, the next position, and gaps. Raises TrimmedError."""
    found: list[dict[str, Any]] = []
    gaps: list[intents.Gap] = []
    following = list(begin)
    for number, topic in enumerate(topics):
        size = sum(len(row["payload"] or b"") for row in found)
        if len(found) >= limit or size >= max_bytes:
            break
        rows = read_rows(journal, topic.name, following[number], limit - len(found), max_bytes - size)
        found += rows
        gaps += _gaps_in(topic, following[number], rows)
        if rows:
            following[number] = rows[-1]["offset"] + 1
    return found, following, gaps


def _gaps(journal: Journal, topics: Sequence[Topic], begin: Sequence[int], ends: Sequence[int]) -> list[intents.Gap]:
    found: list[intents.Gap] = []
    for topic, offset, end in zip(topics, begin, ends, strict=True):
        while offset < end and len(found) < MOST_GAPS:
            try:
                rows = rows_of(journal.read_topic(topic.name, offset, READ_ROWS, columns=("offset",)))
            except TrimmedError as error:
                offset = error.first
                continue
            if not rows:
                break  # not committed yet, or lost: a reader that reaches it reports it
            found += _gaps_in(topic, offset, rows)
            offset = rows[-1]["offset"] + 1
    return found[:MOST_GAPS]
