"""Requests to MB's system topics, decoded into calls to the broker.

Every message under `system.` (in any letter case) is such a call. Checks run in this order: action, topic, JSON,
members. Codes, texts and details of refusals are the specification's, letter for letter: existing clients show and
compare them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import msgspec
import re2

from raceway.errors import PeerError
from raceway.model.envelope import encode_json
from raceway.model.intents import peers
from raceway.model.intents.kinds import Done
from raceway.model.topics import has_wildcard
from raceway.wires.mb.codec.header import MALFORMED_MESSAGE, REQUEST, RESPONSE, MbHeader, MbRefused, as_text, is_uuid
from raceway.wires.mb.codec.topics import is_mb_pattern

SYSTEM = "system."
HEARTBEAT = "system.heartbeat"
INVALID_REQUEST = "INVALID_REQUEST"

# The specification's limits, in characters.
MAX_SERVICE_NAME, MAX_DESCRIPTION = 36, 1024
# A peer's regular expression is compiled by RE2, which matches in linear time; this bounds its memory.
MAX_REGEX = 256
LOG_LEVELS = ("debug", "info", "warn", "error")

# System topics that accept subscriptions; only `system.message` delivers messages by itself.
SUBSCRIBABLE = (
    "system.log", "system.message", "system.service.register", "system.topic.subscribe", "system.topic.unsubscribe",
)  # fmt: skip
UNSUBSCRIBABLE = ("system.service.register", "system.topic.subscribe")

JsonMembers = dict[str, Any]


class _CallError(PeerError):
    def __init__(self, mb_code: str, text: str, details: Any = None) -> None:
        super().__init__(text)
        self.mb_code, self.text, self.details = mb_code, text, details


def is_system(topic: bytes) -> bool:
    """Return whether a topic belongs to the broker."""
    return topic[:7].lower() == b"system."


def read_call(head: MbHeader, payload: bytes) -> peers.PeerIntent | Done | MbRefused:
    """Decode a call to the broker. Return `Done` if the broker need not be asked, `MbRefused` if it is invalid."""
    try:
        return _read_call(head, payload)
    except _CallError as error:
        return MbRefused(error.mb_code, error.text, error.details, head)


def subscribe_payload(pattern: bytes, payload: bytes) -> bytes:
    """Return the payload of the request that `subscribe:{pattern}` is short for: the pattern is from the header.

    A payload that is not JSON is returned unchanged, so that the request is refused because of it.
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
    """Return whether a request for metrics asks for more than the values."""
    return bool(_read_members(payload).get("showAll"))


def _read_call(head: MbHeader, payload: bytes) -> peers.PeerIntent | Done:
    sent = as_text(head.topic)
    topic = sent.lower()
    _check_action(head, topic, sent)
    if topic in _WITHOUT_MEMBERS:
        return _WITHOUT_MEMBERS[topic]
    # Before the payload: an unknown topic is reported as such even if the JSON is broken.
    if topic not in _READERS:
        raise _CallError("TOPIC_NOT_SUPPORTED", f"Unknown system message topic: {sent}")
    return _READERS[topic](_read_members(payload))


def _check_action(head: MbHeader, topic: str, sent: str) -> None:
    # Only the broker's heartbeat requests are answered by clients; all other calls are requests of clients.
    if head.action == REQUEST or (head.action == RESPONSE and topic == HEARTBEAT):
        return
    expected = "REQUEST or RESPONSE" if topic == HEARTBEAT else "REQUEST"
    details = {"action": as_text(head.action), "topic": sent}
    raise _CallError(INVALID_REQUEST, f"Invalid action, expected {expected} for {sent}", details)


def _read_members(payload: bytes) -> JsonMembers:
    """Return the members of the payload; none if it is empty, or JSON other than an object. Raises _CallError."""
    if not payload:
        return {}
    text = as_text(payload)
    # The second spelling of a failure (see `model.failure`), which makes no sense in a request.
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
    """Refuse a request whose payload is an error object, with the code and the text of that object."""
    error = _read_json(text.removeprefix("error:"), text)
    complete = isinstance(error, dict) and all(isinstance(error.get(k), str) for k in ("code", "message", "timestamp"))
    if complete:
        raise _CallError(error["code"], error["message"])
    raise _CallError(MALFORMED_MESSAGE, "Invalid error object in payload", {"error": error})


def _invalid(text: str, members: JsonMembers, *names: str) -> _CallError:
    """Return the error for invalid members; `names` are shown in its details if they are present."""
    return _CallError(INVALID_REQUEST, text, {name: members[name] for name in names if name in members})


