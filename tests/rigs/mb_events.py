"""Events of the MB codec in a form that does not show how messages were gathered, and the plain way to make them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raceway.model.intents.batches import Publish, Request, Respond
from raceway.wires.mb.codec.calls import is_system, read_call, subscribe_payload
from raceway.wires.mb.codec.header import MbLimits, MbRefused, as_request, read_message
from raceway.wires.mb.codec.receiver import MbEvent, Oversized

ROW = ("kind", "topic", "version", "message_id", "parent_id", "timeout_ms", "payload")


def flat(events: Iterable[MbEvent]) -> list[Any]:
    """Batches written out row by row; system events as head, call and payload."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, Publish | Request | Respond):
            batch = event.batch
            assert batch.wire == b"mb"
            found += [tuple(batch.item(name, row) for name in ROW) for row in range(batch.count)]
        elif isinstance(event, MbRefused | Oversized):
            found.append(event)
        else:
            found.append((event.head, getattr(event, "call", "heartbeat answer"), event.payload))
    return found


def strictly(messages: Iterable[bytes], limits: MbLimits) -> list[Any]:
    """What `flat` must give for these messages: each read by itself, nothing remembered."""
    found: list[Any] = []
    for message in messages:
        if len(message) > limits.frame_limit:
            return [*found, Oversized(len(message))]
        found.append(_strictly(message, limits))
    return found


def _strictly(message: bytes, limits: MbLimits) -> Any:
    read = read_message(message, limits)
    if isinstance(read, MbRefused):
        return read
    head, payload = read
    if head.action != b"subscribe" and not is_system(head.topic):
        return (*head, payload)
    if head.action == b"subscribe":
        head, payload = as_request(head), subscribe_payload(head.topic, payload)
    if head.action == b"response" and head.topic.lower() == b"system.heartbeat":
        return (head, "heartbeat answer", payload)
    return (head, read_call(head, payload), payload)
