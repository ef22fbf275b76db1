from __future__ import annotations

import pytest

from raceway.schema.framing import MAX_INDICES, maybe_indices, maybe_registry_id, readings


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b"\x00\x00\x00\x01\x02rest", 258), (b"\x01\x00\x00\x00\x01", None), (b"\x00\x00\x00\x01", None), (b"", None)],
)
def test_the_prefix_is_a_zero_byte_and_the_id(payload: bytes, expected: int | None) -> None:
    assert maybe_registry_id(payload) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x00rest", ((0,), b"rest")),
        (b"\x04\x02\x00rest", ((1, 0), b"rest")),
        (b"\x01", None),  # a negative count
        (b"\x02\x01", None),  # a negative index
        (b"\x04\x02", None),
        (bytes([2 * (MAX_INDICES + 1)]) + bytes(99), None),
        (b"\xff" * 6, None),  # a varint without end
        (b"", None),
    ],
)
def test_a_message_type_is_a_list_of_indices(data: bytes, expected: tuple[tuple[int, ...], bytes] | None) -> None:
    assert maybe_indices(data) == expected


def test_a_payload_may_have_no_list() -> None:
    assert readings(b"\x00x") == [((0,), b"x"), ((0,), b"\x00x")]
    assert readings(b"\xff") == [((0,), b"\xff")]
