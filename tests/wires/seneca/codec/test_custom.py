"""Custom data as attributes of the bus, and back without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import TooLargeError
from raceway.model.document import raw_members
from raceway.model.envelope import decode_attributes
from raceway.wires.seneca.codec.custom import custom_of, encoded_attributes, split_schema, texts_of, unknown_of
from tests.rigs.seneca_calls import plain

names = st.text(max_size=6) | st.sampled_from(
    ["seneca.typed", "seneca.custom.x", "seneca.meta.y", "seneca.vin", "typed"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def kept(custom: dict[str, Any], unknown: dict[str, Any], remembered: dict[str, str]) -> dict[str, str]:
    return decode_attributes(encoded_attributes(raw_members(custom), raw_members(unknown), remembered))


@given(st.dictionaries(names, values, max_size=6), st.dictionaries(names, values, max_size=3))
def test_custom_and_unknown_meta_data_come_back_as_they_were(custom: dict[str, Any], unknown: dict[str, Any]) -> None:
    attributes = kept(custom, unknown, {"seneca.vin": "2"})
    assert all(isinstance(text, str) for text in attributes.values())
    assert plain(custom_of(attributes)) == custom
    assert plain(unknown_of(attributes)) == unknown
    assert attributes["seneca.vin"] == "2"


def test_text_stands_as_itself_so_that_other_wires_can_use_it() -> None:
    attributes = kept({"x-dedup-id": "5", "n": 5}, {}, {})
    assert attributes == {"x-dedup-id": "5", "n": "5", "seneca.typed": '["n"]'}


def test_attributes_of_other_wires_are_custom_data_but_not_what_only_they_understand() -> None:
    attributes = {"tenant": "t1", "zbus.topic": "x", "mb.sent": "y", "danube.z": "z", "seneca.trace": "[]"}
    assert plain(texts_of(attributes)) == {"tenant": "t1"}


@pytest.mark.parametrize("custom", [{str(number): 1 for number in range(129)}, {"a": "x" * 65_536}])
def test_there_is_a_limit(custom: dict[str, Any]) -> None:
    with pytest.raises(TooLargeError):
        kept(custom, {}, {})


def test_numbers_that_name_a_schema_have_columns() -> None:
    custom = raw_members({"schema_id": 7, "schema_version": 2, "x": 1})
    kept, columns = split_schema(custom)
    assert (plain(kept), columns) == ({"x": 1}, {"schema_id": 7, "schema_version": 2})
    for value in ("7", -1, 2**63, 1.5, None):
        kept, columns = split_schema(raw_members({"schema_id": value}))
        assert columns == {}
        assert json.loads(bytes(kept["schema_id"])) == value
