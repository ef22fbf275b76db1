"""One contract on every wire: the policy table over MB and zbus sockets, and what becomes of refused messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.mb_wire import Peer, connect, fresh_topic
from tests.rigs.schema_rest import USER, bind, call, register
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, dial_server, fresh_name

GOOD, WRONG = b'{"id":1}', b'{"id":"x"}'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        register(server, "user")
        register(server, "other")
        yield server


@pytest.fixture
def mb(server: Server) -> Iterator[Peer]:
    with connect(server, "tcp") as peer:
        yield peer


@pytest.fixture
def zbus(server: Server) -> Iterator[Client]:
    with dial_server(server) as client:
        yield client


def refusal(message: Any) -> dict[str, Any]:
    error: dict[str, Any] = message.json()["error"]
    return error


def ids(server: Server) -> tuple[int, int]:
    rows = call(server, "GET", "/api/schemas").json()["subjects"]
    found = {row["subject"]: row["schema_id"] for row in rows}
    return found["user"], found["other"]


@pytest.mark.parametrize("policy", ["none", "warn", "enforce"])
@pytest.mark.parametrize("payload", [GOOD, WRONG])
def test_mb_publishes_by_policy(server: Server, mb: Peer, policy: str, payload: bytes) -> None:
    topic = fresh_topic()
    bind(server, topic, "user", policy)
    mb.subscribe(topic)
    answer = mb.publish(topic, payload)
    if policy == "enforce" and payload == WRONG:
        error = refusal(answer)
        assert error["code"] == "INVALID_REQUEST"
        assert error["message"].startswith("payload_invalid ")
        assert error["details"] == {
            "reason": "payload_invalid", "subject": "user", "version": 1, "path": "/id", "rule": "properties/id/type"
        }  # fmt: skip
        assert mb.settled() == []
    else:
        assert answer.payload == b'{"status":"success"}'
        assert [message.payload for message in mb.settled()] == [payload]


def test_mb_requests_are_checked_and_answers_are_not(server: Server, mb: Peer) -> None:
    topic = fresh_topic()
    bind(server, topic, "user", "enforce")
    with connect(server, "tcp") as service:
        service.subscribe(topic, "request")
        assert refusal(mb.ask(topic, WRONG))["code"] == "INVALID_REQUEST"
        message_id = "11111111-2222-4333-8444-555555555555"
        mb.send(f"request:{topic}:1.0.0:{message_id}", GOOD)
        service.serve_one(b"anything at all")
        assert mb.reply(message_id).payload == b"anything at all"


def test_one_bad_publish_does_not_stop_those_around_it(server: Server, mb: Peer) -> None:
    topic = fresh_topic()
    bind(server, topic, "user", "enforce")
    mb.subscribe(topic)
    payloads = [b'{"id":%d}' % number if number % 4 else b"bad" for number in range(40)]
    mb.write_messages(f"publish:{topic}:1.0.0\n".encode() + payload for payload in payloads)
    arrived = mb.settled()
    assert [m.payload for m in arrived if m.action == "publish"] == [p for p in payloads if p != b"bad"]
    assert len([m for m in arrived if m.action == "response"]) == 10


# schema-id and schema-version, as headers; the rule that is broken
CLAIMS = [
    ({}, GOOD, None),
    ({}, WRONG, "payload_invalid"),
    ({"schema-id": "user"}, GOOD, None),
    ({"schema-id": "user", "schema-version": "1"}, GOOD, None),
    ({"schema-id": "user", "schema-version": "1"}, WRONG, "payload_invalid"),
    ({"schema-id": "user", "schema-version": "9"}, GOOD, "unknown_version"),
    ({"schema-id": "other"}, GOOD, "subject_mismatch"),
    ({"schema-id": "999"}, GOOD, "unknown_schema_id"),
]


@pytest.mark.parametrize("policy", ["none", "warn", "enforce"])
@pytest.mark.parametrize(("claim", "payload", "rule"), CLAIMS)
def test_zbus_produces_by_policy(
    server: Server, zbus: Client, policy: str, claim: dict[str, str], payload: bytes, rule: str | None
) -> None:
    user, other = ids(server)
    keys = {key: {"user": str(user), "other": str(other)}.get(value, value) for key, value in claim.items()}
    queue = zbus.create(fresh_name())
    bind(server, queue, "user", policy)
    reply = zbus.ask("produce", payload, mq=queue, **keys)
    if policy == "enforce" and rule is not None:
        assert reply.status == 422
        assert reply.body.decode().split()[0] == rule
    else:
        assert reply.status == 200
        assert zbus.take(queue).body == payload


def test_zbus_requests_are_checked(server: Server, zbus: Client) -> None:
    queue = zbus.create(fresh_name())
    bind(server, queue, "user", "enforce")
    assert zbus.reply(zbus.request(queue, WRONG)).status == 422
    with dial_server(server) as service:
        asked = zbus.request(queue, GOOD)
        service.serve_one(queue, b"anything")
        assert zbus.reply(asked).body == b"anything"


def test_what_one_wire_refuses_no_other_wire_sees(server: Server, mb: Peer, zbus: Client) -> None:
    queue = zbus.create(fresh_name())
    bind(server, queue, "user", "enforce")
    mb.subscribe(queue)
    assert zbus.ask("produce", WRONG, mq=queue).status == 422
    assert refusal(mb.publish(queue, WRONG))["code"] == "INVALID_REQUEST"
    zbus.produce(queue, GOOD)
    assert [message.payload for message in mb.settled()] == [GOOD]
    assert zbus.take(queue).body == GOOD


def test_refused_messages_are_published_on_a_topic_of_their_own(server: Server, mb: Peer, zbus: Client) -> None:
    queue = zbus.create(fresh_name())
    bind(server, queue, "user", "enforce")
    mb.subscribe("raceway.rejected")
    assert zbus.ask("produce", WRONG, mq=queue).status == 422
    assert mb.wait_for(lambda message: message.topic == "raceway.rejected").payload == WRONG
    assert refusal(mb.publish("raceway.rejected", WRONG))["code"] == "INVALID_REQUEST"


def test_violations_are_counted_by_policy_and_rule(server: Server, mb: Peer) -> None:
    def counted(policy: str) -> float:
        return server.metric("raceway_schema_violations_total", policy=policy, rule="payload_invalid")

    topic = fresh_topic()
    for policy in ("warn", "enforce"):
        bind(server, topic, "user", policy)
        before = counted(policy)
        mb.publish(topic, WRONG)
        assert counted(policy) == before + 1


def test_a_warning_names_topic_and_reason(server: Server, mb: Peer) -> None:
    topic = fresh_topic()
    bind(server, topic, "user", "warn")
    mb.publish(topic, WRONG)
    wait_until(lambda: topic in server.stderr and "schema violated" in server.stderr, what="the warning")


def test_the_contract_holds_after_the_plug_was_pulled() -> None:
    with running_server() as server:
        register(server, "user")
        register(server, "user", {**USER, "properties": {**USER["properties"], "name": {"type": "string"}}})  # type: ignore[dict-item]
        topic = fresh_topic()
        bind(server, topic, "user", "enforce")
        before = call(server, "GET", "/api/schemas/user/versions").json()
        server.kill()
        server.start()
        with connect(server, "tcp") as mb:
            assert refusal(mb.publish(topic, b'{"id": 1, "name": 5}'))["details"]["version"] == 2
            mb.subscribe(topic)
            assert mb.publish(topic, GOOD).payload == b'{"status":"success"}'
        assert call(server, "GET", "/api/schemas/user/versions").json() == before
        assert register(server, "next")["schema_id"] == 2


def test_libraries_are_loaded_when_a_schema_needs_them() -> None:
    """An idle bus stays small."""
    with running_server() as fresh:
        maps = Path(f"/proc/{fresh.pid}/maps")
        assert "jsonschema_rs" not in maps.read_text()
        register(fresh, "user")
        assert "jsonschema_rs" in maps.read_text()
