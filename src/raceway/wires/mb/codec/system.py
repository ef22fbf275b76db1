"""Encoders of answers to MB's system topics, and of the log records that peers may subscribe to.

Payloads are compact JSON without a line feed, because existing clients keep only the first line of a payload. The order
of members is part of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raceway.model.envelope import encode_json
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Metric, Metrics, PatternRow, Patterns, PeerOutcome, Peers, SubscriptionList
from raceway.wires.mb.codec.encode import SUCCESS, FrameMaker, iso_time, message
from raceway.wires.mb.codec.header import MbHeader, plain_number

# The call was valid but had no effect, for example an unsubscribe without a subscription.
FAILURE = b'{"status":"failure"}'
# A response without a request: the specification's form of log records.
LOG_HEADER = b"response:system.log:1.0.0"


def system_reply(head: MbHeader, outcome: PeerOutcome, frame: FrameMaker, show_all: bool = False) -> bytes:
    """Encode the answer to a call; `show_all` is the option of a request for metrics."""
    # The id is sent as request id and as parent, as in all answers (`encode.answer`).
    message_id = head.message_id or b""
    header = b"response:%b:%b:%b:%b" % (head.topic, head.version, message_id, message_id)
    return message(header, _reply_body(head, outcome, show_all), frame)


def _reply_body(head: MbHeader, outcome: PeerOutcome, show_all: bool) -> bytes:
    match outcome:
        case Done():
            return SUCCESS if outcome.changed else FAILURE
        case Peers():
            return encode_json({"services": _services(outcome)})
        case SubscriptionList():
            rows = [
                {"action": row.kind, "topic": row.pattern} | _priority(row.kind, row.priority) for row in outcome.rows
            ]
            return encode_json({"subscriptions": rows})
        case Patterns():
            # Two calls with the same content under different member names.
            name = "topics" if head.topic.lower() == b"system.topic.list" else "subscriptions"
            return encode_json({name: [_pattern(row) for row in outcome.rows]})
        case Metrics():
            timestamp = iso_time(outcome.time_us)
            return encode_json({"metrics": {row.name: _metric(row, timestamp, show_all) for row in outcome.rows}})


def _services(peers: Peers) -> list[dict[str, str]]:
    # Times have the format of JavaScript's `toISOString`, as everywhere on this wire.
    return [
        {
            "id": row.id,
            "name": row.name,
            "description": row.description,
            "connectedAt": iso_time(row.connected_us),
            "lastHeartbeat": iso_time(row.heard_us),
        }
        for row in peers.rows
    ]


def _pattern(row: PatternRow) -> dict[str, Any]:
    subscribers = [
        {"serviceId": subscriber.peer} | _priority(row.kind, subscriber.priority) for subscriber in row.subscribers
    ]
    return {"action": row.kind, "topic": row.pattern, "subscribers": subscribers}


def _priority(kind: str, priority: float) -> dict[str, float]:
    """Return the member `priority` for a subscription to requests; publishes have none."""
    return {"priority": plain_number(priority)} if kind == "request" else {}


def _metric(metric: Metric, timestamp: str, show_all: bool) -> Any:
    value = plain_number(metric.value)
    # The bare value is the default of the specification; `showAll` asks for the record.
    if not show_all:
        return value
    return {"name": metric.name, "type": metric.type, "timestamp": timestamp, "value": value}


def log_record(level: str, text: str, time_us: int, extra: Mapping[str, Any], frame: FrameMaker) -> bytes:
    """Encode a log record for a subscriber: `module` and other fields first, then the three fixed members."""
    # The fixed members come last so that a field of the same name cannot replace them.
    body = {**extra, "level": level, "message": text, "timestamp": iso_time(time_us)}
    return message(LOG_HEADER, encode_json(body), frame)
