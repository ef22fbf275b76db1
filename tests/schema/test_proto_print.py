"""What a descriptor says is said again by the text made of it, as the text's own reader and `protoc` see it."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import api_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]

from raceway.errors import SchemaInvalidError
from raceway.schema.proto_print import maybe_from_base64, print_file
from raceway.schema.protobuf import Protobuf
from raceway.wires.danube.codec.pb import danube_admin_pb2, danube_api_pb2, schema_registry_pb2

MODULES = (api_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2, danube_api_pb2, danube_admin_pb2,
           schema_registry_pb2)  # fmt: skip
EVERYTHING = """
syntax = "proto2";
package shop;
import public "google/protobuf/timestamp.proto";
option java_package = "com.shop";
option optimize_for = SPEED;
enum Colour {
  option allow_alias = true;
  RED = 0;
  ROSSO = 0 [deprecated = true];
  reserved 5, 7 to 9;
  reserved "BLUE";
}
message Order {
  required int64 id = 1;
  optional string note = 2 [default = "a \\"quoted\\" one", json_name = "remark"];
  repeated sint32 sizes = 3 [packed = true];
  map<string, Order> parts = 4;
  oneof payment {
    bytes card = 5;
    Colour colour = 6;
  }
  optional group Box = 7 {
    optional float weight = 1;
  }
  optional google.protobuf.Timestamp at = 8;
  optional Colour paint = 9 [default = ROSSO];
  message Inner { optional double x = 1 [default = -inf]; }
  optional Inner inner = 10;
  reserved 20, 30 to 40;
  reserved "gone";
  extensions 100 to max;
}
extend Order {
  optional bool gift = 100;
}
service Orders {
  rpc Put (Order) returns (stream Order);
}
"""


def compiled(text: str, folder: Path) -> FileDescriptorProto:
    """By the language's own compiler."""
    (folder / "x.proto").write_text(text)
    include = Path(protoc.__file__).parent / "_proto"
    command = ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={folder / 'out'}", "x.proto"]
    assert protoc.main(command) == 0
    found: FileDescriptorProto = FileDescriptorSet.FromString((folder / "out").read_bytes()).file[0]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_descriptors_of_real_files_become_texts_that_say_the_same(module: Any) -> None:
    sent = b64encode(module.DESCRIPTOR.serialized_pb)
    text = maybe_from_base64(sent)
    assert text is not None
    assert Protobuf(sent).fingerprint == Protobuf(text).fingerprint
    expected = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    found = FileDescriptorProto.FromString(Protobuf(text).serialized)
    assert [each.name for each in found.message_type] == [each.name for each in expected.message_type]
    for ours, theirs in zip(found.message_type, expected.message_type, strict=True):
        assert [(f.name, f.number, f.type, f.label, f.type_name) for f in ours.field] == [
            (f.name, f.number, f.type, f.label, f.type_name) for f in theirs.field
        ]


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_the_compiler_makes_the_same_descriptor_of_the_printed_text(syntax: str, tmp_path: Path) -> None:
    text = (
        EVERYTHING
        if syntax == "proto2"
        else """
        syntax = "proto3";
        message A { optional int32 maybe = 1; repeated int64 many = 2 [packed = false]; A self = 3; reserved 9; }
    """
    )
    first = compiled(text, tmp_path)
    assert compiled(print_file(first), tmp_path) == first


def test_the_text_of_a_file_and_its_descriptor_are_one_schema(tmp_path: Path) -> None:
    descriptor = compiled(EVERYTHING, tmp_path)
    assert Protobuf(b64encode(descriptor.SerializeToString())).fingerprint == Protobuf(EVERYTHING.encode()).fingerprint


@pytest.mark.parametrize("text", [b"", b"Zm9v", b"AAAA", b"!", b'syntax = "proto3"; message A {}', b"\xff\xfe"])
def test_what_is_no_descriptor_is_left_to_the_reader_of_texts(text: bytes) -> None:
    assert maybe_from_base64(text) is None


def test_what_the_text_could_not_say_is_refused() -> None:
    with pytest.raises(SchemaInvalidError, match="editions"):
        print_file(FileDescriptorProto(name="x", syntax="editions"))
