"""`/asyncapi.json`, held against the official JSON schema of AsyncAPI."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import pytest
from starlette.applications import Starlette

from raceway.model.intents.schemas import RegisterSchema
from raceway.web import asyncapi
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message, new_id
from tests.rigs.tools import asyncapi_schemas
from tests.web.asgi import ask

DOORS = {"mb": 3001, "mb+ws": 3000, "danube": 6650, "zbus": 15555, "seneca": 10101, "seneca+tcp": 10201,
         "console": 8600, "tracker": 1}  # fmt: skip
AVRO = {"type": "record", "name": "Bag", "fields": [{"name": "n", "type": ["null", "long"], "default": None}]}
PROTO = 'syntax = "proto3"; message Bag { int64 n = 1; }'
DEFINITIONS: dict[str, tuple[str, str]] = {
    "bag": ("json_schema", '{"type":"object","properties":{"n":{"type":"integer"}}}'),
    "old": ("json_schema", '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'),
    "older": (
        "json_schema",
        '{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}',
    ),
    "avro": ("avro", json.dumps(AVRO)),
    "proto": ("protobuf", PROTO),
    "text": ("string", ""),
    "number": ("number", ""),
    "bytes": ("bytes", ""),
}


@lru_cache
def validator() -> Any:
    return jsonschema_rs.Draft7Validator(json.loads((asyncapi_schemas() / "3.1.0-without-$id.json").read_text()))


def described(app: Starlette, query: str = "") -> Any:
    document = ask(app, f"/asyncapi.json{query}").json()
    errors = [f"{list(error.instance_path)}: {error.message}" for error in validator().iter_errors(document)]
    assert errors == []
    _check_references(document, document)
    return document


def _check_references(part: Any, document: Any) -> None:
    """Every `$ref` of the document itself leads somewhere."""
    if isinstance(part, dict):
        if "schemaFormat" in part:
            return
        if (reference := part.get("$ref")) is not None:
            found = document
            for step in reference.removeprefix("#/").split("/"):
                found = found[unquote(step).replace("~1", "/").replace("~0", "~")]
        for value in part.values():
            _check_references(value, document)
    elif isinstance(part, list):
        for value in part:
            _check_references(value, document)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for name in (b"shop.orders", "größe".encode(), b"with_dash-and.dots"):
        bench.publish(bench.exact_peer(), Message(name))
    bench.responder("math.sum")
    bench.request(bench.peer(), Message(b"math.sum", id=new_id()))
    bench.broker.topics.own("/ns/private")
    bench.broker.topics.own("raceway.rejected")
    bench.loop.settle()
    return bench


def test_the_official_schema_refuses_what_is_wrong() -> None:
    document = ask(build_app(DOOR(Bench().broker), (), doors=DOORS), "/asyncapi.json").json()
    assert validator().is_valid(document)
    assert not validator().is_valid(document | {"channels": {"x": {"wrong": 1}}})


def test_an_empty_bus_has_a_valid_document() -> None:
    assert described(build_app(DOOR(Bench().broker), (), doors=DOORS))["channels"] == {}


def test_live_topics_are_channels_with_the_servers_that_can_spell_them(bench: Bench) -> None:
    document = described(build_app(DOOR(bench.broker), (), doors=DOORS))
    assert document["asyncapi"] == "3.1.0"
    assert set(document["servers"]) == {"mb", "mb-ws", "danube", "zbus", "seneca", "seneca-tcp", "console"}
    channels = document["channels"]
    assert "servers" not in channels["shop.orders"]  # all of them
    assert {"$ref": "#/servers/mb"} not in channels["größe"]["servers"]
    assert channels["/ns/private"]["servers"] == [{"$ref": "#/servers/danube"}]
    assert channels["shop.orders"]["x-raceway-offsets"] == {"first": 0, "next": 1}


def test_operations_say_who_publishes_who_subscribes_and_who_answers(bench: Bench) -> None:
    operations = described(build_app(DOOR(bench.broker), (), doors=DOORS))["operations"]
    assert operations["publish shop.orders"]["action"] == "receive"
    assert operations["subscribe shop.orders"]["action"] == "send"
    assert "reply" in operations["publish math.sum"]
    assert "reply" not in operations["publish shop.orders"]
    assert "publish raceway.rejected" not in operations


@pytest.mark.parametrize("subject", DEFINITIONS)
def test_schemas_are_in_the_form_of_their_own_language(bench: Bench, subject: str) -> None:
    schema_type, definition = DEFINITIONS[subject]
    bench.broker.schemas.register(RegisterSchema(subject, schema_type, definition.encode()))
    bench.broker.schemas.configure(bench.broker.topics.own("shop.orders"), subject, "enforce", True)
    document = described(build_app(DOOR(bench.broker), (), doors=DOORS))
    message = document["channels"]["shop.orders"]["messages"]["message"]
    assert message["x-raceway-schema"]["policy"] == "enforce"
    (schema,) = document["components"]["schemas"].values()
    assert message["payload"]["$ref"].startswith("#/components/schemas/")
    if schema_type == "avro":
        assert schema["schema"] == AVRO
    elif schema_type == "protobuf":
        assert schema["schema"] == PROTO
    elif subject == "old":
        assert schema["schemaFormat"].endswith("draft-07")


def test_many_topics_come_in_several_documents(bench: Bench) -> None:
    app = build_app(DOOR(bench.broker), (), doors=DOORS)
    names: list[str] = []
    query = "?limit=2"
    while True:
        document = described(app, query)
        names += document["channels"]
        if asyncapi.MORE not in document:
            break
        query = f"?limit=2&after={document[asyncapi.MORE]}".replace("ö", "%C3%B6").replace("ß", "%C3%9F")
    assert names == sorted(topic.name for topic in bench.broker.topics)


def test_definitions_in_one_document_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncapi._Schemas, "room", 10)
    schema_type, definition = DEFINITIONS["bag"]
    bench.broker.schemas.register(RegisterSchema("bag", schema_type, definition.encode()))
    bench.broker.schemas.configure(bench.broker.topics.own("shop.orders"), "bag", "warn", False)
    document = described(build_app(DOOR(bench.broker), (), doors=DOORS))
    message = document["channels"]["shop.orders"]["messages"]["message"]
    assert (document["components"]["schemas"], "payload" in message) == ({}, False)
    assert message["x-raceway-schema"]["subject"] == "bag"


def test_a_limit_that_is_no_number_is_refused(bench: Bench) -> None:
    assert ask(build_app(DOOR(bench.broker), ()), "/asyncapi.json?limit=x").status == 400
