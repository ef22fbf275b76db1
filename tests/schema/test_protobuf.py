from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.errors import SchemaInvalidError
from raceway.schema.protobuf import Protobuf
from raceway.schema.reading import incompatibilities

ORDER = b"""
syntax = "proto3"; // the first line
package shop.v1;
import "google/protobuf/timestamp.proto";
import public "google/protobuf/any.proto";
option java_package = "org.example";
option (custom).thing = { a: 1 b { c: "}" } };

/* an order */
message Order {
  string id = 1;
  repeated int32 numbers = 2 [packed = true, deprecated = false];
  map<string, Item> items = 3;
  optional int64 quantity = 4;
  oneof payment { string card = 5; Item other = 6; }
  message Item { double price = 1; Kind kind = 2; google.protobuf.Timestamp at = 3; }
  enum Kind { option allow_alias = true; A = 0; B = 1; C = 1 [deprecated = true]; reserved 5 to 7; }
  reserved 10 to 20, 30; reserved "foo", "bar";
  sint32 delta = 7; fixed32 f = 8; bytes raw = 9;
}
message Second { int32 only = 1; }
service Shop { rpc Buy(stream Order) returns (Order) { option idempotency_level = IDEMPOTENT; } }
"""


def proto(body: str, syntax: str = "proto3") -> Protobuf:
    return Protobuf(f'syntax = "{syntax}"; {body}'.encode())


def rule(definition: Protobuf, payload: bytes, index: tuple[int, ...] = ()) -> tuple[str, str] | None:
    found = definition.maybe_fault(payload, index)
    return None if found is None else (found.path, found.rule)


def test_a_whole_file_is_read() -> None:
    order: Any = Protobuf(ORDER)
    assert order.first.full_name == "shop.v1.Order"
    assert [field.name for field in order.first.fields] == [
        "id", "numbers", "items", "quantity", "card", "other", "delta", "f", "raw"
    ]  # fmt: skip
    assert order.first.fields_by_name["quantity"].has_presence
    assert not order.first.fields_by_name["id"].has_presence
    assert order.first.fields_by_name["card"].containing_oneof.name == "payment"
    assert order.first.fields_by_name["items"].message_type.fields_by_name["value"].message_type.name == "Item"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", None),
        (b"\x0a\x02ab\x12\x02\x01\x02", None),
        (b"\xa2\x06\x01x", None),  # a field the definition does not have
        (b"\x0a\x05ab", ("", "shop.v1.Order")),
        (b"\x0a\x01\xff", ("", "shop.v1.Order")),  # text that is no UTF-8
        (b"\x00", ("", "shop.v1.Order")),
        (b"\x08\x01", ("/id", "wire type")),
        (b"\x32\x02\x08\x01", ("/other/price", "wire type")),
        (b"\x1a\x07\x0a\x01k\x12\x02\x08\x01", ("/items/price", "wire type")),
    ],
)
def test_payloads_are_decoded_by_the_first_message(payload: bytes, expected: tuple[str, str] | None) -> None:
    assert rule(Protobuf(ORDER), payload) == expected


def test_another_message_can_be_chosen() -> None:
    order = Protobuf(ORDER)
    assert rule(order, b"\x08\x01", (1,)) is None
    assert rule(order, b"\x0a\x01x", (1,)) == ("/only", "wire type")
    assert rule(order, b"", (7,)) == ("", "message")


def test_required_fields_groups_and_extensions_of_proto2() -> None:
    old = proto(
        "message A { required int32 a = 1; optional group G = 2 { optional string s = 1; } "
        "optional E e = 3 [default = X]; extensions 100 to max; enum E { X = 1; Y = -2; } } "
        "extend A { optional int32 z = 100; }",
        "proto2",
    )
    assert rule(old, b"") == ("", "required")
    assert rule(old, b"\x08\x01\x13\x0a\x01x\x14") is None
    assert rule(old, b"\x08\x01\x18\x63") is None  # an unknown value of an enum is kept aside, and fine


