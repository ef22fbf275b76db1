"""Deliveries: rows of the bus as `StreamMessage`, each ready to be sent, without building a protobuf object.

What messages of one producer have in common on one subscription is encoded once: the identity but for the offset, the
producer's name, the subscription's name. A message adds its numbers, its payload and what few have.

A row of another wire becomes a Danube message as well as it can: no request id, the sender's name and the lasting id of
that name, the time it was sent or else came in, its headers as attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raceway.codec.danube_fields import bytes_field, map_field, number_field, varint
from raceway.model.envelope import DANUBE, Batch, decode_attributes
from raceway.model.hashing import sender_id
from raceway.model.topics import danube_topic

# Producers and sets of attributes come from peers, so what is remembered of them is bounded.
REMEMBERED = 1024

_RARE = ("attributes", "schema_id", "schema_version", "routing_key")


class Deliverer:
    """Encodes what one subscription of one topic is given. `topic` is the canonical name."""

    def __init__(self, topic: bytes, subscription: bytes, broker_address: bytes) -> None:
        self._topic = topic
        self._of_topic = bytes_field(2, danube_topic(topic.decode()).encode()) + bytes_field(3, broker_address)
        self._subscription = bytes_field(6, subscription)
        self._senders: dict[tuple[int | None, bytes | None], tuple[bytes, bytes]] = {}
        self._maps: dict[bytes, bytes] = {}

    def encode(self, batch: Batch, rows: Sequence[int]) -> list[bytes]:
        """One message per row."""
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
        if any(getattr(batch, name) is not None for name in _RARE):
            return [message + rare for message, rare in zip(messages, self._rare_fields(batch, rows), strict=True)]
        return messages

    def _remember(self, producer_id: int | None, producer: bytes | None) -> tuple[bytes, bytes]:
        if len(self._senders) >= REMEMBERED:
            self._senders.clear()
        known = producer_id if producer_id is not None else sender_id(self._topic, producer or b"")
        identity = number_field(1, known) + self._of_topic
        names = bytes_field(5, producer or b"") + self._subscription
        self._senders[producer_id, producer] = identity, names
        return identity, names

    def _rare_fields(self, batch: Batch, rows: Sequence[int]) -> list[bytes]:
        found = []
        for attributes, schema_id, schema_version, routing_key in zip(
            *[_values(getattr(batch, name), rows) for name in _RARE], strict=True
        ):
            fields = self._map(attributes) if attributes is not None else b""
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
    """A column's values in these rows, whether it has one for all or one for each."""
    return [column[row] for row in rows] if type(column) in (list, range) else [column] * len(rows)


def _request_ids(batch: Batch, rows: Sequence[int]) -> list[int]:
    """The message id of a Danube row is its producer's id and the request's, joined. Others have no such number."""
    return [
        int(message_id.rpartition(b"-")[2]) if wire == DANUBE else 0
        for wire, message_id in zip(_values(batch.wire, rows), _values(batch.message_id, rows), strict=True)
    ]


def _times_ms(batch: Batch, rows: Sequence[int]) -> list[int]:
    return [
        sent if sent is not None else came // 1000
        for sent, came in zip(_values(batch.sent_ms, rows), _values(batch.time_us, rows), strict=True)
    ]
