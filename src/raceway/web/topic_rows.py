"""Topics as HTTP reads them: which rows, from where, and how a row is shown.

A place in a topic is an offset. A base with partitions is read through all of them, so a place in it is one offset for
each, parted by commas, in the order of the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.codec.cloudevents import event_of
from raceway.errors import MalformedError, UnknownTopicError
from raceway.journal.contract import Journal
from raceway.journal.inspect import document
from raceway.model.security import Principal
from raceway.model.topics import canonical_name, parse_danube_topic

Form = Literal["rows", "cloudevents"]
FIRST, END = "first", "end"
# Where a row lies in the journal is nothing to those who read by offset.
HIDDEN = ("partition", "sequence")

encode_line = msgspec.json.Encoder().encode


def topic_name(broker: Broker, text: str) -> str:
    """The canonical name of what an address calls a topic; `/ns/x` and `ns/x` are a topic of Danube's namespace `ns`.

    Raises NameInvalidError.
    """
    if "/" in text:
        return parse_danube_topic("/" + text.removeprefix("/"))
    name = canonical_name(text)
    return broker.settings.subscriptions.aliases.get(name, name)


def readable(broker: Broker, principal: Principal, text: str, *, maker: str | None = None) -> tuple[Topic, ...]:
    """The topic, or the partitions of a base. Raises NameInvalidError, ForbiddenError, UnknownTopicError.

    `maker`: whoever waits for what is still to come may name a topic that nobody has used; it is made then.
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
    """Where to begin: `first`, `end`, or an offset for each. Raises MalformedError."""
    ranges = [broker.journal.offsets(topic.name) for topic in topics]
    if text == FIRST:
        return [first for first, _ in ranges]
    if text == END:
        return [end for _, end in ranges]
    parts = text.split(",")
    if len(parts) != len(topics) or not all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts):
        offsets = "an offset" if len(topics) == 1 else f"{len(topics)} offsets parted by commas, one for each partition"
        raise MalformedError(f"a place is `{FIRST}`, `{END}` or {offsets}, not {text[:100]!r}")
    return [min(int(part), end) for part, (_, end) in zip(parts, ranges, strict=True)]


def place_of(offsets: Sequence[int]) -> str:
    return ",".join(map(str, offsets))


def shown(row: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """A row as what is shown of it."""
    if form == "cloudevents":
        return event_of(row)
    return document({name: value for name, value in row.items() if name not in HIDDEN})


class Gap(msgspec.Struct, frozen=True, rename={"begin": "from"}):
    """Offsets of a topic from `from` until `next` whose rows are gone."""

    topic: str
    begin: int
    next: int


def gaps_in(topic: Topic, begin: int, rows: Sequence[Mapping[str, Any]]) -> Iterator[Gap]:
    """Where offsets that are wanted from `begin` on are missing before or between rows: they are dense otherwise."""
    for row in rows:
        if row["offset"] > begin:
            yield Gap(topic.name, begin, row["offset"])
        begin = row["offset"] + 1


def read_rows(journal: Journal, topic: Topic, offset: int, limit: int, max_bytes: int) -> list[dict[str, Any]]:
    """Committed rows of one topic, bounded; at least one if there is one. Any thread may call it.

    Raises TrimmedError.
    """
    batches = journal.read_topic(topic.name, offset, limit, max_bytes)
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
