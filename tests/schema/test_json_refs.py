from __future__ import annotations

from typing import Any

import pytest

from raceway.schema.json_refs import References, nesting, walk

ROOT: dict[str, Any] = {
    "$id": "https://example.org/root",
    "$defs": {"a/b": {"type": "string"}, "named": {"$anchor": "here", "type": "null"}, "list": [{"type": "number"}]},
    "properties": {"it": {"$ref": "#here"}},
}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b", {"type": "string"}),
        ("#/%24defs/a~1b", {"type": "string"}),
        ("#/$defs/list/0", {"type": "number"}),
        ("#here", ROOT["$defs"]["named"]),
        ("https://example.org/root#/$defs/named", ROOT["$defs"]["named"]),
        ("#/$defs/list/9", None),
        ("#/$defs/none", None),
        ("#none", None),
        ("https://elsewhere.org/schema", None),
    ],
)
def test_a_reference_is_found_within_the_document(reference: str, expected: Any) -> None:
    assert References(ROOT).maybe_find(reference) == expected


def test_a_reference_of_a_schema_is_followed() -> None:
    references = References(ROOT)
    assert references.target(ROOT["properties"]["it"]) is ROOT["$defs"]["named"]
    assert references.target({"type": "string"}) is None


def test_every_object_of_a_document_is_walked_and_its_nesting_counted() -> None:
    assert {"type": "number"} in list(walk(ROOT))
    documents: list[Any] = [1, {}, {"a": [{}]}]
    assert [nesting(each) for each in documents] == [1, 1, 3]
