"""A run: consecutive publishes of one topic inside a batch. What an encoder is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raceway.broker.topics import Topic
from raceway.model.envelope import Batch, Column


class Run(NamedTuple):
    """Rows `start` to `stop` of a batch, all of one topic.

    `sent` is the topic as its sender spelled it. `ids` has the id to deliver for each row of the batch (the masked one
    where the wire masks), `sender_ids` the ids the sender gave, if it gave any.
    """

    topic: Topic
    sent: bytes
    batch: Batch
    start: int
    stop: int
    ids: list[bytes]
    sender_ids: list[bytes | None] | None


def spans(sent: Column[bytes], count: int) -> Iterator[tuple[bytes, int, int]]:
    """(name as sent, start, stop) of each stretch of equal names; one for the whole batch if its topic is a scalar."""
    if type(sent) is not list:
        assert isinstance(sent, bytes), "codecs always say the topic"
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
