"""The generated modules: up to date, apart from protobuf's own pool, with the numbers the published client has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from danube.proto import DanubeApi_pb2, SchemaRegistry_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor

from raceway.wires.danube.codec import pb as danube_pb
from raceway.wires.danube.codec.pb import danube_admin_pb2, danube_api_pb2, schema_registry_pb2
from tools.make_protos import FOLDER, make_modules


def test_the_modules_are_those_the_proto_files_give(tmp_path: Path) -> None:
    make_modules(tmp_path)
    made = {file.name: file.read_text("utf-8") for file in tmp_path.iterdir()}
    assert made == {name: (FOLDER / name).read_text("utf-8") for name in made}
    assert {file.name for file in FOLDER.glob("*_pb2.py*")} == set(made)


@pytest.mark.parametrize(
    ("published", "ours"),
    [
        (DanubeApi_pb2.DESCRIPTOR, danube_api_pb2.DESCRIPTOR),
        (SchemaRegistry_pb2.DESCRIPTOR, schema_registry_pb2.DESCRIPTOR),
    ],
)
def test_every_field_of_the_published_client_has_its_name_number_and_type(
    published: FileDescriptor, ours: FileDescriptor
) -> None:
    for name, message in published.message_types_by_name.items():
        found, wanted = shape(ours.message_types_by_name[name]), shape(message)
        assert {field: found.get(field) for field in wanted} == wanted
        added = [field.number for field in ours.message_types_by_name[name].fields if field.name not in wanted]
        assert all(number > 1000 for number in added), "ours are far from those that Danube may add"
    for name, enum in published.enum_types_by_name.items():
        assert values(ours.enum_types_by_name[name]) == values(enum)
    for name, service in published.services_by_name.items():
        mine = ours.services_by_name[name]
        assert mine.full_name == service.full_name
        for method in service.methods:
            twin = mine.methods_by_name[method.name]
            assert (twin.input_type.full_name, twin.output_type.full_name, twin.server_streaming) == (
                method.input_type.full_name, method.output_type.full_name, method.server_streaming,
            )  # fmt: skip


def shape(message: Descriptor) -> dict[str, object]:
    fields: dict[str, object] = {
        field.name: (field.number, field.type, field.is_repeated, field.has_presence) for field in message.fields
    }
    return (
        fields
        | {nested.name: shape(nested) for nested in message.nested_types}
        | {enum.name: values(enum) for enum in message.enum_types}
        | {oneof.name: [field.name for field in oneof.fields] for oneof in message.oneofs}
    )


def values(enum: EnumDescriptor) -> dict[str, int]:
    return {value.name: value.number for value in enum.values}


def test_poison_policies_have_danubes_numbers() -> None:
    assert values(danube_admin_pb2.DESCRIPTOR.enum_types_by_name["PoisonPolicy"]) == {
        "DeadLetter": 0, "Block": 1, "Drop": 2,
    }  # fmt: skip


@pytest.mark.parametrize("first", ["danube.proto.DanubeApi_pb2", "raceway.wires.danube.codec.pb.danube_api_pb2"])
def test_broker_and_client_live_in_one_process(first: str) -> None:
    code = (
        f"import {first}\n"
        "from danube.proto import DanubeApi_pb2 as theirs\n"
        "from raceway.wires.danube.codec.pb import danube_api_pb2 as ours\n"
        "sent = theirs.StreamMessage(request_id=7, payload=b'x', attributes={'a': 'b'}).SerializeToString()\n"
        "assert ours.StreamMessage.FromString(sent).attributes['a'] == 'b'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_services_are_found_by_name_in_the_pool_of_our_own() -> None:
    service = danube_pb.POOL.FindServiceByName("danube.ConsumerService")
    assert service.methods_by_name["ReceiveMessages"].server_streaming
