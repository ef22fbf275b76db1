"""Rows of a batch by topic: spans of equal names, and the runs that encoders receive."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from raceway.broker.topics import Topic, TopicTable
from raceway.errors import RacewayError
from raceway.model.envelope import Batch, Column, decode_attributes, encode_attributes
from raceway.model.hashing import fnv1a64
from raceway.model.wires import spelling_key

Refused = list[tuple[int, int, RacewayError]]


class RowSpan(NamedTuple):
    """Rows `start` to `stop` of a batch, all of one topic; `sent` is the name as its sender spelled it."""

    topic: Topic
    sent: bytes
    start: int
    stop: int


class Run(NamedTuple):
    """Consecutive publishes of one topic, for an encoder. `ids` has the id to deliver for each row of the batch."""

    span: RowSpan
    batch: Batch
    ids: list[bytes]


class MixedRows(NamedTuple):
    """Publishes of several topics for one subscriber: `rows` of the batch, of which `frames` has each one encoded.

    `topics` has the topic of each name in the batch.
    """

    batch: Batch
    ids: list[bytes]
    topics: Mapping[bytes, Topic]
    rows: list[int]
    frames: list[bytes]

    def runs(self) -> Iterator[tuple[Run, bytes]]:
        """Yield each row by itself, with its encoding."""
        names = self.batch.topic
        assert type(names) is list
        for row in self.rows:
            name = names[row]
            assert name is not None
            yield Run(RowSpan(self.topics[name], name, row, row + 1), self.batch, self.ids), self.frames[row]


def name_rows(batch: Batch, topics: TopicTable, folds_case: bool, maker: str = "") -> tuple[list[RowSpan], Refused]:
    """Find or create the topic of each stretch of rows. Return the spans, and the rows whose topic is refused."""
    spans: list[RowSpan] = []
    refused: Refused = []
    for sent, start, stop in stretches(batch.topic, batch.count):
        try:
            spans.append(RowSpan(topics.spelled(sent, folds_case, maker), sent, start, stop))
        except RacewayError as error:
            refused.append((start, stop, error))
    return spans, refused


def keep_named(batch: Batch, spans: list[RowSpan], wire: bytes) -> tuple[Batch, list[RowSpan]]:
    """Return the rows of these spans under canonical names, with other spellings as attributes, and their spans."""
    batch, spans = keep_rows(batch, spans)
    _keep_spelling(batch, spans, wire)
    return batch, spans


def keep_rows(batch: Batch, spans: list[RowSpan]) -> tuple[Batch, list[RowSpan]]:
    """Return the rows of these spans under the names of their topics, and their spans in the new batch."""
    if len(spans) == 1 and spans[0].start == 0 and spans[0].stop == batch.count:  # almost every batch
        batch.topic = spans[0].topic.encoded
        return batch, spans
    kept = sum(stop - start for _, _, start, stop in spans)
    if kept < batch.count:
        batch = batch.keep([row for _, _, start, stop in spans for row in range(start, stop)])
        spans = _closed_up(spans)
    if len(spans) == 1:
        batch.topic = spans[0].topic.encoded
    else:
        batch.topic = [span.topic.encoded for span in spans for _ in range(span.start, span.stop)]
    return batch, spans


def tell_kept(batch: Batch, kept: Batch, rows: list[int]) -> None:
    """Give a batch what its kept rows were given when they were stored; the others have no offset."""
    for name in ("topic", "message_id", "offset"):
        values = [None] * batch.count if name == "offset" else list(batch.column(name))
        for at, row in enumerate(rows):
            values[row] = kept.item(name, at)
        setattr(batch, name, values)


def without(spans: list[RowSpan], gone: Container[int]) -> list[RowSpan]:
    """Return the spans without these rows."""
    left: list[RowSpan] = []
    for topic, sent, start, stop in spans:
        begin = start
        for row in [row for row in range(start, stop) if row in gone] + [stop]:
            if begin < row:
                left.append(RowSpan(topic, sent, begin, row))
            begin = row + 1
    return left


def over_partitions(spans: list[RowSpan], batch: Batch, producer: bytes) -> list[RowSpan]:
    """Assign rows of a partitioned topic to partitions, by routing key or by sender."""
    if not any(span.topic.partitions for span in spans):
        return spans
    parted: list[RowSpan] = []
    for span in spans:
        count = len(span.topic.partitions)
        if not count:
            parted.append(span)
            continue
        numbers: dict[bytes, int] = {}
        for row in range(span.start, span.stop):
            key = batch.item("routing_key", row) or batch.item("producer", row) or producer
            if key not in numbers:
                numbers[key] = fnv1a64(key) % count
            topic = span.topic.partitions[numbers[key]]
            if parted and parted[-1].topic is topic and parted[-1].stop == row:
                parted[-1] = parted[-1]._replace(stop=row + 1)
            else:
                parted.append(RowSpan(topic, span.sent, row, row + 1))
    return parted


def stretches(sent: Column[bytes], count: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, stop) of each stretch of equal names; one for the whole batch if its topic is a scalar."""
    if type(sent) is not list:
        assert isinstance(sent, bytes), "codecs always set the topic"
        yield sent, 0, count
        return
    start, name = 0, sent[0]
    for at in range(1, count):
        if sent[at] != name:
            assert name is not None
            yield name, start, at
            start, name = at, sent[at]
    assert name is not None
    yield name, start, count


def _closed_up(spans: list[RowSpan]) -> list[RowSpan]:
    closed, at = [], 0
    for topic, sent, start, stop in spans:
        closed.append(RowSpan(topic, sent, at, at + stop - start))
        at += stop - start
    return closed


def _keep_spelling(batch: Batch, spans: list[RowSpan], wire: bytes) -> None:
    """Store non-canonical spellings as attributes, to be restored on the same wire."""
    for span in spans:
        if span.sent != span.topic.encoded:
            break
    else:
        return
    batch.complete()
    key = spelling_key(wire)
    kept: list[bytes | None] = []
    for topic, sent, start, stop in spans:
        for row in range(start, stop):
            attributes: bytes | None = batch.item("attributes", row)
            if sent != topic.encoded:
                attributes = encode_attributes({**decode_attributes(attributes), key: sent.decode()})
            kept.append(attributes)
    batch.attributes = kept
