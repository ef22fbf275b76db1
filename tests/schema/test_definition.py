from __future__ import annotations

import hashlib

import pytest

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import mode_of, policy_of, schema_type_of
from raceway.schema.framing import maybe_indices, maybe_registry_id
from raceway.schema.reading import incompatibilities, read_definition


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bytes", "bytes"), ("string", "string"), ("number", "number"), ("avro", "avro"),
        ("json_schema", "json_schema"), ("protobuf", "protobuf"), ("json", "json_schema"), ("proto", "protobuf"),
        ("int", "number"), ("int64", "number"), ("float", "number"), ("double", "number"),
        ("AVRO", "avro"), ("Json_Schema", "json_schema"),
    ],
)  # fmt: skip
def test_types_have_six_names_and_several_aliases_in_any_case(said: str, meant: str) -> None:
    assert schema_type_of(said) == meant


@pytest.mark.parametrize("find", [schema_type_of, mode_of, policy_of])
def test_an_unknown_word_is_refused_and_the_known_ones_are_named(find: object) -> None:
    with pytest.raises(SchemaInvalidError, match="'xml' is not one of "):
        find("xml")  # type: ignore[operator]


def test_modes_and_policies_are_compared_without_regard_to_case() -> None:
    assert mode_of("FULL") == "full"
    assert policy_of("Enforce") == "enforce"


@pytest.mark.parametrize(
    ("schema_type", "good", "bad"),
    [
        ("string", ["", "grün"], [b"\xff"]),
        ("number", [b"1234", b"12345678"], [b"", b"123", b"123456789"]),
        ("bytes", [b"", b"\xff\x00"], []),
    ],
)
def test_plain_types_check_what_they_can(schema_type: str, good: list[str | bytes], bad: list[bytes]) -> None:
    definition = read_definition(schema_type, b"anything")  # type: ignore[arg-type]
    for payload in good:
        assert definition.maybe_fault(payload.encode() if isinstance(payload, str) else payload) is None
    for payload in bad:
        assert definition.maybe_fault(payload) is not None


def test_a_plain_type_has_the_fingerprint_of_its_bare_name() -> None:
    expected = "sha256:" + hashlib.sha256(b"string").hexdigest()
    assert read_definition("string", b"a").fingerprint == read_definition("string", b"b").fingerprint == expected


@pytest.mark.parametrize("schema_type", ["json_schema", "avro"])
def test_layout_and_order_of_keys_do_not_change_a_fingerprint(schema_type: str) -> None:
    spaced = read_definition(schema_type, b'{ "type" : "string", "doc": "\xc3\xbc" }')  # type: ignore[arg-type]
    tight = read_definition(schema_type, b'{"doc":"\xc3\xbc","type":"string"}')  # type: ignore[arg-type]
    assert spaced.fingerprint == tight.fingerprint
    assert spaced.fingerprint == "sha256:" + hashlib.sha256('{"doc":"ü","type":"string"}'.encode()).hexdigest()


def test_layout_and_comments_do_not_change_the_fingerprint_of_a_protobuf_definition() -> None:
    tight = read_definition("protobuf", b'syntax = "proto3"; package p; message A { A a = 1; int32 b = 2; }')
    spaced = read_definition("protobuf", b'syntax="proto3";\npackage p; // x\nmessage A {\n .p.A a=1;\n int32 b=2; }')
    assert tight.fingerprint == spaced.fingerprint


@pytest.mark.parametrize("text", [
    b'syntax = "proto3"; message A { int32 b = 2 [deprecated = true]; int32 c = 3; }',
    b'syntax = "proto3"; message A { int32 b = 2; int32 c = 3 [deprecated = true]; }',
    b'syntax = "proto3"; option java_package = "x"; message A { int32 b = 2; int32 c = 3; }',
    b'syntax = "proto3"; message A { int32 b = 2; int32 c = 3; } service S { rpc M (A) returns (A); }',
    b'syntax = "proto3"; message A { int32 b = 2; int64 c = 3; }',
])  # fmt: skip
def test_what_a_protobuf_definition_says_beside_its_fields_is_part_of_it(text: bytes) -> None:
    plain = b'syntax = "proto3"; message A { int32 b = 2; int32 c = 3; }'
    others = {read_definition("protobuf", each).fingerprint for each in (plain, text)}
    assert len(others) == 2


def test_former_releases_took_the_text_of_a_protobuf_definition_as_it_was() -> None:
    text = b'syntax = "proto3"; message A {}'
    assert read_definition("protobuf", text).former_fingerprint == "sha256:" + hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("mode", ["backward", "forward", "full"])
def test_a_change_of_type_is_incompatible_in_every_mode_but_none(mode: str) -> None:
    old, new = read_definition("string", b""), read_definition("json_schema", b"{}")
    assert incompatibilities(new, old, mode) == ["the type changes from string to json_schema"]  # type: ignore[arg-type]
    assert incompatibilities(new, old, "none") == []


@pytest.mark.parametrize("schema_type", ["bytes", "string", "number"])
def test_plain_types_are_always_compatible_with_themselves(schema_type: str) -> None:
    old, new = (read_definition(schema_type, text) for text in (b"a", b"b"))  # type: ignore[arg-type]
    assert incompatibilities(new, old, "full") == []


@pytest.mark.parametrize("schema_type", ["json_schema", "avro", "protobuf"])
def test_a_definition_must_be_utf8(schema_type: str) -> None:
    with pytest.raises(SchemaInvalidError, match="is not UTF-8"):
        read_definition(schema_type, b"\xff{}")  # type: ignore[arg-type]


def test_the_prefix_is_a_zero_byte_and_four_bytes_of_id() -> None:
    assert maybe_registry_id(b"\x00\x00\x00\x01\x02rest") == 258
    assert maybe_registry_id(b"\x01\x00\x00\x01\x02") is None
    assert maybe_registry_id(b"\x00\x00\x00\x01") is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00body", ((0,), b"body")),
        (b"\x02\x00body", ((0,), b"body")),
        (b"\x04\x02\x04x", ((1, 2), b"x")),
        (b"\x02\x80\x02", ((128,), b"")),
        (b"", None),
        (b"\x01", None),
        (b"\x04\x02", None),
        (b"\xff\xff\xff\xff\xff\xff", None),
    ],
)
def test_protobuf_payloads_name_their_message_type(data: bytes, expected: object) -> None:
    assert maybe_indices(data) == expected
