"""Deliveries: rows encoded as `StreamMessage`, without building a protobuf object.

The fields that all messages of one producer share on one subscription are encoded once: the message id except its
offset, the producer's name, the subscription's name. Each message adds its numbers, its payload and its rare fields.

A row of another wire is mapped: request id 0, the sender's name and an id derived from it, the time of sending (or of
arrival), its headers as attributes. Its message id and correlation id become attributes too; a consumer that sends a
follow-up names them as `x-parent-id` and `x-correlation-id`, which continues the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raceway.model.envelope import DANUBE, Batch, decode_attributes
from raceway.model.hashing import sender_id
from raceway.model.topics import namespaced_topic
from raceway.wires.danube.codec.fields import bytes_field, map_field, number_field, varint

# Size of each cache: producers and sets of attributes come from peers, so their number must be bounded.
REMEMBERED = 1024
MESSAGE_ID, CORRELATION = "x-message-id", "x-correlation-id"

# Columns that few messages use; a batch without them takes the short way in `encode`.
_RARE = ("attributes", "schema_id", "schema_version", "routing_key")


class Deliverer:
    """The encoder of one subscription of one topic. `topic` is the canonical name."""

    def __init__(self, topic: bytes, subscription: bytes, broker_address: bytes) -> None:
        self._topic = topic
        # Field numbers are those of danube_api.proto: in MsgID 2 is topic_name, 3 broker_addr.
        self._of_topic = bytes_field(2, namespaced_topic(topic.decode()).encode()) + bytes_field(3, broker_address)
        self._subscription = bytes_field(6, subscription)
        self._senders: dict[tuple[int | None, bytes | None], tuple[bytes, bytes]] = {}
        self._maps: dict[bytes, bytes] = {}

    def encode(self, batch: Batch, rows: Sequence[int]) -> list[bytes]:
        """Encode one message per row."""
        senders = self._senders
        messages: list[bytes] = []
        for offset, request_id, producer_id, producer, payload, sent_ms in zip(
            _values(batch.offset, rows),
            _request_ids(batch, rows),
            _values(batch.producer_id, rows),
            _values(batch.producer, rows),
            _values(batch.payload, rows),
            _times_ms(batch, rows),
            strict=True,
        ):
            sender = senders.get((producer_id, producer)) or self._remember(producer_id, producer)
            position = varint(offset)
            # Keys (field << 3 | wire type): 08 request_id, 12 msg_id, in it 28 topic_offset, 1A payload,
            # 20 publish_time.
            messages.append(
                b"\x08%b\x12%b%b\x28%b\x1a%b%b\x20%b%b"
                % (
                    varint(request_id),
                    varint(len(sender[0]) + 1 + len(position)),
                    sender[0],
                    position,
                    varint(len(payload)),
                    payload,
                    varint(sent_ms),
                    sender[1],
                )
            )
        if batch.wire != DANUBE or any(getattr(batch, name) is not None for name in _RARE):
            return [message + rare for message, rare in zip(messages, self._rare_fields(batch, rows), strict=True)]
        return messages

    def _remember(self, producer_id: int | None, producer: bytes | None) -> tuple[bytes, bytes]:
        if len(self._senders) >= REMEMBERED:
            self._senders.clear()
        # Senders of other wires have no producer id: derive one that stays the same over restarts.
        known = producer_id if producer_id is not None else sender_id(self._topic, producer or b"")
        identity = number_field(1, known) + self._of_topic
        names = bytes_field(5, producer or b"") + self._subscription
        self._senders[producer_id, producer] = identity, names
        return identity, names

    def _rare_fields(self, batch: Batch, rows: Sequence[int]) -> list[bytes]:
        found = []
        for attributes, schema_id, schema_version, routing_key, chain in zip(
            *[_values(getattr(batch, name), rows) for name in _RARE], _chains(batch, rows), strict=True
        ):
            # Protobuf: of equal keys in a map the last counts, so the sender's own attributes come after `chain`.
            fields = chain + self._map(attributes) if attributes is not None else chain
            if schema_id is not None:
                fields += number_field(8, schema_id)
            if schema_version is not None:
                fields += number_field(9, schema_version)
            if routing_key is not None:
                fields += bytes_field(10, routing_key)
            found.append(fields)
        return found

    def _map(self, attributes: bytes) -> bytes:
        encoded = self._maps.get(attributes)
        if encoded is None:
            if len(self._maps) >= REMEMBERED:
                self._maps.clear()
            encoded = self._maps[attributes] = map_field(7, decode_attributes(attributes))
        return encoded


def _values(column: Any, rows: Sequence[int]) -> list[Any]:
    """Return the values of a column in these rows, whether it has one for all rows or one for each."""
    return [column[row] for row in rows] if type(column) in (list, range) else [column] * len(rows)


def _chains(batch: Batch, rows: Sequence[int]) -> list[bytes]:
    """Encode message id and correlation id of rows of other wires as attributes; b"" for rows of Danube."""
    # The root of a chain has no correlation id of its own: its message id is that of the chain.
    return [
        b"" if wire == DANUBE or message_id is None else map_field(7, _placed(message_id, root or message_id))
        for wire, message_id, root in zip(
            _values(batch.wire, rows),
            _values(batch.message_id, rows),
            _values(batch.correlation_id, rows),
            strict=True,
        )
    ]


def _placed(message_id: bytes, root: bytes) -> dict[str, str]:
    return {MESSAGE_ID: message_id.decode("utf-8", "replace"), CORRELATION: root.decode("utf-8", "replace")}


def _request_ids(batch: Batch, rows: Sequence[int]) -> list[int]:
    """Return the request ids of Danube rows, and 0 for rows of other wires."""
    # The message id of a Danube row is "producer_id-request_id" (see `rows`).
    return [
        int(message_id.rpartition(b"-")[2]) if wire == DANUBE else 0
        for wire, message_id in zip(_values(batch.wire, rows), _values(batch.message_id, rows), strict=True)
    ]


def _times_ms(batch: Batch, rows: Sequence[int]) -> list[int]:
    return [
        sent if sent is not None else came // 1000
        for sent, came in zip(_values(batch.sent_ms, rows), _values(batch.time_us, rows), strict=True)
    ]
