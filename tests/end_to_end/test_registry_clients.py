"""Clients of Confluent's registry, each in a process of its own, against a started bus: Python's and Node's.

What their serializers write is then published on topics that are held to those schemas.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rigs.schema_rest import bind, call
from tests.rigs.server import Server, running_server
from tests.rigs.tools import HERE, INSTALL_S, confluent_js, installed
from tests.rigs.zbus_wire import dial_server

RUN_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(command: list[str], server: Server) -> dict[str, Any]:
    command = [*command, f"http://127.0.0.1:{server.port('console')}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_is_held_to_its_schema(server: Server, topic: str, data: bytes) -> None:
    with dial_server(server) as zbus:
        queue = zbus.create(topic)
        bind(server, queue, f"{topic}-value", "enforce")
        zbus.produce(queue, data)
        assert zbus.take(queue).body == data
        assert zbus.ask("produce", data + b"\xff", mq=queue).status == 422


def test_confluents_python_serializers_with_references(server: Server) -> None:
    facts = run([sys.executable, str(HERE / "end_to_end" / "registry_client.py")], server)
    assert facts["refused"] == {
        "referenced": [422, 42206],
        "no reference": [422, 42201],
        "read-only": [422, 42205],
        "import": [422, 42205],
    }
    for topic, data in facts["data"].items():
        assert_is_held_to_its_schema(server, topic, base64.b64decode(data))


def test_a_descriptor_finds_the_schema_that_was_registered_as_text(server: Server) -> None:
    """Who registers a file by hand and who serializes with classes made from it mean the same schema."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    text = 'syntax = "proto3"; // by hand\npackage shop;\nmessage Order { int64 id = 1; repeated Order parts = 2; }'
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field, kinds = message.field, FieldDescriptorProto
    field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL, json_name="id")
    field.add(name="parts", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.Order", label=kinds.LABEL_REPEATED)
    sent = {"schemaType": "PROTOBUF", "schema": base64.b64encode(file.SerializeToString()).decode()}
    by_hand = call(server, "POST", "/subjects/by-hand/versions", {"schemaType": "PROTOBUF", "schema": text}).json()
    assert call(server, "POST", "/subjects/by-hand", sent).json()["id"] == by_hand["id"]
    assert call(server, "GET", f"/schemas/ids/{by_hand['id']}").json()["schema"] == text
    shown = call(server, "GET", "/subjects/by-hand/versions/1?format=serialized").json()["schema"]
    again = FileDescriptorProto.FromString(base64.b64decode(shown))
    assert [each.name for each in again.message_type[0].field] == ["id", "parts"]
    fresh = call(server, "POST", "/subjects/by-class/versions", sent).json()
    assert fresh["id"] == by_hand["id"]
    assert "repeated .shop.Order parts = 2;" in fresh["schema"]


def test_payloads_name_nested_messages_by_their_place_in_the_descriptor(server: Server) -> None:
    """Maps are nested messages as well: the text that is kept has all of them in their order."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name="x.proto", syntax="proto3")
    outer, kinds = file.message_type.add(name="Outer"), FieldDescriptorProto
    entry = outer.nested_type.add(name="PartsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="n", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    outer.field.add(name="parts", number=1, type=kinds.TYPE_MESSAGE, type_name=".Outer.PartsEntry",
                    label=kinds.LABEL_REPEATED)  # fmt: skip
    sent = {"schemaType": "PROTOBUF", "schema": base64.b64encode(file.SerializeToString()).decode()}
    number = call(server, "POST", "/subjects/places-value/versions", sent).json()["id"]
    indices = b"\x04\x00\x02"  # two of them: 0, 1
    framed = b"\x00" + number.to_bytes(4, "big") + indices
    with dial_server(server) as zbus:
        queue = zbus.create("places")
        bind(server, queue, "places-value", "enforce")
        zbus.produce(queue, framed + b"\x08\x07")
        assert zbus.ask("produce", framed + b"\x0a\x01x", mq=queue).status == 422


@pytest.mark.timeout(3 * INSTALL_S + RUN_S)
def test_the_registry_client_of_node_with_references_and_transitive_levels(server: Server) -> None:
    folder, node = confluent_js(), installed("node", "nodejs")
    shutil.copy(HERE / "confluent_js" / "client.js", folder)
    seen = run([node, str(folder / "client.js")], server)
    assert seen["data"].keys() == {"js-avro", "js-json", "js-proto"}
    assert all(each["back"] == {"home": {"city": "Ulm"}} for each in seen["data"].values())
    assert seen["conflict"]["status"] == 409
    assert "incompatible" in seen["conflict"]["message"]
    assert (seen["unknown"]["status"], "not found" in seen["unknown"]["message"]) == (404, True)
    assert seen["latest"] == seen["data"]["js-avro"]["id"]
    assert call(server, "GET", "/config/js-avro-value").json() == {"compatibilityLevel": "BACKWARD_TRANSITIVE"}
    for topic, each in seen["data"].items():
        assert_is_held_to_its_schema(server, topic, base64.b64decode(each["framed"]))