def _read_register(members: JsonMembers) -> peers.Register:
    name, description = members.get("name"), members.get("description")
    if not (isinstance(name, str) and name and isinstance(description, str) and description):
        raise _invalid("Missing or invalid name or description", members, "name", "description")
    if len(name) > MAX_SERVICE_NAME:
        raise _invalid("Name of service is too long", members, "name")
    if len(description) > MAX_DESCRIPTION:
        raise _invalid("Description of service is too long", members, "description")
    return peers.Register(name, description)


def _read_list_subscriptions(members: JsonMembers) -> peers.ListSubscriptions:
    if "serviceId" not in members:
        return peers.ListSubscriptions()
    peer = members["serviceId"]
    if not (isinstance(peer, str) and is_uuid(peer)):
        raise _invalid("Invalid serviceId", members, "serviceId")
    return peers.ListSubscriptions(peer.lower())  # ids of peers are in lower case


def _read_subscribe(members: JsonMembers) -> peers.Subscribe | Done:
    kind, pattern = _read_subscription(members)
    topic = pattern.lower()
    # A wildcard may be used under `system.`: of the topics it matches only `system.message` delivers anything.
    if topic.startswith(SYSTEM) and topic not in SUBSCRIBABLE and not has_wildcard(topic):
        raise _invalid("Unable to subscribe to restricted topic", members, "topic")
    priority = members.get("priority", 0)
    # `bool` is a subclass of `int` in Python, but `true` is no number in JSON.
    if isinstance(priority, bool) or not isinstance(priority, int | float) or not math.isfinite(priority):
        raise _invalid("Invalid priority", members, "priority")
    return peers.Subscribe(kind, topic, priority) if kind else Done(changed=False)


def _read_unsubscribe(members: JsonMembers) -> peers.Unsubscribe | Done:
    """Decode an unsubscribe call."""
    # No action means all: `unsubscribe(topic)` of mb-client-js sends none.
    kind, pattern = _read_subscription({"action": "all", **members})
    topic = pattern.lower()
    if topic.startswith(SYSTEM) and topic not in UNSUBSCRIBABLE and not has_wildcard(topic):
        raise _invalid("Unable to unsubscribe from restricted topic", members, "topic")
    return peers.Unsubscribe(kind, topic) if kind else Done(changed=False)


_KINDS: dict[str, peers.SubscriptionKind | Literal["all"] | None] = {
    "publish": "publish", "request": "request", "all": "all", "response": None
}  # fmt: skip


def _read_subscription(members: JsonMembers) -> tuple[peers.SubscriptionKind | Literal["all"] | None, str]:
    """Return kind and pattern of a subscription; the kind is None for the action `response`."""
    # `all`, an action of mb-client-js, means publishes and requests. `response` is accepted and has no effect.
    action, topic = members.get("action"), members.get("topic")
    if not isinstance(action, str) or action not in _KINDS:
        raise _invalid("Missing or invalid action", members, "action")
    if not isinstance(topic, str) or not is_mb_pattern(topic):
        raise _invalid("Missing or invalid topic", members, "topic")
    return _KINDS[action], topic


def _read_watch_log(members: JsonMembers) -> peers.WatchLog:
    levels, regex = members.get("levels", ["error"]), members.get("regex")
    if not isinstance(levels, list):
        raise _invalid("Invalid log levels", members, "levels")
    for level in levels:
        if not isinstance(level, str) or level not in LOG_LEVELS:
            raise _CallError(INVALID_REQUEST, "Invalid log level", {"level": level})
    if "regex" in members and not (isinstance(regex, str) and _is_regex(regex)):
        raise _invalid("Invalid log regex", members, "regex")
    return peers.WatchLog(tuple(levels), regex)


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


def _read_metrics(members: JsonMembers) -> peers.ReadMetrics:
    wanted = members.get("paramFilter")
    if not isinstance(wanted, dict):
        return peers.ReadMetrics()
    # Parameter names are in lower case; a value that is not a string is compared by its JSON text.
    texts = {k.lower(): v if isinstance(v, str) else encode_json(v).decode() for k, v in wanted.items()}
    return peers.ReadMetrics(texts)


# Calls without parameters: their payload is not read, so even broken JSON is accepted.
_WITHOUT_MEMBERS: dict[str, peers.PeerIntent] = {
    HEARTBEAT: peers.Heartbeat(),
    "system.service.list": peers.ListPeers(),
    "system.topic.list": peers.ListTopics(),
    "system.topic.subscriptions": peers.ListTopics(),
    "system.log.unsubscribe": peers.UnwatchLog(),
}
_READERS: dict[str, Callable[[JsonMembers], peers.PeerIntent | Done]] = {
    "system.service.register": _read_register,
    "system.service.subscriptions": _read_list_subscriptions,
    "system.topic.subscribe": _read_subscribe,
    "system.topic.unsubscribe": _read_unsubscribe,
    "system.log.subscribe": _read_watch_log,
    "system.metrics": _read_metrics,
}
