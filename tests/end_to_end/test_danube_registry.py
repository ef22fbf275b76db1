"""The schema registry through the published Danube client, and what a bound topic lets through."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import MessageResponse, MsgID, StreamMessage
from raceway.wires.danube.codec.pb.schema_registry_pb2 import (
    CheckCompatibilityRequest,
    CheckCompatibilityResponse,
    GetSchemaRequest,
    GetSchemaResponse,
    ListSubjectsRequest,
    ListSubjectsResponse,
    ListVersionsRequest,
    ListVersionsResponse,
    RegisterSchemaRequest,
    RegisterSchemaResponse,
)
from tests.rigs.danube_process import DanubeProcess, RefusedError, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.mb_wire import connect, new_id
from tests.rigs.server import Server, running_server

REGISTRY = "danube_schema.SchemaRegistry/"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[DanubeProcess]:
    with danube_process(danube_url(server)) as client:
        yield client


@pytest.fixture(scope="module")
def wire(server: Server) -> Iterator[DanubeWire]:
    with danube_wire(server) as wire:
        yield wire


@pytest.fixture
def subject() -> str:
    return f"subject-{next(_numbers)}"


@pytest.fixture
def topic() -> str:
    return f"/default/r{next(_numbers)}"


def user(*required: str, **properties: str) -> str:
    """A JSON Schema, with blanks of its own: what comes back must have them too."""
    described = {name: {"type": kind} for name, kind in properties.items()}
    return json.dumps({"type": "object", "properties": described, "required": list(required)}, indent=1)


V1 = user("id", id="integer")
V2 = user("id", id="integer", name="string")
WRONG = user("id", id="string")


def refused(client: DanubeProcess, verb: str, *arguments: Any) -> str:
    with pytest.raises(RefusedError) as refusal:
        client.schema(verb, *arguments)
    return refusal.value.status


# ---- subjects and versions -------------------------------------------------------------------------------------------


def test_versions_are_registered_and_found_again(client: DanubeProcess, subject: str) -> None:
    schema_id = client.schema("register", subject, "json_schema", V1)
    assert client.schema("register", subject, "json_schema", V2) == schema_id
    latest = client.schema("get_latest_schema", subject)
    assert (latest["schema_id"], latest["version"], latest["subject"]) == (schema_id, 2, subject)
    assert (latest["schema_type"], latest["schema_definition"]) == ("json_schema", V2)
    first = client.schema("get_schema_version", schema_id, 1)
    assert (first["version"], first["schema_definition"]) == (1, V1)
    assert client.schema("get_schema_by_id", schema_id)["version"] == 2
    assert client.schema("list_versions", subject) == [1, 2]
    assert first["fingerprint"].startswith("sha256:")
    assert first["fingerprint"] != latest["fingerprint"]


def test_the_same_schema_again_is_no_new_version(wire: DanubeWire, subject: str) -> None:
    request = RegisterSchemaRequest(
        subject=subject, schema_type="JSON", schema_definition=V1.encode(), description="users", created_by="me",
        tags=["a", "b"],
    )  # fmt: skip
    first = wire.ask(REGISTRY + "RegisterSchema", request, RegisterSchemaResponse)
    request.schema_definition = json.dumps(json.loads(V1)).encode()  # other blanks, the same schema
    again = wire.ask(REGISTRY + "RegisterSchema", request, RegisterSchemaResponse)
    assert (first.is_new_version, again.is_new_version) == (True, False)
    assert (first.schema_id, first.version, first.fingerprint) == (again.schema_id, again.version, again.fingerprint)
    found = wire.ask(REGISTRY + "GetSchema", GetSchemaRequest(schema_id=first.schema_id), GetSchemaResponse)
    assert (found.description, found.created_by, list(found.tags)) == ("users", "me", ["a", "b"])
    assert (found.schema_type, found.compatibility_mode) == ("json_schema", "backward")
    assert 1_700_000_000 < found.created_at < 5_000_000_000  # seconds
    [version] = wire.ask(REGISTRY + "ListVersions", ListVersionsRequest(subject=subject), ListVersionsResponse).versions
    assert (version.version, version.schema_id, version.created_by) == (1, first.schema_id, "me")
    rows = wire.ask(REGISTRY + "ListSubjects", ListSubjectsRequest(), ListSubjectsResponse).subjects
    [row] = [row for row in rows if row.subject == subject]
    assert (row.schema_id, row.latest_version, row.schema_type) == (first.schema_id, 1, "json_schema")
    assert (row.compatibility_mode, list(row.tags)) == ("backward", ["a", "b"])


def test_a_schema_that_breaks_its_readers_is_refused_and_said_why(client: DanubeProcess, subject: str) -> None:
    client.schema("register", subject, "json_schema", V1)
    with pytest.raises(RefusedError) as refusal:
        client.schema("register", subject, "json_schema", WRONG)
    assert refusal.value.status == "FAILED_PRECONDITION"
    assert "id" in refusal.value.text
    assert client.schema("list_versions", subject) == [1]
    verdict = client.schema("check_compatibility", subject, WRONG, "json_schema")
    assert verdict[0] is False
    assert verdict[1]
    assert client.schema("check_compatibility", subject, V2, "json_schema")[0] is True
    assert client.schema("check_compatibility", subject, WRONG, "json_schema", "none")[0] is True


def test_the_mode_decides(client: DanubeProcess, subject: str) -> None:
    client.schema("register", subject, "json_schema", V1)
    assert client.schema("set_compatibility_mode", subject, "none")[0] is True
    client.schema("register", subject, "json_schema", WRONG)
    assert client.schema("list_versions", subject) == [1, 2]


def test_a_deleted_version_is_gone_and_its_number_is_not_given_again(client: DanubeProcess, subject: str) -> None:
    schema_id = client.schema("register", subject, "json_schema", V1)
    client.schema("register", subject, "json_schema", V2)
    assert client.schema("delete_schema_version", subject, 2)[0] is True
    assert client.schema("list_versions", subject) == [1]
    assert client.schema("get_latest_schema", subject)["version"] == 1
    assert refused(client, "get_schema_version", schema_id, 2) == "NOT_FOUND"
    client.schema("register", subject, "json_schema", V2)
    assert client.schema("list_versions", subject) == [1, 3]


@pytest.mark.parametrize(
    ("kind", "definition"),
    [
        ("bytes", "any"), ("string", "any"), ("number", "any"),
        ("avro", '{"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}'),
        ("protobuf", 'syntax = "proto3"; message User { int64 id = 1; }'),
    ],
)  # fmt: skip
def test_all_six_types_are_kept_as_they_are(client: DanubeProcess, subject: str, kind: str, definition: str) -> None:
    client.schema("register", subject, kind, definition)
    found = client.schema("get_latest_schema", subject)
    assert (found["schema_type"], found["schema_definition"]) == (kind, definition)


def test_what_is_unknown_is_not_found(client: DanubeProcess, subject: str) -> None:
    assert refused(client, "get_latest_schema", subject) == "NOT_FOUND"
    assert refused(client, "get_schema_by_id", 999_999) == "NOT_FOUND"
    assert refused(client, "list_versions", subject) == "NOT_FOUND"
    assert refused(client, "check_compatibility", subject, V1, "json_schema") == "NOT_FOUND"
    assert refused(client, "set_compatibility_mode", subject, "full") == "NOT_FOUND"
    assert refused(client, "delete_schema_version", subject, 1) == "NOT_FOUND"


def test_what_is_no_schema_is_an_invalid_argument(client: DanubeProcess, wire: DanubeWire, subject: str) -> None:
    assert refused(client, "register", subject, "json_schema", "{") == "INVALID_ARGUMENT"
    assert refused(client, "register", subject, "avro", '{"type": "nothing"}') == "INVALID_ARGUMENT"
    assert refused(client, "register", subject, "protobuf", "message {") == "INVALID_ARGUMENT"
    request = RegisterSchemaRequest(subject=subject, schema_type="xml", schema_definition=b"<a/>")
    with pytest.raises(RefusedError) as refusal:
        wire.ask(REGISTRY + "RegisterSchema", request, RegisterSchemaResponse)
    assert refusal.value.status == "INVALID_ARGUMENT"


def test_schemas_and_bindings_survive_a_restart(subject: str, topic: str) -> None:
    with running_server() as server, danube_process(danube_url(server)) as client:
        schema_id = client.schema("register", subject, "json_schema", V1)
        client.create("p", topic, subject=subject)
        client.schema("configure_topic_schema", topic, subject, "enforce", True)
        server.restart()
        client.wait_for_channel()
        assert client.schema("get_latest_schema", subject)["schema_definition"] == V1
        bound = client.schema("get_topic_schema_config", topic)
        assert (bound["schema_subject"], bound["validation_policy"], bound["schema_id"]) == (
            subject,
            "enforce",
            schema_id,
        )
        client.send("p", b'{"id": 1}')
        with pytest.raises(RefusedError) as refusal:
            client.send("p", b'{"id": "one"}')
        assert refusal.value.status == "PERMISSION_DENIED"


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_a_producer_binds_its_subject_and_marks_its_messages(client: DanubeProcess, subject: str, topic: str) -> None:
    schema_id = client.schema("register", subject, "json_schema", V1)
    client.create(topic, topic, subject=subject)
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, b'{"id": 1}')
    [message] = client.receive("c" + topic)
    assert (message.schema_id, message.schema_version) == (schema_id, 1)
    bound = client.schema("get_topic_schema_config", topic)
    assert bound == {
        "schema_subject": subject, "validation_policy": "none", "enable_payload_validation": False,
        "schema_id": schema_id,
    }  # fmt: skip
    client.schema("register", "other-" + subject, "json_schema", V2)
    with pytest.raises(RefusedError) as refusal:
        client.create("q" + topic, topic, subject="other-" + subject)
    assert refusal.value.status == "FAILED_PRECONDITION"
    client.create("r" + topic, topic)  # without a subject always


def test_a_pinned_version_is_the_one_messages_carry(client: DanubeProcess, subject: str, topic: str) -> None:
    schema_id = client.schema("register", subject, "json_schema", V1)
    client.schema("register", subject, "json_schema", V2)
    client.create(topic, topic, subject=subject, version=1)
    client.create("m" + topic, topic, subject=subject, min_version=2)
    client.subscribe("c" + topic, topic, "s")
    client.send(topic, b"{}")
    client.send("m" + topic, b"{}")
    found = [(message.schema_id, message.schema_version) for message in client.receive("c" + topic, 2)]
    assert found == [(schema_id, 1), (schema_id, 2)]
    wrong: list[dict[str, Any]] = [{"version": 9}, {"min_version": 3}]
    for wanted in wrong:
        with pytest.raises(RefusedError) as refusal:
            client.create("x" + topic, topic, subject=subject, **wanted)
        assert refusal.value.status == "FAILED_PRECONDITION"


def test_settings_of_topics_are_checked(client: DanubeProcess, subject: str, topic: str) -> None:
    client.create(topic, topic)
    client.schema("register", subject, "json_schema", V1)
    assert refused(client, "update_topic_validation_policy", topic, "warn", True) == "FAILED_PRECONDITION"
    assert refused(client, "configure_topic_schema", topic, subject, "sometimes", True) == "INVALID_ARGUMENT"
    assert refused(client, "configure_topic_schema", topic, "nobody", "warn", True) == "NOT_FOUND"
    assert refused(client, "configure_topic_schema", topic + "x", subject, "warn", True) == "NOT_FOUND"
    assert refused(client, "get_topic_schema_config", topic + "x") == "NOT_FOUND"
    client.schema("configure_topic_schema", topic, subject, "WARN", True)
    assert client.schema("get_topic_schema_config", topic)["validation_policy"] == "warn"
    client.schema("update_topic_validation_policy", topic, "enforce", False)
    bound = client.schema("get_topic_schema_config", topic)
    assert (bound["validation_policy"], bound["enable_payload_validation"]) == ("enforce", False)


# ---- the policy table ------------------------------------------------------------------------------------------------

GOOD, BAD = b'{"id": 1}', b'{"id": "one"}'
# What a message says of its schema, its payload, and the reason why `enforce` refuses it. "own" and "other" are ids.
CASES = [
    (None, None, GOOD, "missing_schema_id"),
    (999_999, None, GOOD, "unknown_schema_id"),
    (2**64 - 1, None, GOOD, "unknown_schema_id"),
    ("other", 1, GOOD, "subject_mismatch"),
    ("own", 9, GOOD, "unknown_version"),
    ("own", 1, BAD, "payload_invalid"),
    ("own", 1, b"no JSON", "payload_invalid"),
    ("own", 1, GOOD, None),
    ("own", None, GOOD, None),
]


@pytest.mark.parametrize("policy", ["none", "warn", "enforce"])
def test_the_policy_decides_cell_by_cell(
    client: DanubeProcess, wire: DanubeWire, subject: str, topic: str, policy: str
) -> None:
    ids = {
        "own": client.schema("register", subject, "json_schema", V1),
        "other": client.schema("register", "other-" + subject, "json_schema", V1),
    }
    producer_id = wire.producer(topic)
    client.schema("configure_topic_schema", topic, subject, policy, True)
    client.subscribe("c" + topic, topic, "s")
    stored = 0
    for number, (schema_id, version, payload, reason) in enumerate(CASES):
        message = StreamMessage(
            request_id=number, msg_id=MsgID(producer_id=producer_id, topic_name=topic), payload=payload,
            schema_id=ids.get(schema_id, schema_id), schema_version=version,  # type: ignore[arg-type]
        )  # fmt: skip
        if policy == "enforce" and reason is not None:
            with pytest.raises(RefusedError) as refusal:
                wire.ask("danube.ProducerService/SendMessage", message, MessageResponse)
            assert refusal.value.status == "PERMISSION_DENIED"
            assert refusal.value.text.split()[0].strip(":") == reason
        else:
            wire.ask("danube.ProducerService/SendMessage", message, MessageResponse)
            stored += 1
    got = client.receive("c" + topic, stored, ack=True)
    assert [message.offset for message in got] == list(range(stored))
    assert client.receive("c" + topic, 1, within_s=0.3) == []


def test_enforce_without_payload_validation_looks_at_ids_only(client: DanubeProcess, subject: str, topic: str) -> None:
    client.schema("register", subject, "json_schema", V1)
    client.create(topic, topic, subject=subject)
    client.schema("configure_topic_schema", topic, subject, "enforce", False)
    client.send(topic, BAD)


def test_a_message_of_another_wire_is_judged_by_the_latest_version(
    server: Server, client: DanubeProcess, subject: str
) -> None:
    schema_id = client.schema("register", subject, "json_schema", V1)
    name = f"judged{next(_numbers)}"
    client.create(name, f"/default/{name}")
    client.schema("configure_topic_schema", f"/default/{name}", subject, "enforce", True)
    client.subscribe("c" + name, f"/default/{name}", "s")
    with connect(server, "tcp") as peer:
        peer.send(f"publish:{name}:1.0.0:{(good := new_id())}", GOOD)
        peer.send(f"publish:{name}:1.0.0:{(bad := new_id())}", BAD)
        assert peer.reply(good).json() == {"status": "success"}
        assert peer.reply(bad).json()["error"]["code"] == "INVALID_REQUEST"
    [message] = client.receive("c" + name, 2, within_s=1)
    assert (message.payload, message.schema_id, message.schema_version) == (GOOD, schema_id, 1)


@pytest.mark.parametrize("right", [True, False])
def test_a_large_definition_is_registered_and_checked_like_any_other(
    wire: DanubeWire, subject: str, right: bool
) -> None:
    """It is read beside the loop; over REST too."""
    document = json.dumps({"type": "object", "description": "x" * 100_000})
    definition = (document if right else document[:-1]).encode()
    request = RegisterSchemaRequest(subject=subject, schema_type="json_schema", schema_definition=definition)
    check = CheckCompatibilityRequest(
        subject=subject, schema_type="json_schema", new_schema_definition=definition, compatibility_mode="full"
    )
    registered = REGISTRY + "RegisterSchema"
    if right:
        assert wire.ask(registered, request, RegisterSchemaResponse).version == 1
        checked = wire.ask(REGISTRY + "CheckCompatibility", check, CheckCompatibilityResponse)
        assert checked.is_compatible
    else:
        with pytest.raises(RefusedError, match="INVALID_ARGUMENT"):
            wire.ask(registered, request, RegisterSchemaResponse)
