"""MB system topics: registering, subscribing and listing, with every refusal in its exact words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rigs.mb_wire import (
    FAILURE,
    SUCCESS,
    TIMESTAMP,
    UUID4,
    Join,
    Peer,
    assert_error,
    fresh_topic,
    new_id,
    reply_header,
)
from tests.rigs.vectors.mb import I, P

REQUEST_ONLY = [
    "system.service.register",
    "system.service.list",
    "system.service.subscriptions",
    "system.topic.subscribe",
    "system.topic.unsubscribe",
    "system.topic.list",
    "system.topic.subscriptions",
    "system.log.subscribe",
    "system.log.unsubscribe",
    "system.metrics",
    "system.initialize",
    "system.log",
    "system.message",
    "system.nothing.of.the.kind",
]
READS_PAYLOAD = [
    "system.service.register",
    "system.service.subscriptions",
    "system.topic.subscribe",
    "system.topic.unsubscribe",
    "system.log.subscribe",
    "system.metrics",
]
IGNORES_PAYLOAD = [
    "system.service.list",
    "system.topic.list",
    "system.topic.subscriptions",
    "system.log.unsubscribe",
    "system.heartbeat",
]
SUBSCRIBABLE = [
    "system.log",
    "system.message",
    "system.service.register",
    "system.topic.subscribe",
    "system.topic.unsubscribe",
]


def subscriptions(peer: Peer, service_id: str | None = None) -> list[dict[str, Any]]:
    body = {"serviceId": service_id} if service_id else {}
    rows: list[dict[str, Any]] = peer.ask("system.service.subscriptions", body).json()["subscriptions"]
    return rows


# ---- any system topic ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", REQUEST_ONLY)
@pytest.mark.parametrize("action", ["publish", "response"])
def test_system_topics_take_requests_only(peer: Peer, action: str, topic: str) -> None:
    peer.send(f"{action}:{topic}:1.0.0:{I}", b"not even json")
    reply = peer.receive()
    assert reply.header == reply_header(topic, I)
    text = f"Invalid action, expected REQUEST for {topic}"
    assert_error(reply, "INVALID_REQUEST", text, {"action": action, "topic": topic})


def test_a_heartbeat_cannot_be_published(peer: Peer) -> None:
    peer.send(f"publish:system.heartbeat:1.0.0:{I}")
    text = "Invalid action, expected REQUEST or RESPONSE for system.heartbeat"
    assert_error(peer.receive(), "INVALID_REQUEST", text, {"action": "publish", "topic": "system.heartbeat"})


@pytest.mark.parametrize(
    "topic", ["system.initialize", "system.log", "system.message", "system.x", "system.heartbeat.x"]
)
def test_unknown_system_topics_are_not_supported(peer: Peer, topic: str) -> None:
    assert_error(peer.ask(topic), "TOPIC_NOT_SUPPORTED", f"Unknown system message topic: {topic}")


def test_the_prefix_is_compared_without_regard_to_case(peer: Peer) -> None:
    reply = peer.ask("System.HeartBeat", message_id=I)
    assert reply == (reply_header("System.HeartBeat", I), SUCCESS)
    body = {"action": "publish", "topic": "System.Metrics"}
    reply = peer.ask("SYSTEM.topic.Subscribe", body)
    assert_error(reply, "INVALID_REQUEST", "Unable to subscribe to restricted topic", {"topic": "System.Metrics"})
    peer.send(f"publish:System.Message:1.0.0:{I}", b"forged audit record")
    assert peer.receive().json()["error"]["code"] == "INVALID_REQUEST"


def test_a_reply_repeats_topic_version_and_id(peer: Peer) -> None:
    peer.send(f"request:system.topic.list:9.8.7:{I.upper()}:{P}:100")
    assert peer.receive().header == reply_header("system.topic.list", I.upper(), "9.8.7")


def test_a_heartbeat_request_is_answered_and_a_heartbeat_response_is_not(peer: Peer) -> None:
    assert peer.ask("system.heartbeat", b"ignored", message_id=I) == (reply_header("system.heartbeat", I), SUCCESS)
    for header in ("response:system.heartbeat:1.0.0", f"response:system.heartbeat:1.0.0:{new_id()}"):
        peer.send(header, b"ignored")
    assert peer.settled() == []


@pytest.mark.parametrize("topic", READS_PAYLOAD)
@pytest.mark.parametrize("payload", ["{", "not json", '{"a":1}x', "{'a':1}", "\n{,}"])
def test_a_payload_that_must_be_json_and_is_not(peer: Peer, topic: str, payload: str) -> None:
    reply = peer.ask(topic, payload, message_id=I)
    assert reply.header == reply_header(topic, I)
    assert_error(reply, "MALFORMED_MESSAGE", "Invalid JSON payload", {"payload": payload})


@pytest.mark.parametrize("topic", IGNORES_PAYLOAD)
@pytest.mark.parametrize("payload", ["{", "", "null", "[]"])
def test_a_payload_that_nobody_looks_at_may_be_anything(peer: Peer, topic: str, payload: str) -> None:
    assert "error" not in peer.ask(topic, payload).json()


@pytest.mark.parametrize("payload", ["", "null", "{}", "[]", '["action"]', '"text"', '{"unknown":1}'])
def test_nothing_counts_as_an_empty_object(peer: Peer, payload: str) -> None:
    """Arrays and strings have no members either."""
    reply = peer.ask("system.topic.subscribe", payload)
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid action", {})
    reply = peer.ask("system.service.register", payload)
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid name or description", {})
    assert peer.ask("system.service.subscriptions", payload).json() == {"subscriptions": []}
    assert "process.uptime" in peer.ask("system.metrics", payload).json()["metrics"]
    assert peer.ask("system.log.subscribe", payload).payload == SUCCESS
    peer.ask("system.log.unsubscribe")


def test_unknown_members_are_ignored(peer: Peer) -> None:
    body = {"action": "publish", "topic": fresh_topic(), "colour": "red", "priority": 1}
    assert peer.ask("system.topic.subscribe", body).payload == SUCCESS


def test_a_json_payload_may_have_blanks_and_lines_around_it(peer: Peer) -> None:
    payload = f'\n {{ "action" : "publish",\r\n\t"topic":"{fresh_topic()}"}} \n'
    assert peer.ask("system.topic.subscribe", payload).payload == SUCCESS


def test_an_error_object_in_place_of_a_payload_is_refused_with_its_own_words(peer: Peer) -> None:
    payload = 'error:{"code":"MY_CODE","message":"my words","timestamp":"2026-01-01T00:00:00.000Z"}'
    error = peer.ask("system.topic.subscribe", payload).json()["error"]
    assert (error["code"], error["message"]) == ("MY_CODE", "my words")


@pytest.mark.parametrize("text", ['{"code":"MY_CODE"}', '{"message":"m","timestamp":"t"}', "{}"])
def test_an_incomplete_error_object_is_malformed(peer: Peer, text: str) -> None:
    reply = peer.ask("system.topic.subscribe", f"error:{text}")
    assert_error(reply, "MALFORMED_MESSAGE", "Invalid error object in payload", {"error": json.loads(text)})


def test_deeply_nested_json_is_refused_or_read_but_never_fatal(peer: Peer) -> None:
    for payload in ("[" * 16_000, "[" * 8_000 + "]" * 8_000, '{"a":' * 2_000 + "1" + "}" * 2_000, '{"a":1e999}'):
        assert "error" in peer.ask("system.topic.subscribe", payload).json()
    assert peer.settled() == []


# ---- system.service.register, list, subscriptions --------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"name": "n"},
        {"description": "d"},
        {"name": "", "description": "d"},
        {"name": "n", "description": ""},
        {"name": 5, "description": "d"},
        {"name": "n", "description": None},
        {"name": ["n"], "description": {"d": 1}},
    ],
)
def test_registering_needs_a_name_and_a_description(peer: Peer, body: dict[str, Any]) -> None:
    reply = peer.ask("system.service.register", body)
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid name or description", body)


def test_names_and_descriptions_have_a_longest_length(peer: Peer) -> None:
    name, description = "n" * 37, "d" * 1025
    reply = peer.ask("system.service.register", {"name": name, "description": "d"})
    assert_error(reply, "INVALID_REQUEST", "Name of service is too long", {"name": name})
    reply = peer.ask("system.service.register", {"name": "n", "description": description})
    assert_error(reply, "INVALID_REQUEST", "Description of service is too long", {"description": description})
    body = {"name": name[1:], "description": description[1:]}
    assert peer.ask("system.service.register", body).payload == SUCCESS


def test_registering_may_be_repeated_and_names_need_not_be_unique(join: Join) -> None:
    """Nothing enforces unique names."""
    first, second = join(), join()
    name = new_id()
    for peer, text in ((first, "one"), (second, "two"), (first, "three")):
        assert peer.ask("system.service.register", {"name": name, "description": text}).payload == SUCCESS
    rows = first.ask("system.service.list").json()["services"]
    assert [row["description"] for row in rows if row["name"] == name] == ["three", "two"]


def test_services_are_listed_in_order_of_connection(join: Join) -> None:
    """No `status` beside the rows."""
    peers = [join() for _ in range(5)]
    names = [new_id() for _ in peers]
    for peer, name in reversed(list(zip(peers, names, strict=True))):
        assert peer.ask("system.service.register", {"name": name, "description": "d"}).payload == SUCCESS
    body = peers[0].ask("system.service.list").json()
    assert list(body) == ["services"]
    assert [row["name"] for row in body["services"] if row["name"] in names] == names
    for row in body["services"]:
        assert list(row) == ["id", "name", "description", "connectedAt", "lastHeartbeat"]
        assert UUID4.fullmatch(row["id"])
        assert TIMESTAMP.fullmatch(row["connectedAt"])
        assert TIMESTAMP.fullmatch(row["lastHeartbeat"])
        assert row["connectedAt"] <= row["lastHeartbeat"]


def test_a_service_that_never_registered_is_listed_without_a_name(join: Join) -> None:
    watcher, silent = join(), join()
    topic = fresh_topic()
    silent.subscribe(topic)
    rows = watcher.ask("system.topic.list").json()["topics"]
    (row,) = [row for row in rows if row["topic"] == topic]
    service_id = row["subscribers"][0]["serviceId"]
    (service,) = [s for s in watcher.ask("system.service.list").json()["services"] if s["id"] == service_id]
    assert (service["name"], service["description"]) == ("", "")


def test_subscriptions_are_sorted_by_topic_then_action(peer: Peer) -> None:
    for action, topic, priority in [
        ("request", "b.b", 2.5),
        ("publish", "B.B", 9),
        ("publish", "a.#", None),
        ("request", "a.+", None),
        ("request", "a.a", -1),
    ]:
        peer.subscribe(topic, action, priority)
    assert subscriptions(peer) == [
        {"action": "publish", "topic": "a.#"},
        {"action": "request", "topic": "a.+", "priority": 0},
        {"action": "request", "topic": "a.a", "priority": -1},
        {"action": "publish", "topic": "b.b"},
        {"action": "request", "topic": "b.b", "priority": 2.5},
    ]


def test_one_service_can_ask_for_anothers_subscriptions(join: Join) -> None:
    watcher, watched = join(), join()
    topic = fresh_topic()
    watched.subscribe(topic, "request", 3)
    service_id = watched.service_id()
    expected = [{"action": "request", "topic": topic, "priority": 3}]
    assert subscriptions(watcher, service_id) == subscriptions(watched) == expected
    assert subscriptions(watcher) == []


@pytest.mark.parametrize("service_id", ["", "abc", 5, ["x"], I + "0", f"{{{I}}}"])
def test_a_service_id_must_be_a_uuid(peer: Peer, service_id: Any) -> None:
    reply = peer.ask("system.service.subscriptions", {"serviceId": service_id})
    assert_error(reply, "INVALID_REQUEST", "Invalid serviceId", {"serviceId": service_id})


def test_an_unknown_service_is_unavailable(peer: Peer) -> None:
    unknown = new_id()
    reply = peer.ask("system.service.subscriptions", {"serviceId": unknown})
    assert_error(reply, "SERVICE_UNAVAILABLE", f"Service {unknown} not found")


# ---- system.topic.subscribe ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["system.topic.subscribe", "system.topic.unsubscribe"])
@pytest.mark.parametrize("action", ["both", "Publish", "REQUEST", "", "subscribe", 1, None, ["publish"], True])
def test_an_action_must_be_one_of_four_words(peer: Peer, topic: str, action: Any) -> None:
    """`both` is refused like any other word."""
    reply = peer.ask(topic, {"action": action, "topic": "a.b"})
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid action", {"action": action})


def test_all_is_publishes_and_requests(join: Join) -> None:
    """For mb-client-js: its `subscribe('all', topic, priority, …)`."""
    peer, other, topic = join(), join(), fresh_topic()
    wanted = {"action": "all", "topic": topic, "priority": 3}
    assert peer.ask("system.topic.subscribe", wanted).payload == SUCCESS
    assert subscriptions(peer) == [
        {"action": "publish", "topic": topic}, {"action": "request", "topic": topic, "priority": 3}
    ]  # fmt: skip
    other.publish(topic, "news")
    assert peer.receive().payload == b"news"
    message_id = new_id()
    other.send(f"request:{topic}:1.0.0:{message_id}", "?")
    peer.serve_one(b"answer")
    assert other.receive().payload == b"answer"
    assert peer.ask("system.topic.unsubscribe", {"action": "all", "topic": topic}).payload == SUCCESS
    assert subscriptions(peer) == []


@pytest.mark.parametrize("actions", [("publish",), ("request",), ("publish", "request")])
def test_an_unsubscribe_without_action_ends_what_there_is(peer: Peer, actions: tuple[str, ...]) -> None:
    """For mb-client-js: its `unsubscribe(topic)`."""
    topic = fresh_topic()
    for action in actions:
        assert peer.ask("system.topic.subscribe", {"action": action, "topic": topic}).payload == SUCCESS
    assert peer.ask("system.topic.unsubscribe", {"topic": topic}).payload == SUCCESS
    assert subscriptions(peer) == []
    assert peer.ask("system.topic.unsubscribe", {"topic": topic}).payload == FAILURE


@pytest.mark.parametrize("call", ["system.topic.subscribe", "system.topic.unsubscribe"])
@pytest.mark.parametrize("topic", [5, None, ["a"], {"a": 1}, "", "a..b", "a\n", True])
def test_a_subscription_needs_a_valid_pattern(peer: Peer, call: str, topic: Any) -> None:
    reply = peer.ask(call, {"action": "publish", "topic": topic})
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid topic", {"topic": topic})


@pytest.mark.parametrize("call", ["system.topic.subscribe", "system.topic.unsubscribe"])
def test_a_missing_member_is_missing_from_the_details(peer: Peer, call: str) -> None:
    assert_error(peer.ask(call, {"action": "publish"}), "INVALID_REQUEST", "Missing or invalid topic", {})


@pytest.mark.parametrize("action", ["publish", "request"])
@pytest.mark.parametrize("priority", [None, "5", [1], {}, True])
def test_a_priority_must_be_a_finite_number(peer: Peer, action: str, priority: Any) -> None:
    reply = peer.ask("system.topic.subscribe", {"action": action, "topic": "a.b", "priority": priority})
    assert_error(reply, "INVALID_REQUEST", "Invalid priority", {"priority": priority})


@pytest.mark.parametrize("priority", [0, -5, 2.5, -0.25, 1e300, 9007199254740993])
def test_negative_and_fractional_priorities_are_fine(peer: Peer, priority: float) -> None:
    peer.subscribe("a.b", "request", priority)
    (row,) = subscriptions(peer)
    assert row["priority"] == pytest.approx(priority)


def test_checks_of_a_subscription_come_in_order(peer: Peer) -> None:
    """Action, topic, restriction, priority."""
    body: dict[str, Any] = {"action": "x", "topic": "..", "priority": "p"}
    for member, value, text in [
        ("action", "publish", "Missing or invalid action"),
        ("topic", "system.metrics", "Missing or invalid topic"),
        ("topic", "a.b", "Unable to subscribe to restricted topic"),
        ("priority", 1, "Invalid priority"),
    ]:
        assert peer.ask("system.topic.subscribe", body).json()["error"]["message"] == text
        body[member] = value
    assert peer.ask("system.topic.subscribe", body).payload == SUCCESS


@pytest.mark.parametrize("topic", ["a.b", "a.#", "system.message"])
def test_subscribing_to_responses_fails_without_an_error(peer: Peer, topic: str) -> None:
    reply = peer.ask("system.topic.subscribe", {"action": "response", "topic": topic})
    assert reply.payload == FAILURE
    assert subscriptions(peer) == []


@pytest.mark.parametrize(
    "topic",
    ["system.heartbeat", "system.metrics", "system.x", "System.Initialize", "system.topic.list", "system.db.status"],
)
def test_restricted_topics_cannot_be_subscribed(peer: Peer, topic: str) -> None:
    for action in ("publish", "request"):
        reply = peer.ask("system.topic.subscribe", {"action": action, "topic": topic})
        assert_error(reply, "INVALID_REQUEST", "Unable to subscribe to restricted topic", {"topic": topic})


@pytest.mark.parametrize("topic", SUBSCRIBABLE)
def test_five_system_topics_may_be_subscribed(peer: Peer, topic: str) -> None:
    peer.subscribe(topic)
    assert subscriptions(peer) == [{"action": "publish", "topic": topic}]


@pytest.mark.parametrize("pattern", ["system.+", "system.#", "system.+.status", "system.topic.#", "System.+"])
def test_wildcards_under_system_may_be_subscribed_and_unsubscribed(peer: Peer, pattern: str) -> None:
    peer.subscribe(pattern, "request")
    peer.unsubscribe(pattern, "request")
    assert subscriptions(peer) == []


@pytest.mark.parametrize("topic", ["system.service.register", "system.topic.subscribe", "system.topic.unsubscribe"])
def test_three_of_them_stay_silent(join: Join, topic: str) -> None:
    subscriber, other = join(), join()
    subscriber.subscribe(topic)
    subscriber.subscribe(topic, "request")
    other.register("loud")
    other.subscribe(fresh_topic())
    assert subscriber.settled() == []


# ---- system.topic.unsubscribe ----------------------------------------------------------------------------------------


def test_unsubscribing_what_is_not_subscribed_fails(peer: Peer) -> None:
    """Also for a pattern with `#`."""
    topic = fresh_topic()
    for pattern in (topic, f"{topic}.#", f"{topic}.+", "#"):
        reply = peer.ask("system.topic.unsubscribe", {"action": "publish", "topic": pattern})
        assert reply.payload == FAILURE
    peer.subscribe(topic, "request")
    assert peer.ask("system.topic.unsubscribe", {"action": "publish", "topic": topic}).payload == FAILURE
    assert peer.ask("system.topic.unsubscribe", {"action": "response", "topic": topic}).payload == FAILURE
    peer.unsubscribe(topic, "request")
    assert peer.ask("system.topic.unsubscribe", {"action": "request", "topic": topic}).payload == FAILURE


def test_one_service_cannot_unsubscribe_another(join: Join) -> None:
    one, two = join(), join()
    topic = fresh_topic()
    one.subscribe(topic)
    assert two.ask("system.topic.unsubscribe", {"action": "publish", "topic": topic}).payload == FAILURE
    assert two.publish(topic).payload == SUCCESS


@pytest.mark.parametrize(
    "topic", ["system.message", "system.log", "system.topic.unsubscribe", "system.metrics", "System.Whatever"]
)
def test_most_system_topics_cannot_be_unsubscribed(peer: Peer, topic: str) -> None:
    reply = peer.ask("system.topic.unsubscribe", {"action": "publish", "topic": topic})
    assert_error(reply, "INVALID_REQUEST", "Unable to unsubscribe from restricted topic", {"topic": topic})


@pytest.mark.parametrize("topic", ["system.service.register", "system.topic.subscribe"])
def test_two_system_topics_can_be_unsubscribed(peer: Peer, topic: str) -> None:
    peer.subscribe(topic)
    peer.unsubscribe(topic)
    assert peer.ask("system.topic.unsubscribe", {"action": "publish", "topic": topic}).payload == FAILURE


# ---- the header `subscribe` ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "row"),
    [
        ("", {"action": "publish"}),
        ("null", {"action": "publish"}),
        ("{}", {"action": "publish"}),
        ('{"action":"publish","topic":"another.one"}', {"action": "publish"}),
        ('{"action":"request"}', {"action": "request", "priority": 0}),
        ('{"action":"request","priority":7}', {"action": "request", "priority": 7}),
    ],
)
def test_the_subscribe_header_is_shorthand_for_the_request(peer: Peer, payload: str, row: dict[str, Any]) -> None:
    """The header's topic counts; the reply is that of the request."""
    topic = fresh_topic()
    peer.send(f"SUBSCRIBE:{topic}:2.0.0:{I}", payload)
    assert peer.receive() == (reply_header("system.topic.subscribe", I, "2.0.0"), SUCCESS)
    (found,) = subscriptions(peer)
    assert found == {"topic": topic, **row}


