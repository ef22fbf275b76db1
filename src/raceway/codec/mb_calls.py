"""Requests to MB's system topics, read into calls to the broker.

Everything under `system.` (in any letter case) is such a call. Reading one goes: is the action allowed, is the topic
known, is the payload JSON, are its members right. Codes, texts and details of refusals are the specification's, letter
for letter: existing clients show and compare them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import msgspec
import re2

from raceway.codec.mb_encode import encode_json
from raceway.codec.mb_header import MALFORMED_MESSAGE, REQUEST, RESPONSE, Head, Refused, as_text, is_uuid
from raceway.errors import PeerError
from raceway.model.intents import (
    Call,
    Done,
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    ReadMetrics,
    Register,
    Subscribe,
    SubscriptionKind,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from raceway.model.topics import has_wildcard, is_mb_pattern

SYSTEM = "system."
HEARTBEAT = "system.heartbeat"
INVALID_REQUEST = "INVALID_REQUEST"

MAX_SERVICE_NAME, MAX_DESCRIPTION = 36, 1024
# A regular expression of a peer is compiled by RE2, which takes linear time; this bounds what it may cost in memory.
MAX_REGEX = 256
LOG_LEVELS = ("debug", "info", "warn", "error")

# System topics one may subscribe to; only `system.message` delivers anything by itself.
SUBSCRIBABLE = (
    "system.log", "system.message", "system.service.register", "system.topic.subscribe", "system.topic.unsubscribe",
)  # fmt: skip
UNSUBSCRIBABLE = ("system.service.register", "system.topic.subscribe")

Members = dict[str, Any]


class _CallError(PeerError):
    def __init__(self, mb_code: str, text: str, details: Any = None) -> None:
        super().__init__(text)
        self.mb_code, self.text, self.details = mb_code, text, details


def is_system(topic: bytes) -> bool:
    return topic[:7].lower() == b"system."


def read_call(head: Head, payload: bytes) -> Call | Done | Refused:
    """What the peer wants of the broker. `Done`: nothing needs to be asked, that is the answer already."""
    try:
        return _read_call(head, payload)
    except _CallError as error:
        return Refused(error.mb_code, error.text, error.details, head)


def subscribe_payload(pattern: bytes, payload: bytes) -> bytes:
    """Payload of the request that `subscribe:{pattern}` is short for: the pattern from the header, the rest as sent.

    A payload that cannot be read is left as it is, so that the request is refused for it.
    """
    try:
        members = _read_members(payload)
    except _CallError:
        return payload
    full = {"action": members.get("action", "publish"), "topic": as_text(pattern)}
    if "priority" in members:
        full["priority"] = members["priority"]
    return encode_json(full)


def read_show_all(payload: bytes) -> bool:
    """Does a request for metrics want more than the bare values?"""
    return bool(_read_members(payload).get("showAll"))


def _read_call(head: Head, payload: bytes) -> Call | Done:
    sent = as_text(head.topic)
    topic = sent.lower()
    _check_action(head, topic, sent)
    if topic in _WITHOUT_MEMBERS:
        return _WITHOUT_MEMBERS[topic]
    if topic not in _READERS:
        raise _CallError("TOPIC_NOT_SUPPORTED", f"Unknown system message topic: {sent}")
    return _READERS[topic](_read_members(payload))


def _check_action(head: Head, topic: str, sent: str) -> None:
    if head.action == REQUEST or (head.action == RESPONSE and topic == HEARTBEAT):
        return
    expected = "REQUEST or RESPONSE" if topic == HEARTBEAT else "REQUEST"
    details = {"action": as_text(head.action), "topic": sent}
    raise _CallError(INVALID_REQUEST, f"Invalid action, expected {expected} for {sent}", details)


def _read_members(payload: bytes) -> Members:
    """Members of the payload. Empty and `null` count as `{}`; what is JSON but no object has no members."""
    if not payload:
        return {}
    text = as_text(payload)
    if text.startswith("error:"):
        _refuse_error_payload(text)
    value = _read_json(text, text)
    return value if isinstance(value, dict) else {}


def _read_json(text: str, whole: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise _CallError(MALFORMED_MESSAGE, "Invalid JSON payload", {"payload": whole}) from None


def _refuse_error_payload(text: str) -> NoReturn:
    """A request that reports a failure instead of asking: refused in its own words."""
    error = _read_json(text.removeprefix("error:"), text)
    complete = isinstance(error, dict) and all(isinstance(error.get(k), str) for k in ("code", "message", "timestamp"))
    if complete:
        raise _CallError(error["code"], error["message"])
    raise _CallError(MALFORMED_MESSAGE, "Invalid error object in payload", {"error": error})


def _invalid(text: str, members: Members, *names: str) -> _CallError:
    """A member that was missing is missing from the details too."""
    return _CallError(INVALID_REQUEST, text, {name: members[name] for name in names if name in members})


def _read_register(members: Members) -> Register:
    name, description = members.get("name"), members.get("description")
    if not (isinstance(name, str) and name and isinstance(description, str) and description):
        raise _invalid("Missing or invalid name or description", members, "name", "description")
    if len(name) > MAX_SERVICE_NAME:
        raise _invalid("Name of service is too long", members, "name")
    if len(description) > MAX_DESCRIPTION:
        raise _invalid("Description of service is too long", members, "description")
    return Register(name, description)


def _read_list_subscriptions(members: Members) -> ListSubscriptions:
    if "serviceId" not in members:
        return ListSubscriptions()
    peer = members["serviceId"]
    if not (isinstance(peer, str) and is_uuid(peer)):
        raise _invalid("Invalid serviceId", members, "serviceId")
    return ListSubscriptions(peer.lower())


def _read_subscribe(members: Members) -> Subscribe | Done:
    kind, pattern = _read_subscription(members)
    topic = pattern.lower()
    if topic.startswith(SYSTEM) and topic not in SUBSCRIBABLE and not has_wildcard(topic):
        raise _invalid("Unable to subscribe to restricted topic", members, "topic")
    priority = members.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int | float) or not math.isfinite(priority):
        raise _invalid("Invalid priority", members, "priority")
    return Subscribe(kind, topic, priority) if kind else Done(changed=False)


def _read_unsubscribe(members: Members) -> Unsubscribe | Done:
    """Without an action whatever there is of that pattern ends, as mb-client-js means it by `unsubscribe(topic)`."""
    kind, pattern = _read_subscription({"action": "all", **members})
    topic = pattern.lower()
    if topic.startswith(SYSTEM) and topic not in UNSUBSCRIBABLE and not has_wildcard(topic):
        raise _invalid("Unable to unsubscribe from restricted topic", members, "topic")
    return Unsubscribe(kind, topic) if kind else Done(changed=False)


_KINDS: dict[str, SubscriptionKind | Literal["all"] | None] = {
    "publish": "publish", "request": "request", "all": "all", "response": None
}  # fmt: skip


def _read_subscription(members: Members) -> tuple[SubscriptionKind | Literal["all"] | None, str]:
    """Kind and pattern. `all` is mb-client-js's word for publishes and requests. `response` is admitted but never
    subscribed to: None."""
    action, topic = members.get("action"), members.get("topic")
    if not isinstance(action, str) or action not in _KINDS:
        raise _invalid("Missing or invalid action", members, "action")
    if not isinstance(topic, str) or not is_mb_pattern(topic):
        raise _invalid("Missing or invalid topic", members, "topic")
    return _KINDS[action], topic


def _read_watch_log(members: Members) -> WatchLog:
    levels, regex = members.get("levels", ["error"]), members.get("regex")
    if not isinstance(levels, list):
        raise _invalid("Invalid log levels", members, "levels")
    for level in levels:
        if not isinstance(level, str) or level not in LOG_LEVELS:
            raise _CallError(INVALID_REQUEST, "Invalid log level", {"level": level})
    if "regex" in members and not (isinstance(regex, str) and _is_regex(regex)):
        raise _invalid("Invalid log regex", members, "regex")
    return WatchLog(tuple(levels), regex)


def _is_regex(text: str) -> bool:
    if len(text) > MAX_REGEX:
        return False
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(text, options)
    except re2.error:
        return False
    return True


def _read_metrics(members: Members) -> ReadMetrics:
    wanted = members.get("paramFilter")
    if not isinstance(wanted, dict):
        return ReadMetrics()
    # Parameter names are lower case; a value that is no string is compared by its JSON text.
    return ReadMetrics({k.lower(): v if isinstance(v, str) else encode_json(v).decode() for k, v in wanted.items()})


# These never look at their payload, so even broken JSON is fine there.
_WITHOUT_MEMBERS: dict[str, Call] = {
    HEARTBEAT: Heartbeat(),
    "system.service.list": ListPeers(),
    "system.topic.list": ListTopics(),
    "system.topic.subscriptions": ListTopics(),
    "system.log.unsubscribe": UnwatchLog(),
}
_READERS: dict[str, Callable[[Members], Call | Done]] = {
    "system.service.register": _read_register,
    "system.service.subscriptions": _read_list_subscriptions,
    "system.topic.subscribe": _read_subscribe,
    "system.topic.unsubscribe": _read_unsubscribe,
    "system.log.subscribe": _read_watch_log,
    "system.metrics": _read_metrics,
}
