"""System topics of MB: what each request means, and each refusal with its code, text and details."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    PeerIntent,
    ReadMetrics,
    Register,
    Subscribe,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from raceway.wires.mb.codec.calls import is_system, read_call, subscribe_payload
from raceway.wires.mb.codec.header import MbHeader, MbRefused
from tests.rigs.vectors.mb import VECTORS, I, P

ID = I.encode()
SUBSCRIBE, UNSUBSCRIBE = "system.topic.subscribe", "system.topic.unsubscribe"


def call(topic: str, payload: Any = b"", action: bytes = b"request") -> PeerIntent | Done | MbRefused:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return read_call(MbHeader(action, topic.encode(), b"1.0.0", ID), body)


def refusal(topic: str, payload: Any = b"", action: bytes = b"request") -> tuple[str, str, Any]:
    found = call(topic, payload, action)
    assert isinstance(found, MbRefused), found
    assert found.head == MbHeader(action, topic.encode(), b"1.0.0", ID)
    return found.code, found.text, found.details


# ---- actions and topics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [b"system.log", b"System.Message", b"SYSTEM.x"])
def test_system_prefix_is_known_in_any_case(topic: bytes) -> None:
    assert is_system(topic)


@pytest.mark.parametrize("topic", [b"system", b"systems.a", b"a.system.b"])
def test_other_topics_are_ordinary(topic: bytes) -> None:
    assert not is_system(topic)


def test_publish_on_heartbeat_is_refused() -> None:
    text = "Invalid action, expected REQUEST or RESPONSE for system.heartbeat"
    details = {"action": "publish", "topic": "system.heartbeat"}
    assert refusal("system.heartbeat", action=b"publish") == ("INVALID_REQUEST", text, details)


@pytest.mark.parametrize("action", ["publish", "response"])
@pytest.mark.parametrize("topic", ["system.message", "System.Nonsense", "system.service.list"])
def test_system_topics_take_only_requests_before_anything_else_is_looked_at(topic: str, action: str) -> None:
    text = f"Invalid action, expected REQUEST for {topic}"
    expected = ("INVALID_REQUEST", text, {"action": action, "topic": topic})
    assert refusal(topic, b"{broken", action.encode()) == expected


@pytest.mark.parametrize("topic", ["system.initialize", "system.log", "system.message", "System.Nonsense"])
def test_unknown_system_topic_is_refused_in_its_own_spelling(topic: str) -> None:
    assert refusal(topic, b"{broken") == ("TOPIC_NOT_SUPPORTED", f"Unknown system message topic: {topic}", None)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("system.heartbeat", Heartbeat()),
        ("system.service.list", ListPeers()),
        ("system.topic.list", ListTopics()),
        ("system.topic.subscriptions", ListTopics()),
        ("System.Log.Unsubscribe", UnwatchLog()),
    ],
)
@pytest.mark.parametrize("payload", [b"", b"{}", b"{broken", b"error:{}", b"\xff"])
def test_topics_without_members_never_look_at_their_payload(topic: str, expected: PeerIntent, payload: bytes) -> None:
    assert call(topic, payload) == expected


# ---- payloads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"{", b"nope", b" ", b"{'a':1}", b"[" * 100_000, b"NaN", b'{"a":1}x'])
def test_payload_that_is_no_json_is_refused_and_shown(payload: bytes) -> None:
    expected = ("MALFORMED_MESSAGE", "Invalid JSON payload", {"payload": payload.decode()})
    assert refusal("system.service.register", payload) == expected


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b'"text"', b"5", b"true", b"{}", b'{"other":1}'])
def test_payload_without_members_counts_as_an_empty_object(payload: bytes) -> None:
    expected: tuple[str, str, Any] = ("INVALID_REQUEST", "Missing or invalid name or description", {})
    assert refusal("system.service.register", payload) == expected


def test_request_that_reports_an_error_is_refused_in_its_own_words() -> None:
    payload = b'error:{"code":"MINE","message":"my words","timestamp":"2026-11-15T06:28:13.214Z"}'
    assert refusal("system.metrics", payload) == ("MINE", "my words", None)


@pytest.mark.parametrize("error", [{"code": "MINE"}, {}, 5, {"code": 1, "message": "m", "timestamp": "t"}])
def test_incomplete_error_object_is_refused_and_shown(error: Any) -> None:
    expected = ("MALFORMED_MESSAGE", "Invalid error object in payload", {"error": error})
    assert refusal("system.metrics", b"error:" + json.dumps(error).encode()) == expected


def test_error_prefix_before_what_is_no_json_is_refused_as_such() -> None:
    expected = ("MALFORMED_MESSAGE", "Invalid JSON payload", {"payload": "error:oops"})
    assert refusal("system.metrics", b"error:oops") == expected


# ---- services -------------------------------------------------------------------------------------------------------


def test_register_takes_name_and_description() -> None:
    assert call("system.service.register", {"name": "n", "description": "d", "x": 1}) == Register("n", "d")
    longest = {"name": "n" * 36, "description": "d" * 1024}
    assert call("system.service.register", longest) == Register("n" * 36, "d" * 1024)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"name": "n"},
        {"description": "d"},
        {"name": "", "description": "d"},
        {"name": "n", "description": None},
        {"name": 5, "description": ["d"]},
    ],
)
def test_register_shows_the_two_members_as_given(members: dict[str, Any]) -> None:
    expected = ("INVALID_REQUEST", "Missing or invalid name or description", members)
    assert refusal("system.service.register", {**members, "other": 1}) == expected


def test_register_refuses_what_is_too_long() -> None:
    name, description = "n" * 37, "d" * 1025
    found = refusal("system.service.register", {"name": name, "description": description})
    assert found == ("INVALID_REQUEST", "Name of service is too long", {"name": name})
    found = refusal("system.service.register", {"name": "n", "description": description})
    assert found == ("INVALID_REQUEST", "Description of service is too long", {"description": description})


def test_subscriptions_of_a_service_are_by_default_ones_own() -> None:
    assert call("system.service.subscriptions") == ListSubscriptions(None)
    assert call("system.service.subscriptions", {"serviceId": P.upper()}) == ListSubscriptions(P)


@pytest.mark.parametrize("service", ["me", "", 5, None, P + "\n", [P]])
def test_service_id_that_is_no_uuid_is_refused(service: Any) -> None:
    found = refusal("system.service.subscriptions", {"serviceId": service})
    assert found == ("INVALID_REQUEST", "Invalid serviceId", {"serviceId": service})


# ---- subscriptions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", VECTORS["patterns_ok"])
def test_any_valid_pattern_can_be_subscribed_and_unsubscribed(pattern: str) -> None:
    members = {"action": "publish", "topic": pattern}
    assert call(SUBSCRIBE, members) == Subscribe("publish", pattern)
    assert call(UNSUBSCRIBE, members) == Unsubscribe("publish", pattern)


def test_patterns_are_listed_in_lower_case() -> None:
    assert call(SUBSCRIBE, {"action": "request", "topic": "Orders.#"}) == Subscribe("request", "orders.#")


@pytest.mark.parametrize("priority", [0, -1, 1.5, 10**20])
def test_priority_is_any_finite_number(priority: float) -> None:
    members = {"action": "request", "topic": "a", "priority": priority}
    assert call(SUBSCRIBE, members) == Subscribe("request", "a", priority)


@pytest.mark.parametrize("topic", [SUBSCRIBE, UNSUBSCRIBE])
@pytest.mark.parametrize("action", ["both", "", "Publish", None, 5, ["publish"], {}])
def test_unknown_action_is_refused_first(topic: str, action: Any) -> None:
    found = refusal(topic, {"action": action, "topic": 5, "priority": "x"})
    assert found == ("INVALID_REQUEST", "Missing or invalid action", {"action": action})
    assert refusal(SUBSCRIBE, {"topic": "a"}) == ("INVALID_REQUEST", "Missing or invalid action", {})


def test_all_is_both_and_so_is_no_action_of_an_unsubscribe() -> None:
    assert call(SUBSCRIBE, {"action": "all", "topic": "A.b", "priority": 2}) == Subscribe("all", "a.b", 2)
    assert call(UNSUBSCRIBE, {"action": "all", "topic": "a"}) == Unsubscribe("all", "a")
    assert call(UNSUBSCRIBE, {"topic": "a"}) == Unsubscribe("all", "a")
    assert refusal(UNSUBSCRIBE, {"topic": "a..b"}) == (
        "INVALID_REQUEST", "Missing or invalid topic", {"topic": "a..b"}
    )  # fmt: skip


@pytest.mark.parametrize("topic", [SUBSCRIBE, UNSUBSCRIBE])
@pytest.mark.parametrize("pattern", [*VECTORS["patterns_bad"], None, 5, ["a"]])
def test_invalid_pattern_is_refused_next(topic: str, pattern: Any) -> None:
    found = refusal(topic, {"action": "publish", "topic": pattern, "priority": "x"})
    assert found == ("INVALID_REQUEST", "Missing or invalid topic", {"topic": pattern})
    assert refusal(topic, {"action": "publish"}) == ("INVALID_REQUEST", "Missing or invalid topic", {})


@pytest.mark.parametrize("pattern", ["system.heartbeat", "System.Metrics", "system.nonsense"])
def test_restricted_topic_is_refused_before_the_priority_is_looked_at(pattern: str) -> None:
    found = refusal(SUBSCRIBE, {"action": "publish", "topic": pattern, "priority": "x"})
    assert found == ("INVALID_REQUEST", "Unable to subscribe to restricted topic", {"topic": pattern})


@pytest.mark.parametrize("priority", [None, "1", True, [], {}])
@pytest.mark.parametrize("action", ["publish", "request", "response"])
def test_priority_that_is_no_number_is_refused_for_every_action(action: str, priority: Any) -> None:
    found = refusal(SUBSCRIBE, {"action": action, "topic": "a", "priority": priority})
    assert found == ("INVALID_REQUEST", "Invalid priority", {"priority": priority})


@pytest.mark.parametrize(
    "pattern",
    [
        "system.log",
        "system.message",
        "system.service.register",
        "System.Topic.Subscribe",
        "system.topic.unsubscribe",
        "system.#",
        "system.+",
        "system.+.status",
    ],
)
def test_subscribable_system_topics_and_wildcards_are_taken(pattern: str) -> None:
    assert call(SUBSCRIBE, {"action": "publish", "topic": pattern}) == Subscribe("publish", pattern.lower())


@pytest.mark.parametrize("pattern", ["system.message", "system.log", "system.topic.unsubscribe", "System.Heartbeat"])
def test_most_system_topics_cannot_be_unsubscribed(pattern: str) -> None:
    found = refusal(UNSUBSCRIBE, {"action": "publish", "topic": pattern})
    assert found == ("INVALID_REQUEST", "Unable to unsubscribe from restricted topic", {"topic": pattern})


@pytest.mark.parametrize("pattern", ["system.service.register", "system.topic.subscribe", "system.#", "+.message"])
def test_other_system_patterns_can_be_unsubscribed(pattern: str) -> None:
    assert call(UNSUBSCRIBE, {"action": "request", "topic": pattern}) == Unsubscribe("request", pattern)


@pytest.mark.parametrize("topic", [SUBSCRIBE, UNSUBSCRIBE])
def test_action_response_passes_the_checks_and_fails(topic: str) -> None:
    assert call(topic, {"action": "response", "topic": "a"}) == Done(changed=False)


# ---- log and metrics ------------------------------------------------------------------------------------------------


def test_log_is_watched_for_errors_by_default() -> None:
    assert call("system.log.subscribe") == WatchLog(("error",), None)
    members = {"levels": ["debug", "warn"], "regex": "a+"}
    assert call("system.log.subscribe", members) == WatchLog(("debug", "warn"), "a+")
    assert call("system.log.subscribe", {"levels": []}) == WatchLog(())


@pytest.mark.parametrize("levels", ["error", None, 5, {}])
def test_levels_must_be_an_array(levels: Any) -> None:
    found = refusal("system.log.subscribe", {"levels": levels, "regex": 5})
    assert found == ("INVALID_REQUEST", "Invalid log levels", {"levels": levels})


@pytest.mark.parametrize("level", ["fatal", "ERROR", 5, None, ["error"]])
def test_unknown_level_is_named(level: Any) -> None:
    found = refusal("system.log.subscribe", {"levels": ["info", level, "nope"], "regex": 5})
    assert found == ("INVALID_REQUEST", "Invalid log level", {"level": level})


@pytest.mark.parametrize("regex", ["(", "(?=a)", 5, None, [], "a" * 257])
def test_regex_that_cannot_be_compiled_is_refused(regex: Any) -> None:
    found = refusal("system.log.subscribe", {"regex": regex})
    assert found == ("INVALID_REQUEST", "Invalid log regex", {"regex": regex})


def test_metrics_filter_is_optional_and_its_keys_have_no_case() -> None:
    assert call("system.metrics") == ReadMetrics(None)
    assert call("system.metrics", {"showAll": True}) == ReadMetrics(None)
    assert call("system.metrics", {"paramFilter": {}}) == ReadMetrics({})
    assert call("system.metrics", {"paramFilter": {"Core": "0", "x": 1}}) == ReadMetrics({"core": "0", "x": "1"})
    assert call("system.metrics", {"paramFilter": None}) == ReadMetrics(None)


# ---- the shorthand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "full"),
    [
        (b"", b'{"action":"publish","topic":"a.#"}'),
        (b"null", b'{"action":"publish","topic":"a.#"}'),
        (b'{"priority":2,"action":"request","topic":"x"}', b'{"action":"request","topic":"a.#","priority":2}'),
        (b"{broken", b"{broken"),
    ],
)
def test_subscribe_payload_is_completed_from_the_header(payload: bytes, full: bytes) -> None:
    assert subscribe_payload(b"a.#", payload) == full


TOPICS = ["system.service.register", SUBSCRIBE, UNSUBSCRIBE, "system.log.subscribe", "system.metrics",
          "system.service.subscriptions"]  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
member_names = st.sampled_from(
    ["name", "description", "action", "topic", "priority", "levels", "regex", "paramFilter", "serviceId", "showAll"]
)


@given(st.sampled_from(TOPICS), st.dictionaries(member_names, json_values) | json_values)
def test_no_json_upsets_a_call(topic: str, payload: Any) -> None:
    found = call(topic, payload)
    assert not isinstance(found, MbRefused) or found.code in ("INVALID_REQUEST", "MALFORMED_MESSAGE")
