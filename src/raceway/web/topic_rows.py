"""Reading topics over HTTP: names, positions, and the format of rows.

A position in a topic is an offset. A base is read through all its partitions, so a position in it is one offset for
each, separated by commas, in the order of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import MalformedError, UnknownTopicError
from raceway.journal.contract import Journal
from raceway.journal.query.inspect import document
from raceway.model.security import Principal
from raceway.model.topics import canonical_name, parse_danube_topic
from raceway.net.codec.cloudevents import event_of

Form = Literal["rows", "cloudevents"]
FIRST, END = "first", "end"
# Columns about the journal, of no use to readers by offset.
HIDDEN = ("partition", "sequence")

encode_line = msgspec.json.Encoder().encode


def topic_name(broker: Broker, text: str) -> str:
    """Return the canonical name of a topic in a path; `/ns/x` and `ns/x` are a topic of Danube's namespace `ns`.

    Raises NameInvalidError.
    """
    if "/" in text:
        return parse_danube_topic("/" + text.removeprefix("/"))
    name = canonical_name(text)
    return broker.settings.subscriptions.aliases.get(name, name)


def readable(broker: Broker, principal: Principal, text: str, *, maker: str | None = None) -> tuple[Topic, ...]:
    """Return the topic, or the partitions of a base. Raises NameInvalidError, ForbiddenError, UnknownTopicError.

    `maker`: address of a caller that waits for future messages; an unknown topic is created for it.
    """
    name = topic_name(broker, text)
    broker.security.check(principal, "Consume", name)
    topic = broker.topics.maybe_exact(name)
    if topic is None:
        if maker is None:
            raise UnknownTopicError(name)
        topic = broker.topics.named(name, maker)
    return topic.partitions or (topic,)


def positions(broker: Broker, topics: Sequence[Topic], text: str) -> list[int]:
    """Parse a position: `first`, `end`, or an offset for each topic. Raises MalformedError."""
    ranges = [broker.journal.offsets(topic.name) for topic in topics]
    if text == FIRST:
        return [first for first, _ in ranges]
    if text == END:
        return [end for _, end in ranges]
    parts = text.split(",")
    if len(parts) != len(topics) or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        offsets = (
            "an offset" if len(topics) == 1 else f"{len(topics)} offsets separated by commas, one for each partition"
        )
        raise MalformedError(f"a position is `{FIRST}`, `{END}` or {offsets}, not {text[:100]!r}")
    return [min(int(part), end) for part, (_, end) in zip(parts, ranges, strict=True)]


def place_of(offsets: Sequence[int]) -> str:
    return ",".join(map(str, offsets))


def shown(row: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """Return a row in the wanted format."""
    if form == "cloudevents":
        return event_of(row)
    return document({name: value for name, value in row.items() if name not in HIDDEN})


class Gap(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """Offsets of a topic from `from` to before `next` whose rows are lost."""

    topic: str
    begin: int
    next: int


def gaps_in(topic: Topic, begin: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[Gap]:
    """Yield the gaps before and between rows from `begin` on: offsets are dense otherwise."""
    for row in rows:
        if row["offset"] > begin:
            yield Gap(topic.name, begin, row["offset"])
        begin = row["offset"] + 1


def read_rows(journal: Journal, topic: Topic, offset: int, limit: int, max_bytes: int) -> list[dict[str, Any]]:
    """Read committed rows of one topic within limits, at least one if there is one. Safe in any thread.

    Raises TrimmedError.
    """
    batches = journal.read_topic(topic.name, offset, limit, max_bytes)
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
