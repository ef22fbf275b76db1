"""The registry in Confluent's form: its codes one by one, and that maker's own client with its serializers."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from raceway import __version__
from tests.rigs.schema_rest import USER, Answer, bind, call
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import dial_server

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
RECORD = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "int"}]}
STRINGS = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "string"}]}
WIDER = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "long"}]}
PROTO = 'syntax = "proto3"; message Payment { int32 amount = 1; }'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def subject(server: Server, request: pytest.FixtureRequest) -> str:
    """A subject with one Avro version."""
    name = f"{request.node.name}/value"
    assert send(server, "POST", versions(name), avro(RECORD)).status == 200
    return name


def quoted(subject: str) -> str:
    return subject.replace("/", "%2F").replace("[", "%5B").replace("]", "%5D")


def versions(subject: str) -> str:
    return f"/subjects/{quoted(subject)}/versions"


def avro(document: Any) -> dict[str, Any]:
    return {"schema": json.dumps(document)}


def send(server: Server, method: str, path: str, document: Any = None) -> Answer:
    answer = call(server, method, path, document)
    assert answer.type == CONTENT_TYPE, answer
    return answer


def code(answer: Answer) -> tuple[int, int]:
    body = answer.json()
    assert set(body) == {"error_code", "message"}
    return answer.status, body["error_code"]


def test_a_schema_is_registered_and_found_by_its_number(server: Server, subject: str) -> None:
    again = send(server, "POST", versions(subject), avro(RECORD)).json()
    number = again["id"]
    assert send(server, "GET", f"/schemas/ids/{number}").json() == {"schema": json.dumps(RECORD)}
    assert json.loads(call(server, "GET", f"/schemas/ids/{number}/schema").body) == RECORD
    assert send(server, "GET", f"/schemas/ids/{number}/versions").json() == [{"subject": subject, "version": 1}]
    assert send(server, "GET", f"/schemas/ids/{number}/subjects").json() == [subject]
    named = {"subject": subject, "version": 1, "id": number, "schema": json.dumps(RECORD)}
    for wanted in ("1", "latest", "-1"):
        assert send(server, "GET", f"{versions(subject)}/{wanted}").json() == named
    assert send(server, "POST", f"/subjects/{quoted(subject)}", avro(RECORD)).json() == named
    assert send(server, "GET", versions(subject)).json() == [1]
    assert subject in send(server, "GET", "/subjects").json()


@pytest.mark.parametrize(
    ("schema_type", "schema"), [("JSON", json.dumps(USER)), ("PROTOBUF", PROTO), ("AVRO", json.dumps(RECORD))]
)
def test_three_types_are_told_apart(server: Server, schema_type: str, schema: str) -> None:
    name = f"types-{schema_type}"
    number = send(server, "POST", versions(name), {"schema": schema, "schemaType": schema_type}).json()["id"]
    found = send(server, "GET", f"/schemas/ids/{number}").json()
    assert found == {"schema": schema, **({} if schema_type == "AVRO" else {"schemaType": schema_type})}


def test_the_fixed_answers(server: Server) -> None:
    assert sorted(send(server, "GET", "/schemas/types").json()) == ["AVRO", "JSON", "PROTOBUF"]
    assert send(server, "GET", "/mode").json() == {"mode": "READWRITE"}
    assert send(server, "GET", "/mode/any?defaultToGlobal=true").json() == {"mode": "READWRITE"}
    assert send(server, "GET", "/contexts").json() == ["."]
    assert send(server, "GET", "/v1/metadata/id").json()["scope"]["path"] == []
    assert send(server, "GET", "/v1/metadata/version").json()["version"] == __version__


@pytest.mark.parametrize(
    ("method", "path", "document", "expected"),
    [
        ("GET", "/subjects/nobody/versions", None, (404, 40401)),
        ("GET", "/subjects/nobody/versions/1", None, (404, 40401)),
        ("POST", "/subjects/nobody", avro(RECORD), (404, 40401)),
        ("DELETE", "/subjects/nobody", None, (404, 40401)),
        ("DELETE", "/subjects/nobody?permanent=true", None, (404, 40401)),
        ("GET", "/schemas/ids/999999", None, (404, 40403)),
        ("GET", "/schemas/ids/many", None, (404, 40403)),
        ("POST", "/subjects/bad/versions", avro("nope"), (422, 42201)),
        ("POST", "/subjects/bad/versions", {"schema": "{"}, (422, 42201)),
        ("POST", "/subjects/bad/versions", {"schema": json.dumps(RECORD), "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/bad/versions", {}, (422, 42201)),
        ("POST", "/subjects/bad/versions", {**avro(RECORD), "references": [{"name": "x"}]}, (422, 42201)),
        ("POST", "/subjects/bad/versions", b"not json", (400, 400)),
        ("POST", "/subjects/bad/versions", b"[]", (400, 400)),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, (422, 42203)),
        ("PUT", "/config", {"compatibility": 7}, (422, 42203)),
        ("PUT", "/config/:.ctx:x", {"compatibility": "FULL"}, (422, 42208)),
        ("DELETE", "/config/nobody", None, (404, 40401)),
        ("GET", "/mode/nobody", None, (404, 40409)),
        ("DELETE", "/mode/nobody", None, (404, 40409)),
        ("PUT", "/mode", {"mode": "SIDEWAYS"}, (422, 42204)),
        ("PUT", "/mode", {"mode": "IMPORT"}, (422, 42205)),
        ("POST", "/subjects/:.ctx:x/versions", avro(RECORD), (422, 42208)),
        ("GET", "/subjects/:.ctx:x/versions", None, (422, 42208)),
        ("POST", "/subjects/bad/versions", {**avro(RECORD), "references": "x"}, (422, 42201)),
        (
            "POST",
            "/subjects/bad/versions",
            {**avro(RECORD), "references": [{"name": "x", "subject": "nobody", "version": 1}]},
            (422, 42201),
        ),
        ("GET", "/subjects/", None, (405, 405)),
        ("PUT", "/subjects", {}, (405, 405)),
        ("GET", "/subjects/x/metadata", None, (405, 405)),
        ("GET", "/schemas/guids/x", None, (404, 404)),
        ("POST", "/schemas", None, (405, 405)),
        ("GET", "/compatibility", None, (404, 404)),
        ("PATCH", "/config", {}, (405, 405)),
        ("POST", "/mode/x", {}, (405, 405)),
        ("PUT", "/contexts", None, (405, 405)),
        ("GET", "/v1/metadata", None, (404, 404)),
        ("GET", "/associations/resources/x/y", None, (404, 404)),
        ("GET", "/config/nobody", None, (404, 40408)),
        ("POST", "/compatibility/subjects/nobody/versions/latest", avro(RECORD), (404, 40401)),
    ],
)
def test_refusals_have_their_codes(
    server: Server, method: str, path: str, document: Any, expected: tuple[int, int]
) -> None:
    assert code(send(server, method, path, document)) == expected


def test_refusals_about_a_subject_that_is_there(server: Server, subject: str) -> None:
    base = versions(subject)
    assert code(send(server, "GET", f"{base}/7")) == (404, 40402)
    assert code(send(server, "GET", f"{base}/0")) == (422, 42202)
    assert code(send(server, "GET", f"{base}/two")) == (422, 42202)
    assert code(send(server, "POST", base, avro(STRINGS))) == (409, 409)
    assert code(send(server, "POST", f"/subjects/{quoted(subject)}", avro(WIDER))) == (404, 40403)
    assert code(send(server, "DELETE", f"{base}/1?permanent=true")) == (404, 40407)
    assert code(send(server, "DELETE", f"/subjects/{quoted(subject)}?permanent=true")) == (404, 40405)


def test_compatibility_is_tested_without_registering(server: Server, subject: str) -> None:
    path = f"/compatibility{versions(subject)}"
    assert send(server, "POST", f"{path}/latest", avro(WIDER)).json() == {"is_compatible": True}
    refused = send(server, "POST", f"{path}/1?verbose=true", avro(STRINGS)).json()
    assert refused["is_compatible"] is False
    assert "/amount" in refused["messages"][0]
    assert send(server, "POST", path, avro(STRINGS)).json() == {"is_compatible": False}
    assert send(server, "POST", "/compatibility/subjects/nobody/versions", avro(STRINGS)).json() == {
        "is_compatible": True
    }
    assert send(server, "GET", versions(subject)).json() == [1]


def test_levels_are_kept_for_all_and_for_one(server: Server, subject: str) -> None:
    path = f"/config/{quoted(subject)}"
    assert send(server, "GET", "/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert send(server, "GET", f"{path}?defaultToGlobal=true").json() == {"compatibilityLevel": "BACKWARD"}
    assert send(server, "PUT", path, {"compatibility": "none"}).json() == {"compatibility": "NONE"}
    assert send(server, "GET", path).json() == {"compatibilityLevel": "NONE"}
    assert send(server, "POST", versions(subject), avro(STRINGS)).status == 200
    assert send(server, "DELETE", path).json() == {"compatibility": "NONE", "compatibilityLevel": "NONE"}
    assert code(send(server, "GET", path)) == (404, 40408)
    try:
        assert send(server, "PUT", "/config", {"compatibility": "FULL"}).status == 200
        assert send(server, "GET", f"{path}?defaultToGlobal=true").json() == {"compatibilityLevel": "FULL"}
    finally:
        send(server, "PUT", "/config", {"compatibility": "BACKWARD"})


def test_a_level_may_be_set_before_the_first_version(server: Server) -> None:
    assert send(server, "PUT", "/config/early", {"compatibility": "NONE"}).status == 200
    assert "early" not in send(server, "GET", "/subjects").json()
    for document in (RECORD, STRINGS):
        assert send(server, "POST", versions("early"), avro(document)).status == 200


def test_deleting_happens_in_two_steps(server: Server, subject: str) -> None:
    assert send(server, "POST", versions(subject), avro(WIDER)).status == 200
    base, whole = versions(subject), f"/subjects/{quoted(subject)}"
    assert send(server, "DELETE", f"{base}/1").json() == 1
    assert send(server, "GET", base).json() == [2]
    assert send(server, "GET", f"{base}?deleted=true").json() == [1, 2]
    assert send(server, "GET", f"{base}?deletedOnly=true").json() == [1]
    assert code(send(server, "GET", f"{base}/1")) == (404, 40402)
    assert send(server, "GET", f"{base}/1?deleted=true").json()["deleted"] is True
    assert code(send(server, "POST", whole, avro(RECORD))) == (404, 40403)
    assert send(server, "POST", f"{whole}?deleted=true", avro(RECORD)).json()["version"] == 1
    assert code(send(server, "DELETE", f"{base}/1")) == (404, 40406)
    assert code(send(server, "DELETE", f"{base}/2?permanent=true")) == (404, 40407)
    assert send(server, "DELETE", f"{base}/1?permanent=true").json() == 1
    assert code(send(server, "DELETE", f"{whole}?permanent=true")) == (404, 40405)
    assert send(server, "DELETE", whole).json() == [2]
    assert code(send(server, "DELETE", whole)) == (404, 40404)
    assert code(send(server, "GET", base)) == (404, 40401)
    assert subject not in send(server, "GET", "/subjects").json()
    assert subject in send(server, "GET", "/subjects?deleted=true").json()
    assert subject in send(server, "GET", "/subjects?deletedOnly=true").json()
    assert send(server, "DELETE", f"{whole}?permanent=true").json() == [2]
    assert subject not in send(server, "GET", "/subjects?deleted=true").json()
    assert code(send(server, "DELETE", f"{whole}?permanent=true")) == (404, 40401)
    assert send(server, "POST", versions(subject), avro(RECORD)).json()["version"] == 1


def test_a_deleted_schema_is_still_read_by_its_number_and_comes_back_with_it() -> None:
    """What was written with it is still there to be read, also after a restart."""
    with running_server() as server:
        document = {"schema": '"long"'}
        number = send(server, "POST", versions("soft"), document).json()["id"]
        assert send(server, "DELETE", "/subjects/soft").json() == [1]
        for _ in range(2):
            assert send(server, "GET", f"/schemas/ids/{number}").json() == {"schema": '"long"'}
            assert send(server, "GET", f"/schemas/ids/{number}/subjects").json() == []
            assert send(server, "GET", f"/schemas/ids/{number}/subjects?deleted=true").json() == ["soft"]
            server.restart()
        again = send(server, "POST", versions("soft"), document).json()
        assert (again["id"], again["version"]) == (number, 2)
        assert send(server, "GET", f"{versions('soft')}?deleted=true").json() == [2]


def test_one_definition_has_one_id_whoever_registers_it(server: Server) -> None:
    document = avro({"type": "record", "name": "Shared", "fields": []})
    numbers = {send(server, "POST", versions(name), document).json()["id"] for name in ("one", "two")}
    assert len(numbers) == 1
    assert send(server, "GET", f"/schemas/ids/{numbers.pop()}/versions").json() == [
        {"subject": "one", "version": 1},
        {"subject": "two", "version": 1},
    ]


def test_all_schemas_are_listed_by_prefix(server: Server, subject: str) -> None:
    send(server, "POST", versions(subject), avro(WIDER))
    path = f"/schemas?subjectPrefix={quoted(subject)}"
    assert [each["version"] for each in send(server, "GET", path).json()] == [1, 2]
    (latest,) = send(server, "GET", f"{path}&latestOnly=true").json()
    assert latest == send(server, "GET", f"{versions(subject)}/latest").json()
    assert [each["version"] for each in send(server, "GET", f"{path}&offset=1&limit=5").json()] == [2]
    send(server, "DELETE", f"{versions(subject)}/1")
    assert [each["version"] for each in send(server, "GET", path).json()] == [2]
    assert [each["version"] for each in send(server, "GET", f"{path}&deleted=true").json()] == [1, 2]


def test_what_others_refer_to_cannot_be_deleted(server: Server) -> None:
    inner = {"type": "record", "name": "x.Inner", "fields": [{"name": "n", "type": "int"}]}
    outer = {"type": "record", "name": "x.Outer", "fields": [{"name": "inner", "type": "x.Inner"}]}
    send(server, "POST", versions("inner"), avro(inner))
    references = [{"name": "x.Inner", "subject": "inner", "version": 1}]
    number = send(server, "POST", versions("outer"), {**avro(outer), "references": references}).json()["id"]
    assert send(server, "GET", f"/schemas/ids/{number}").json()["references"] == references
    assert send(server, "GET", f"{versions('outer')}/1").json()["references"] == references
    assert send(server, "GET", f"{versions('inner')}/1/referencedby").json() == [number]
    assert code(send(server, "DELETE", f"{versions('inner')}/1")) == (422, 42206)
    assert code(send(server, "DELETE", "/subjects/inner")) == (422, 42206)
    assert code(send(server, "POST", versions("alone"), avro(outer))) == (422, 42201)
    wrong = {"type": "record", "name": "x.Outer", "fields": [{"name": "inner", "type": "string"}]}
    verdict = send(server, "POST", f"/compatibility{versions('outer')}/latest", avro(wrong)).json()
    assert verdict == {"is_compatible": False}
    assert send(server, "DELETE", "/subjects/outer").json() == [1]
    assert send(server, "DELETE", "/subjects/inner").json() == [1]


def test_a_subject_and_all_of_them_can_be_read_only(server: Server, subject: str) -> None:
    path = f"/mode/{quoted(subject)}"
    assert send(server, "PUT", path, {"mode": "READONLY"}).json() == {"mode": "READONLY"}
    assert send(server, "GET", path).json() == {"mode": "READONLY"}
    assert code(send(server, "POST", versions(subject), avro(WIDER))) == (422, 42205)
    assert code(send(server, "DELETE", f"{versions(subject)}/1")) == (422, 42205)
    assert send(server, "DELETE", path).json() == {"mode": "READONLY"}
    assert send(server, "POST", versions(subject), avro(WIDER)).status == 200
    try:
        assert send(server, "PUT", "/mode", {"mode": "READONLY"}).status == 200
        assert code(send(server, "POST", versions("new"), avro(WIDER))) == (422, 42205)
    finally:
        assert send(server, "DELETE", "/mode").json() == {"mode": "READONLY"}


@pytest.mark.parametrize("level", ["BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"])
def test_transitive_levels_look_at_all_versions(server: Server, level: str) -> None:
    name, documents = f"levels-{level}", [{"type": "record", "name": "L", "fields": fields} for fields in (
        [{"name": "a", "type": "int", "default": 0}], [], [{"name": "a", "type": "string", "default": ""}],
    )]  # fmt: skip
    for document in documents[:2]:
        assert send(server, "POST", versions(name), avro(document)).status == 200
    check = f"/compatibility{versions(name)}"
    assert send(server, "POST", check, avro(documents[2])).json() == {"is_compatible": True}
    assert send(server, "PUT", f"/config/{name}", {"compatibility": level}).json() == {"compatibility": level}
    assert send(server, "POST", check, avro(documents[2])).json() == {"is_compatible": False}
    assert code(send(server, "POST", versions(name), avro(documents[2]))) == (409, 409)


def test_names_of_the_usual_context_are_plain_names(server: Server, subject: str) -> None:
    assert send(server, "GET", versions(f":.:{subject}")).json() == [1]
    assert subject in send(server, "GET", "/subjects?subjectPrefix=:*:").json()


def test_with_security_on_refusals_at_the_door_have_the_registrys_form() -> None:
    with running_server(RACEWAY_SECURITY__ENABLED="true", RACEWAY_SECURITY__TOKEN_SECRET="x" * 40) as server:
        status, found = code(call(server, "GET", "/subjects"))
        assert (status, found) in ((401, 40101), (403, 40301))
        assert code(call(server, "POST", versions("s"), avro(RECORD), Authorization="Bearer nonsense")) == (401, 40101)


def test_huge_and_hostile_bodies_are_refused_and_the_bus_lives(server: Server) -> None:
    before = server.rss()
    huge = json.dumps({"schema": "x" * 8_000_000}).encode()
    assert code(send(server, "POST", versions("huge"), huge)) == (413, 413)
    deep = {"schema": '{"not":' * 25_000 + "{}" + "}" * 25_000, "schemaType": "JSON"}
    assert code(send(server, "POST", versions("deep"), deep)) == (422, 42201)
    remote = {"schema": json.dumps({"$ref": "http://127.0.0.1:1/x"}), "schemaType": "JSON"}
    assert code(send(server, "POST", versions("remote"), remote)) == (422, 42201)
    assert server.rss() - before < 100_000_000


def test_with_a_token_only_its_bearer_changes_schemas() -> None:
    with running_server(RACEWAY_SECURITY__ADMIN_TOKEN="s3cret") as server:
        assert code(call(server, "POST", versions("s"), avro(RECORD))) == (403, 40301)
        assert code(call(server, "PUT", "/config", {"compatibility": "NONE"})) == (403, 40301)
        bearer = {"Authorization": "Bearer s3cret"}
        assert call(server, "POST", versions("s"), avro(RECORD), **bearer).status == 200
        basic = {"Authorization": "Basic YW55Ym9keTpzM2NyZXQ="}  # anybody:s3cret
        assert call(server, "DELETE", f"{versions('s')}/1", **basic).status == 200
        assert call(server, "GET", "/subjects").json() == []


# ---- the maker's own client -----------------------------------------------------------------------------------------

CLIENT = """
import base64, json, sys
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

