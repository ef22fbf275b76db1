"""Protobuf fields by hand, with the library as judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.wires.danube.codec.fields import bytes_field, map_field, number_field, varint
from raceway.wires.danube.codec.pb.danube_api_pb2 import StreamMessage


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (2**28, "8080808001"),
        (2**63 - 1, "ffffffffffffffff7f"), (2**64 - 1, "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_a_varint_has_seven_bits_to_a_byte(number: int, encoded: str) -> None:
    assert varint(number).hex() == encoded


@given(st.integers(0, 2**64 - 1))
def test_every_number_is_read_back_by_the_library(number: int) -> None:
    assert StreamMessage.FromString(number_field(1, number)).request_id == number


@given(st.binary(max_size=300))
def test_bytes_are_read_back_by_the_library(value: bytes) -> None:
    assert StreamMessage.FromString(bytes_field(3, value)).payload == value


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=8))
def test_a_map_is_read_back_by_the_library(entries: dict[str, str]) -> None:
    assert dict(StreamMessage.FromString(map_field(7, entries)).attributes) == entries
