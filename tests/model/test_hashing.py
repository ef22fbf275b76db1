from __future__ import annotations

import pytest

from raceway.model.hashing import fnv1a64, sender_id


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_the_hash_is_that_of_the_published_vectors(data: bytes, expected: int) -> None:
    assert fnv1a64(data) == expected


def test_a_sender_has_an_id_that_fits_a_signed_column() -> None:
    found = sender_id(b"orders", b"till-1")
    assert found == sender_id(b"orders", b"till-1")
    assert 0 < found < 1 << 63
    assert found != sender_id(b"order", b"still-1"), "topic and producer are kept apart"