registry = SchemaRegistryClient({"url": sys.argv[1]})
user = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "User", "type": "object",
                   "properties": {"id": {"type": "integer"}}, "required": ["id"]})
record = json.dumps({"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "int"}]})
strings = json.dumps({"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "string"}]})
facts = {}
for topic, serializer, deserializer, value in (
    ("people", JSONSerializer(user, registry), JSONDeserializer(user, schema_registry_client=registry), {"id": 7}),
    ("payments", AvroSerializer(registry, record), AvroDeserializer(registry), {"amount": 9}),
):
    context = SerializationContext(topic, MessageField.VALUE)
    data = serializer(value, context)
    assert deserializer(data, context) == value
    facts[topic] = base64.b64encode(data).decode()
subject = "payments-value"
latest = registry.get_latest_version(subject)
assert registry.get_versions(subject) == [latest.version] == [1]
assert registry.get_schema(latest.schema_id).schema_str == record
assert registry.lookup_schema(subject, Schema(record, "AVRO")).schema_id == latest.schema_id
assert registry.test_compatibility(subject, Schema(strings, "AVRO")) is False
try:
    registry.register_schema(subject, Schema(strings, "AVRO"))
except SchemaRegistryError as error:
    facts["conflict"] = [error.http_status_code, error.error_code]
registry.set_compatibility(subject_name=subject, level="NONE")
assert registry.get_compatibility(subject) == "NONE"
registry.register_schema(subject, Schema(strings, "AVRO"))
assert registry.get_versions(subject) == [1, 2]
assert registry.delete_version(subject, 2) == 2
facts["subjects"] = sorted(registry.get_subjects())
print(json.dumps(facts))
"""


def test_the_makers_own_client_and_serializers_work_as_they_are() -> None:
    with running_server() as server:
        address = f"http://127.0.0.1:{server.port('console')}"
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, address], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        facts = json.loads(done.stdout)
        assert facts["conflict"] == [409, 409]
        assert facts["subjects"] == ["payments-value", "people-value"]
        _assert_what_serializers_wrote_is_taken(server, facts)


def _assert_what_serializers_wrote_is_taken(server: Server, facts: dict[str, Any]) -> None:
    with dial_server(server) as zbus:
        for topic in ("people", "payments"):
            data = base64.b64decode(facts[topic])
            queue = zbus.create(topic)
            bind(server, queue, f"{topic}-value", "enforce")
            assert data[0] == 0
            zbus.produce(queue, data)
            assert zbus.ask("produce", data + b"\xff", mq=queue).status == 422
            assert zbus.take(queue).body == data