@pytest.mark.parametrize(
    ("definition", "complaint"),
    [
        (b"", "no message or enum type"),
        (b"message", "line 1: expected a name"),
        (b'syntax = "proto3";\n\nmessage A {\n  int32 a = 1\n}', "line 5: expected ';'"),
        (b'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "duplicate field number"),
        (b'syntax = "proto3"; message A { int32 a = 1; int32 a = 2; }', "duplicate"),
        (b'syntax = "proto3"; message A {} message A {}', "duplicate"),
        (b'syntax = "proto3"; message A { Foo a = 1; }', "Foo"),
        (b'syntax = "proto3"; message A { string a = 0; }', "not a valid field number"),
        (b'syntax = "proto3"; message A { string a = 536870912; }', "not a valid field number"),
        (b'syntax = "proto3"; message A { required string a = 1; }', "no required fields"),
        (b'syntax = "proto3"; message A { map<double, int32> a = 1; }', "key type of a map"),
        (b'syntax = "proto3"; enum E { A = 1; } message M {}', "first value must be zero"),
        (b"message A { int32 a = 1; }", "begins with optional, required or repeated"),
        (b'syntax = "proto4"; message A {}', "unsupported syntax"),
        (b'edition = "2023"; message A {}', "editions"),
        (b'syntax = "proto3"; import "other.proto"; message A {}', "not among its references"),
        (b'syntax = "proto3"; import "/etc/passwd"; message A {}', "not among its references"),
        (b'syntax = "proto3"; message A { ', "expected"),
        (b'syntax = "proto3"; service S { rpc X', "unterminated block"),
        (b"%", "unexpected character"),
        (b"/* never closed", "unexpected character"),
        (b'"text without end', "unexpected character"),
    ],
)
def test_what_is_no_definition_is_refused_with_the_reason(definition: bytes, complaint: str) -> None:
    with pytest.raises(SchemaInvalidError, match=complaint):
        Protobuf(definition)


@given(st.text(alphabet='message Az{}=;0123[]()"/*.,<>-\n', max_size=120))
@settings(max_examples=500)
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with suppress(SchemaInvalidError):
        Protobuf(text.encode())


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_no_payload_does_more_than_be_refused(payload: bytes) -> None:
    Protobuf(ORDER).maybe_fault(payload)


def test_deep_definitions_and_deep_messages_are_bounded() -> None:
    with pytest.raises(SchemaInvalidError):
        Protobuf(b'syntax = "proto3"; ' + b"message A { " * 5000 + b"}" * 5000)
    tree = proto("message T { T t = 1; }")
    payload = b""
    while len(payload) < 5000:
        size, head = len(payload), b""
        while size >= 0x80:
            head, size = head + bytes((size & 0x7F | 0x80,)), size >> 7
        payload = b"\x0a" + head + bytes((size,)) + payload
    assert tree.maybe_fault(payload) is not None


def test_a_large_definition_is_read_in_time() -> None:
    fields = " ".join(f"int32 field_{number} = {number};" for number in range(1, 1000))
    began = time.process_time()
    proto(" ".join(f"message A{number} {{ {fields} }}" for number in range(30)))
    assert time.process_time() - began < 5


# ---- compatibility --------------------------------------------------------------------------------------------------

# old, new, backward, forward
CHANGES = [
    ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }", True, True),
    ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", True, True),
    ("message A { int32 a = 1; }", "message A { string a = 1; }", False, False),
    ("message A { int32 a = 1; }", "message A { int32 b = 1; }", False, False),
    ("message A { int32 a = 1; }", "message A { int32 a = 2; }", True, True),
    ("message A { int32 a = 1; }", "message A { int64 a = 1; }", True, True),
    ("message A { int32 a = 1; }", "message A { sint32 a = 1; }", False, False),
    ("message A { int32 a = 1; }", "message A { fixed32 a = 1; }", False, False),
    ("message A { float a = 1; }", "message A { fixed32 a = 1; }", False, False),
    ("message A { string a = 1; }", "message A { bytes a = 1; }", True, False),
    ("message A { string a = 1; }", "message A { repeated string a = 1; }", True, True),
    ("message A { int32 a = 1; }", "message A { repeated int32 a = 1; }", True, False),
    ("message A { I i = 1; message I { int32 x = 1; } }", "message A { I i = 1; message I { string x = 1; } }", False,
     False),
    ("message A { I i = 1; } message I { int32 x = 1; }", "message A { J i = 1; } message J { int32 x = 1; }", True,
     True),
    ("message A { map<string, int32> m = 1; }", "message A { map<string, string> m = 1; }", False, False),
    ("message A { map<string, int32> m = 1; }", "message A { map<string, int64> m = 1; }", True, True),
    ("message A { A next = 1; int32 x = 2; }", "message A { A next = 1; string x = 2; }", False, False),
    ("message A { int32 a = 1; } message B { int32 b = 1; }", "message A { int32 a = 1; } message B { string b = 1; }",
     False, False),
    ("message A { int32 a = 1; }", "message Renamed { int32 a = 1; }", True, True),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "backward", "forward"), CHANGES)
def test_a_number_keeps_its_name_and_its_wire_type(old: str, new: str, backward: bool, forward: bool) -> None:
    assert (not incompatibilities(proto(new), proto(old), "backward")) is backward
    assert (not incompatibilities(proto(new), proto(old), "forward")) is forward


def test_a_required_field_must_be_written() -> None:
    old, new = (
        proto("message A { optional int32 a = 1; }", "proto2"),
        proto("message A { required int32 a = 1; }", "proto2"),
    )
    assert incompatibilities(new, old, "backward")
    assert not incompatibilities(new, old, "forward")
    assert incompatibilities(new, proto("message A {}", "proto2"), "backward")


WRITTEN = st.binary(max_size=40)


@given(st.sampled_from(CHANGES), WRITTEN)
@settings(max_examples=500)
def test_where_definitions_are_called_compatible_bytes_of_the_one_are_bytes_of_the_other(
    change: tuple[str, str, bool, bool], payload: bytes
) -> None:
    old, new, backward, forward = change
    for reader, writer, compatible in ((new, old, backward), (old, new, forward)):
        if compatible and proto(writer).maybe_fault(payload) is None and _knows_all(writer, payload):
            assert proto(reader).maybe_fault(payload) is None


def _knows_all(writer: str, payload: bytes) -> bool:
    """A writer writes only fields of its own definition."""
    definition = proto(writer)
    message = _decoded(definition, payload)
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() == before)


def _decoded(definition: Protobuf, payload: bytes) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(definition.first).FromString(payload)
