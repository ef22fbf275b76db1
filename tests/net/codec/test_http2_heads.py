from __future__ import annotations

import hpack
import pytest

from raceway.net.codec.http2_frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, BrokenConnectionError
from raceway.net.codec.http2_heads import CACHED_HEADS, Fields, HeadReader, RequestHead, fault_of_trailers
from tests.rigs.http2 import CALL, block

POST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a")]


def reader(limit: int = 16_384) -> tuple[HeadReader[RequestHead], list[RequestHead]]:
    """A reader, and the heads that it made."""
    made: list[RequestHead] = []

    def read(fields: Fields) -> RequestHead:
        made.append(RequestHead(fields))
        return made[-1]

    return HeadReader(limit, read), made


def test_a_head_knows_its_method_and_path() -> None:
    head = RequestHead([*POST, (b"content-length", b"12")])
    assert (head.fault, head.method, head.path, head.length) == ("", b"POST", b"/a", 12)


def test_the_size_of_a_head_counts_32_for_each_field() -> None:
    assert RequestHead(POST).size == 3 * 32 + len(b":methodPOST:schemehttp:path/a")


@pytest.mark.parametrize(
    "fields",
    [
        POST[1:],
        [POST[0], POST[2]],
        POST[:2],
        [*POST[:2], (b":path", b"")],
        [*POST, POST[0]],
        [*POST, (b":status", b"200")],
        [*POST, (b":other", b"x")],
        [POST[0], (b"a", b"b"), *POST[1:]],
        [*POST, (b"Upper", b"x")],
        [*POST, (b"", b"x")],
        [*POST, (b"a b", b"x")],
        [*POST, (b"a:b", b"x")],
        [*POST, (b"a", b"x\0")],
        [*POST, (b"a", b"x\r\ny")],
        [*POST, (b"a", b" x")],
        [*POST, (b"a", b"x ")],
        [*POST, (b"connection", b"close")],
        [*POST, (b"transfer-encoding", b"chunked")],
        [*POST, (b"te", b"gzip")],
        [*POST, (b"content-length", b"-1")],
        [*POST, (b"content-length", b"1"), (b"content-length", b"2")],
    ],
)  # fmt: skip
def test_heads_that_cannot_be_are_faulty(fields: list[tuple[bytes, bytes]]) -> None:
    assert RequestHead(fields).fault


@pytest.mark.parametrize("field", [(b"te", b"trailers"), (b"a", b""), (b"a", b"x y"), (b"content-length", b"7")])
def test_fields_that_may_be(field: tuple[bytes, bytes]) -> None:
    assert RequestHead([*POST, field]).fault == ""


def test_a_long_value_of_blanks_is_judged_in_no_time() -> None:
    assert RequestHead([*POST, (b"a", b"x" + b" " * 100_000 + b"\0")]).fault


def test_trailers_have_no_pseudo_header_fields() -> None:
    assert fault_of_trailers([(b"a", b"b")]) == ""
    assert fault_of_trailers([(b"a", b"b"), (b":path", b"/")])
    assert fault_of_trailers([(b"A", b"b")])


def test_equal_blocks_give_one_head_which_is_made_once() -> None:
    heads, made = reader()
    found = heads.head(block(*CALL))
    assert heads.head(block(*CALL)) is found
    assert made == [found]


def test_a_block_that_changes_the_table_makes_all_remembered_heads_worthless() -> None:
    """The same byte names another field afterwards."""
    heads, _ = reader()
    encoder = hpack.Encoder()
    usual = block(*CALL)
    heads.head(encoder.encode([*CALL, ("x", "first")], huffman=False))
    by_index = encoder.encode([*CALL, ("x", "first")])
    assert dict(heads.head(by_index).fields)[b"x"] == b"first"
    heads.head(usual)
    heads.head(encoder.encode([*CALL, ("x", "second")]))
    assert heads.known == {}
    # Index 62 is the newest field of the table: "second" now.
    assert dict(heads.head(usual + b"\xbe").fields)[b"x"] == b"second"


def test_a_changed_table_size_makes_remembered_heads_worthless() -> None:
    heads, _ = reader()
    heads.head(block(*CALL))
    heads.head(b"\x20" + block(*CALL))  # size 0
    assert block(*CALL) not in heads.known


def test_a_field_that_takes_the_place_of_another_in_a_full_table_is_a_change() -> None:
    """The table has room for one field here: it holds one before and after."""
    heads, _ = reader()
    usual = block(*CALL)
    heads.head(b"\x3f\x45" + usual + b"\x40\x01x\x05first")  # size 100
    assert dict(heads.head(usual + b"\xbe").fields)[b"x"] == b"first"
    heads.head(usual + b"\x40\x01x\x06second")
    assert dict(heads.head(usual + b"\xbe").fields)[b"x"] == b"second"


def test_only_so_many_heads_are_remembered() -> None:
    heads, _ = reader()
    for number in range(2 * CACHED_HEADS + 10):
        heads.head(block(*CALL, ("grpc-timeout", f"{number}m")))
        assert len(heads.known) <= CACHED_HEADS


@pytest.mark.parametrize("more", [[("x", "y" * 2000)], [(f"x{number}", "y") for number in range(40)]])
def test_large_heads_are_not_remembered(more: list[tuple[str, str]]) -> None:
    heads, _ = reader()
    heads.head(block(*CALL, *more))
    assert heads.known == {}


def test_trailers_change_the_table_like_heads() -> None:
    heads, _ = reader()
    heads.head(block(*CALL))
    assert heads.trailers(hpack.Encoder().encode([("x", "y")])) == [(b"x", b"y")]
    assert heads.known == {}


@pytest.mark.parametrize(
    "bad", [b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x40\x05ab", b"\x3f\xe2\x1f", b"\xfe"]
)
def test_a_block_that_cannot_be_read_ends_the_connection(bad: bytes) -> None:
    with pytest.raises(BrokenConnectionError) as caught:
        reader()[0].head(bad)
    assert caught.value.error == COMPRESSION_ERROR


def test_a_bomb_of_references_to_one_large_field_is_bounded() -> None:
    """4 KB in the table, named 10,000 times by one byte each, would be 40 MB."""
    heads, _ = reader()
    heads.head(block(*CALL) + b"\x40" + b"\x01x" + b"\x7f\x81\x1e" + b"y" * 3968)
    with pytest.raises(BrokenConnectionError) as caught:
        heads.head(block(*CALL) + b"\xbe" * 10_000)
    assert caught.value.error == ENHANCE_YOUR_CALM


def test_lists_a_little_over_the_limit_can_still_be_answered() -> None:
    heads, _ = reader(limit=1000)
    assert heads.head(block(*CALL, ("x", "y" * 1200))).size > 1000
    with pytest.raises(BrokenConnectionError):
        heads.head(block(*CALL, ("x", "y" * 2000)))
