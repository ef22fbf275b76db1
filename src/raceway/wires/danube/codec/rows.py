"""Sends: the bytes of many `SendMessage` calls decoded into one batch of rows, and errors for those that are refused.

Errors that need no state are found here; whether the producer exists, and is allowed to send, is checked by the broker.
Numbers of the wire are unsigned 64-bit, columns are signed: a time that does not fit is refused; an id that does not
fit cannot be known, and becomes the largest number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from google.protobuf.message import DecodeError

from raceway.errors import MalformedError, PeerError, TooLargeError
from raceway.model.envelope import DANUBE, PUBLISH, Batch, Column, encode_json
from raceway.model.topics import parse_namespaced_topic
from raceway.wires.danube.codec.pb.danube_api_pb2 import StreamMessage

T = TypeVar("T")

LARGEST = (1 << 63) - 1

# Attributes that place a message in a causal chain. Values longer than ID_BYTES remain attributes only.
PARENT, CORRELATION = "x-parent-id", "x-correlation-id"
ID_BYTES = 255

_decode = StreamMessage.FromString  # looked up once, not once per message


class SendLimits(msgspec.Struct, frozen=True):
    """Limits of one message's attributes: their number, and the bytes of names and values."""

    attributes: int = 128
    attribute_bytes: int = 64 * 1024


class Sends(NamedTuple):
    """Decoded sends. The rows of `batch` are the messages at `indexes`; `request_ids` go into their responses.

    `refused` has (index, error) for all other messages.
    """

    batch: Batch
    indexes: list[int]
    request_ids: list[int]
    refused: list[tuple[int, PeerError]]


def decode_sends(messages: Sequence[bytes], limits: SendLimits) -> Sends:
    """Decode and check the messages of several calls."""
    # One long loop: a function call for each message would take as long as decoding it.
    indexes: list[int] = []
    request_ids: list[int] = []
    topics: list[bytes | None] = []
    producer_ids: list[int | None] = []
    message_ids: list[bytes | None] = []
    times: list[int | None] = []
    payloads: list[bytes | None] = []
    refused: list[tuple[int, PeerError]] = []
    rare: list[tuple[int, StreamMessage]] = []
    known: dict[str, bytes] = {}
    for index, data in enumerate(messages):
        try:
            message = _decode(data)
            # proto3: a message field may be absent; numbers and strings that are absent are 0 and "".
            if not message.HasField("msg_id"):
                raise MalformedError("msg_id is missing")
            identity, sent_ms, request_id = message.msg_id, message.publish_time, message.request_id
            if sent_ms > LARGEST:
                raise MalformedError("publish_time is out of range")
            # Parsed once per distinct name: the calls of one read mostly name the same topic.
            name = identity.topic_name
            topic = known.get(name)
            if topic is None:
                topic = known[name] = parse_namespaced_topic(name).encode()
            if message.attributes:
                _check_attributes(message, limits)
                rare.append((len(indexes), message))
            elif message.HasField("schema_id") or message.HasField("schema_version") or message.HasField("routing_key"):
                rare.append((len(indexes), message))
        except DecodeError:
            refused.append((index, MalformedError("the request is not a StreamMessage")))
            continue
        except PeerError as error:
            refused.append((index, error))
            continue
        producer_id = identity.producer_id
        indexes.append(index)
        request_ids.append(request_id)
        topics.append(topic)
        producer_ids.append(producer_id if producer_id <= LARGEST else LARGEST)
        # `deliver` reads the request id from it again.
        message_ids.append(b"%d-%d" % (producer_id, request_id))
        times.append(sent_ms)
        payloads.append(message.payload)
    batch = Batch(
        len(indexes), wire=DANUBE, kind=PUBLISH, topic=_shared(topics), producer_id=_shared(producer_ids),
        message_id=message_ids, sent_ms=times, payload=payloads,
    )  # fmt: skip
    if rare:
        _fill_rare(batch, rare)
    return Sends(batch, indexes, request_ids, refused)


def _shared(column: list[T | None]) -> Column[T]:
    """Return one value for all rows if they agree: one producer's messages mostly arrive together."""
    return column[0] if column and column.count(column[0]) == len(column) else column


def _check_attributes(message: StreamMessage, limits: SendLimits) -> None:
    attributes = message.attributes
    if len(attributes) > limits.attributes:
        raise MalformedError(f"{len(attributes)} attributes are over the limit of {limits.attributes}")
    # The number first: it bounds the work of adding up the sizes.
    size = sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    if size > limits.attribute_bytes:
        raise TooLargeError("attributes", size, limits.attribute_bytes)


def _fill_rare(batch: Batch, rare: list[tuple[int, StreamMessage]]) -> None:
    """Fill in the columns that few messages use; each is created by the first row that needs it."""
    columns: dict[str, list[Any]] = {}

    def put(name: str, row: int, value: Any) -> None:
        if name not in columns:
            columns[name] = [None] * batch.count
            setattr(batch, name, columns[name])
        columns[name][row] = value

    for row, message in rare:
        if message.attributes:
            attributes = dict(message.attributes)
            # Kept as attributes too, so that consumers see what the producer sent.
            put("attributes", row, encode_json(attributes))
            for attribute, column in ((PARENT, "parent_id"), (CORRELATION, "correlation_id")):
                named = attributes.get(attribute, "").encode()
                if 0 < len(named) <= ID_BYTES:
                    put(column, row, named)
        # proto3 `optional`: 0 and absent are different.
        if message.HasField("schema_id"):
            put("schema_id", row, min(message.schema_id, LARGEST))
        if message.HasField("schema_version"):
            put("schema_version", row, message.schema_version)
        if message.HasField("routing_key"):
            put("routing_key", row, message.routing_key.encode())
