"""Percent-decoding, beside the standard library's."""

from __future__ import annotations

from urllib.parse import quote_from_bytes, unquote_to_bytes

from hypothesis import given
from hypothesis import strategies as st

from raceway.net.codec.percent import maybe_unescape


@given(st.binary(max_size=40))
def test_escapes_are_read_as_the_standard_library_reads_them(data: bytes) -> None:
    assert maybe_unescape(quote_from_bytes(data).encode()) == data
    everything = b"".join(b"%%%02X" % byte for byte in data)
    assert maybe_unescape(everything) == maybe_unescape(everything.lower()) == data


@given(st.text(alphabet="%0aAfFgz+ ", max_size=12).map(str.encode))
def test_only_two_hexadecimal_digits_make_an_escape(text: bytes) -> None:
    is_good = all(len(piece) >= 2 and piece[:2].strip(b"0aAfF") == b"" for piece in text.split(b"%")[1:])
    assert maybe_unescape(text) == (unquote_to_bytes(text) if is_good else None)
