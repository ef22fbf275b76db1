from __future__ import annotations

import json
from typing import Any

import pytest

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import Referenced
from raceway.schema.reading import incompatibilities, read_definition

ADDRESS = {"$id": "https://shop/address.json", "type": "object", "required": ["city"],
           "properties": {"city": {"$ref": "#/definitions/name"}, "flat": {"$ref": "#flat"}},
           "definitions": {"name": {"type": "string"}, "f": {"$anchor": "flat", "type": "integer"}}}  # fmt: skip


def read(document: Any, **used: Any) -> Any:
    references = tuple(Referenced(name.replace("_", "."), json.dumps(each).encode()) for name, each in used.items())
    return read_definition("json_schema", json.dumps(document).encode(), references)


def fits(definition: Any, value: Any) -> bool:
    return definition.maybe_fault(json.dumps(value).encode()) is None


@pytest.mark.parametrize(
    "document",
    [
        {"properties": {"to": {"$ref": "address.json"}}},
        {"$id": "https://shop/order.json", "properties": {"to": {"$ref": "address.json"}}},
        {"$id": "https://shop/order.json", "properties": {"to": {"$ref": "https://shop/address.json"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"to": {"$ref": "address.json#"}}},
        {"$defs": {"a": {"$ref": "address.json"}}, "properties": {"to": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_is_found_by_its_name_and_relative_to_the_address_of_the_document(document: Any) -> None:
    order = read(document, address_json=ADDRESS)
    assert fits(order, {"to": {"city": "Ulm", "flat": 7}})
    wrong: dict[str, Any]
    for wrong in ({"to": {}}, {"to": {"city": 7}}, {"to": {"city": "Ulm", "flat": "x"}}):
        assert not fits(order, wrong)


def test_a_path_leads_into_a_schema_and_on_to_others() -> None:
    person = {"properties": {"home": {"$ref": "address.json"}, "friend": {"$ref": "#"}}}
    order = read({"properties": {"city": {"$ref": "address.json#/definitions/name"}, "by": {"$ref": "person.json"}}},
                 address_json=ADDRESS, person_json=person)  # fmt: skip
    assert fits(order, {"city": "Ulm", "by": {"friend": {"home": {"city": "Ulm"}}}})
    assert not fits(order, {"city": 7})
    assert not fits(order, {"by": {"friend": {"home": {"city": 7}}}})


def test_values_that_look_like_references_are_left_alone() -> None:
    order = read({"properties": {"a": {"const": {"$ref": "address.json"}}, "b": {"$ref": "address.json"}}},
                 address_json=ADDRESS)  # fmt: skip
    assert fits(order, {"a": {"$ref": "address.json"}})
    assert not fits(order, {"b": {}})


@pytest.mark.parametrize(
    ("document", "used", "words"),
    [
        ({"$ref": "other.json"}, ADDRESS, "other.json"),
        ({"$ref": "address.json#flat"}, ADDRESS, "must use a JSON pointer"),
        ({"$ref": "address.json"}, {"$dynamicRef": "#x"}, "dynamicRef"),
        ({"$ref": "address.json"}, {"$ref": "nobody.json"}, "nobody.json"),
        ({"$ref": "address.json"}, {"$ref": "#"}, "leads back to itself"),
    ],
)
def test_what_cannot_be_followed_is_refused(document: Any, used: Any, words: str) -> None:
    with pytest.raises(SchemaInvalidError, match=words):
        read(document, address_json=used)


def test_versions_are_compared_with_what_they_use() -> None:
    document = {"properties": {"to": {"$ref": "address.json"}}}
    old = read(document, address_json=ADDRESS)
    optional = ADDRESS | {"required": []}
    new = read(document, address_json=optional)
    assert incompatibilities(new, old, "backward_transitive") == []
    assert incompatibilities(old, new, "backward") != []
    assert incompatibilities(new, read(document, address_json=ADDRESS), "backward") == []
