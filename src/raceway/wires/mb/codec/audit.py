"""The audit stream `system.message`: a record of every message received or sent.

The record of a client's message is made before it is routed, that of the broker's message after it was sent. Audit
records themselves are not audited.
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.model.envelope import encode_json
from raceway.wires.mb.codec.encode import FrameMaker, iso_time, message
from raceway.wires.mb.codec.header import MbHeader, as_text

AUDIT_HEADER = b"publish:system.message:1.0.0"
# Shown for a message without a timeout, whatever `broker.request_timeout_ms` is.
AUDIT_TIMEOUT_MS = 5000


def system_message(payload: bytes, frame: FrameMaker) -> bytes:
    """Encode an audit record for a subscriber."""
    return message(AUDIT_HEADER, payload, frame)


def audit_received(head: MbHeader, payload: bytes, peer: str, time_us: int) -> bytes:
    """Encode the payload of the record of a client's message."""
    # Names and order of members are part of the wire.
    header: dict[str, Any] = _audit_header(head)
    if head.parent_id is not None:
        header["parentRequestId"] = as_text(head.parent_id)
    if head.timeout_ms is not None:
        header["timeout"] = head.timeout_ms
    record = {
        "timestamp": iso_time(time_us),
        "timeout": AUDIT_TIMEOUT_MS if head.timeout_ms is None else head.timeout_ms,
        "from": peer,
        "message": {"header": header, "payload": _audit_payload(payload)},
    }
    return encode_json(record)


def audit_sent(head: MbHeader, payload: bytes, peer: str, time_us: int, masked: bytes | None = None) -> bytes:
    """Encode the payload of the record of a message that the broker sent.

    `masked` is the requester's id, which `head.message_id` replaces on the way to the responder.
    """
    record = {
        "timestamp": iso_time(time_us),
        "to": peer,
        "message": {"header": _audit_header(head), "payload": _audit_payload(payload)},
    }
    if masked is not None:
        record["maskedId"] = as_text(masked)
    return encode_json(record)


def _audit_header(head: MbHeader) -> dict[str, Any]:
    # Names of members are those of MB's specification, not of our columns.
    header = {"action": as_text(head.action), "topic": as_text(head.topic), "version": as_text(head.version)}
    if head.message_id is not None:
        header["requestId"] = as_text(head.message_id)
    return header


def _audit_payload(payload: bytes) -> msgspec.Raw | str:
    """Return a JSON payload in compact form, any other payload as a string."""
    text = as_text(payload)
    # Compact: existing clients read the first line of a payload only.
    try:
        return msgspec.Raw(msgspec.json.format(text, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return text