def test_the_subscribe_header_may_hold_a_pattern(peer: Peer) -> None:
    start = fresh_topic(1)
    peer.send(f"subscribe:{start}.+:1.0.0:{I}", "")
    assert peer.receive().payload == SUCCESS
    peer.send(f"publish:{start}.x:1.0.0")
    assert peer.receive().topic == f"{start}.x"


@pytest.mark.parametrize(
    ("topic", "payload", "text"),
    [
        ("a.b", '{"action":"both"}', "Missing or invalid action"),
        ("a.b", '{"priority":"high"}', "Invalid priority"),
        ("system.metrics", "", "Unable to subscribe to restricted topic"),
        ("a.b", "{", "Invalid JSON payload"),
    ],
)
def test_the_subscribe_header_fails_as_the_request_would(peer: Peer, topic: str, payload: str, text: str) -> None:
    peer.send(f"subscribe:{topic}:1.0.0:{I}", payload)
    reply = peer.receive()
    assert reply.header == reply_header("system.topic.subscribe", I)
    assert reply.json()["error"]["message"] == text
    assert subscriptions(peer) == []


# ---- system.topic.list -----------------------------------------------------------------------------------------------


def test_topics_are_listed_with_their_subscribers(join: Join) -> None:
    low, high, watcher = join(), join(), join()
    topic = fresh_topic()
    low.subscribe(topic, "request", 1)
    high.subscribe(topic.upper(), "request", 2.5)
    low.subscribe(topic)
    high.subscribe(f"{topic}.+")
    low_id, high_id = low.service_id(), high.service_id()
    expected = [
        {"action": "publish", "topic": topic, "subscribers": [{"serviceId": low_id}]},
        {
            "action": "request",
            "topic": topic,
            "subscribers": [{"serviceId": high_id, "priority": 2.5}, {"serviceId": low_id, "priority": 1}],
        },
        {"action": "publish", "topic": f"{topic}.+", "subscribers": [{"serviceId": high_id}]},
    ]
    for call, key in (("system.topic.list", "topics"), ("system.topic.subscriptions", "subscriptions")):
        body = watcher.ask(call).json()
        assert list(body) == [key], "no `status` beside the rows"
        assert [row for row in body[key] if row["topic"].startswith(topic)] == expected
        names = [(row["topic"], row["action"]) for row in body[key]]
        assert names == sorted(names)


def test_a_topic_without_subscribers_is_not_listed(peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic)
    peer.unsubscribe(topic)
    assert topic not in peer.ask("system.topic.list").payload.decode()
