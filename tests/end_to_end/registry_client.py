"""Confluent's own Python serializers and registry client, with references: a program of its own.

Its argument is the address of the registry; what it saw comes out as JSON. Every check that needs no bus is made here.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

registry = SchemaRegistryClient({"url": sys.argv[1]})
facts: dict[str, Any] = {"data": {}, "refused": {}}


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def keep(topic: str, data: bytes) -> None:
    facts["data"][topic] = base64.b64encode(data).decode()


def refusal(what: str, ask: Any) -> None:
    try:
        ask()
    except SchemaRegistryError as error:
        facts["refused"][what] = [error.http_status_code, error.error_code]


def avro() -> None:
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    person = {"type": "record", "name": "Person", "namespace": "shop", "fields": [
        {"name": "home", "type": "shop.Address"}, {"name": "work", "type": ["null", "shop.Address"], "default": None},
    ]}  # fmt: skip
    registry.register_schema("address", Schema(json.dumps(address), "AVRO"))
    reference = SchemaReference("shop.Address", "address", 1)
    schema = Schema(json.dumps(person), "AVRO", [reference])
    value = {"home": {"city": "Ulm"}, "work": None}
    data = AvroSerializer(registry, schema)(value, context("avro"))
    assert AvroDeserializer(SchemaRegistryClient({"url": sys.argv[1]}))(data, context("avro")) == value
    keep("avro", data)
    found = registry.get_latest_version("avro-value")
    assert [(each.name, each.subject, each.version) for each in found.schema.references or ()] == [
        ("shop.Address", "address", 1)
    ]
    assert registry.get_referenced_by("address", 1) == [found.schema_id]
    refusal("referenced", lambda: registry.delete_subject("address"))
    refusal("no reference", lambda: registry.register_schema("x", Schema(json.dumps(person), "AVRO")))


def json_schema() -> None:
    draft = "http://json-schema.org/draft-07/schema#"
    address = {"$schema": draft, "$id": "http://shop/address.json", "type": "object",
               "properties": {"city": {"type": "string"}}, "required": ["city"]}  # fmt: skip
    person = {"$schema": draft, "$id": "http://shop/person.json", "title": "Person", "type": "object",
              "properties": {"home": {"$ref": "http://shop/address.json"}}, "required": ["home"]}  # fmt: skip
    registry.register_schema("address-json", Schema(json.dumps(address), "JSON"))
    reference = SchemaReference("http://shop/address.json", "address-json", 1)
    schema = Schema(json.dumps(person), "JSON", [reference])
    value = {"home": {"city": "Ulm"}}
    data = JSONSerializer(schema, registry)(value, context("json"))
    assert JSONDeserializer(schema, schema_registry_client=registry)(data, context("json")) == value
    keep("json", data)


def protobuf_classes() -> tuple[Any, Any]:
    """`shop/person.proto` imports `shop/address.proto` and a well-known file, and nests a message."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    field = descriptor_pb2.FieldDescriptorProto
    address = descriptor_pb2.FileDescriptorProto(name="shop/address.proto", package="shop", syntax="proto3")
    city = address.message_type.add(name="Address")
    city.field.add(name="city", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    person = descriptor_pb2.FileDescriptorProto(
        name="shop/person.proto",
        package="shop",
        syntax="proto3",
        dependency=["shop/address.proto", "google/protobuf/timestamp.proto"],
    )
    person.options.java_package = "com.shop"
    message = person.message_type.add(name="Person")
    optional = field.LABEL_OPTIONAL
    message.field.add(name="home", number=1, type=field.TYPE_MESSAGE, type_name=".shop.Address", label=optional)
    stamp = ".google.protobuf.Timestamp"
    message.field.add(name="born_at", number=2, type=field.TYPE_MESSAGE, type_name=stamp, label=optional)
    pet = message.nested_type.add(name="Pet")
    pet.field.add(name="name", number=1, type=field.TYPE_STRING, label=optional)
    for file in (address, person):
        pool.Add(file)
    found = pool.FindFileByName("shop/person.proto").message_types_by_name["Person"]
    return message_factory.GetMessageClass(found), message_factory.GetMessageClass(found.nested_types_by_name["Pet"])


def protobuf() -> None:
    person_class, pet_class = protobuf_classes()
    person = person_class(home={"city": "Ulm"})
    person.born_at.seconds = 7
    for topic, kind, value in (("proto", person_class, person), ("pets", pet_class, pet_class(name="Rex"))):
        data = ProtobufSerializer(kind, registry)(value, context(topic))
        fresh = SchemaRegistryClient({"url": sys.argv[1]})
        assert ProtobufDeserializer(kind, {}, fresh)(data, context(topic)) == value
        keep(topic, data)
    found = registry.get_latest_version("proto-value")
    assert [each.name for each in found.schema.references or ()] == ["shop/address.proto"]
    assert "message Person" in (found.schema.schema_str or "")
    as_bytes = registry.get_schema(found.schema_id or 0, fmt="serialized").schema_str or ""
    assert descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(as_bytes)).message_type[0].name == "Person"
    # Without registering: what it sends is looked up, in its own form and in the form of a text.
    again = ProtobufSerializer(person_class, registry, {"auto.register.schemas": False})
    assert again(person, context("proto")) == base64.b64decode(facts["data"]["proto"])


def lives() -> None:
    registry.set_compatibility("avro-value", "FULL_TRANSITIVE")
    assert registry.get_compatibility("avro-value") == "FULL_TRANSITIVE"
    number = registry.register_schema("short", Schema('"long"', "AVRO"))
    assert registry.delete_subject("short") == [1]
    assert SchemaRegistryClient({"url": sys.argv[1]}).get_schema(number).schema_str == '"long"'
    assert "short" in registry.get_subjects(deleted=True)
    assert registry.get_versions("short", deleted=True) == [1]
    other = SchemaRegistryClient({"url": sys.argv[1]})
    assert other.register_schema("short", Schema('"long"', "AVRO")) == number
    assert other.register_schema("another", Schema('"long"', "AVRO")) == number
    assert {each.subject for each in other.get_schema_versions(number)} == {"short", "another"}
    assert other.update_mode("short", "READONLY") == "READONLY"
    refusal("read-only", lambda: other.register_schema("short", Schema('"int"', "AVRO")))
    assert other.delete_mode("short") == "READONLY"
    other.delete_subject("short")
    assert other.delete_subject("short", permanent=True) == [2]
    assert other.get_contexts() == ["."]
    refusal("import", lambda: other.update_global_mode("IMPORT"))


for part in (avro, json_schema, protobuf, lives):
    part()
print(json.dumps(facts))
