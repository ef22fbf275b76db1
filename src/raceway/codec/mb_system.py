"""Answers to MB's system topics, and the log records that peers may ask for.

Bodies are compact JSON without a line feed, because existing clients keep only the first line of a payload. The order
of members is part of the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raceway.codec.mb_encode import SUCCESS, Frame, encode_json, iso_time, message
from raceway.codec.mb_header import Head, plain_number
from raceway.model.intents import (
    Asked,
    Done,
    Metric,
    Metrics,
    Outcome,
    PatternRow,
    Patterns,
    Peers,
    Sent,
    Subscriptions,
    Taken,
)

FAILURE = b'{"status":"failure"}'
LOG_HEADER = b"response:system.log:1.0.0"


def system_reply(head: Head, outcome: Outcome, frame: Frame, show_all: bool = False) -> bytes:
    """The answer to a call; `show_all` is the wish of a request for metrics."""
    message_id = head.message_id or b""
    header = b"response:%b:%b:%b:%b" % (head.topic, head.version, message_id, message_id)
    return message(header, _reply_body(head, outcome, show_all), frame)


def _reply_body(head: Head, outcome: Outcome, show_all: bool) -> bytes:
    match outcome:
        case Taken() | Asked() | Sent():
            raise AssertionError("only batches of messages are taken; a system topic never makes one")
        case Done():
            return SUCCESS if outcome.changed else FAILURE
        case Peers():
            return encode_json({"services": _services(outcome)})
        case Subscriptions():
            return encode_json({"subscriptions": _subscriptions(outcome)})
        case Patterns():
            name = "topics" if head.topic.lower() == b"system.topic.list" else "subscriptions"
            return encode_json({name: [_pattern(row) for row in outcome.rows]})
        case Metrics():
            timestamp = iso_time(outcome.time_us)
            return encode_json({"metrics": {row.name: _metric(row, timestamp, show_all) for row in outcome.rows}})


def _services(peers: Peers) -> list[dict[str, str]]:
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


def _subscriptions(subscriptions: Subscriptions) -> list[dict[str, Any]]:
    return [
        {"action": row.kind, "topic": row.pattern} | _priority(row.kind, row.priority) for row in subscriptions.rows
    ]


def _pattern(row: PatternRow) -> dict[str, Any]:
    subscribers = [
        {"serviceId": subscriber.peer} | _priority(row.kind, subscriber.priority) for subscriber in row.subscribers
    ]
    return {"action": row.kind, "topic": row.pattern, "subscribers": subscribers}


def _priority(kind: str, priority: float) -> dict[str, float]:
    """Priorities mean something for requests only, and are shown there only."""
    return {"priority": plain_number(priority)} if kind == "request" else {}


def _metric(metric: Metric, timestamp: str, show_all: bool) -> Any:
    value = plain_number(metric.value)
    if not show_all:
        return value
    return {"name": metric.name, "type": metric.type, "timestamp": timestamp, "value": value}


def log_record(level: str, text: str, time_us: int, extra: Mapping[str, Any], frame: Frame) -> bytes:
    """A log record for who asked for it: `module` and whatever else there is first, then the three fixed members."""
    body = {**extra, "level": level, "message": text, "timestamp": iso_time(time_us)}
    return message(LOG_HEADER, encode_json(body), frame)
