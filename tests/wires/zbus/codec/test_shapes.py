"""Learned shapes of heads: what they take, that they agree with the strict path, and that they are bounded."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.wires.zbus.codec.head import ZbusHead, ZbusLimits, read_head
from raceway.wires.zbus.codec.receiver import Produce
from raceway.wires.zbus.codec.shapes import ALIKE, REMEMBERED_SHAPES, Shape, Shapes
from raceway.wires.zbus.codec.stream import MADE_SHAPES, TRIED_SHAPES
from tests.rigs.rounds import rounds, seeded
from tests.rigs.zbus_events import Curious, curious, flat, receiver, strict

LIMITS = ZbusLimits()


def head(text: str) -> ZbusHead:
    found = read_head(text.encode(), LIMITS)
    assert isinstance(found, ZbusHead)
    return found


def shape(text: str) -> Shape:
    found = head(text)
    return Shape(found.shape, found.first)


def message(number: int, body: bytes = b"body", mq: str = "orders") -> bytes:
    text = (
        f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: {mq}\r\nmsgid: id-{number:06}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return text.encode() + body


# ---- one shape ------------------------------------------------------------------------------------------------------


def test_shape_takes_values_without_the_blanks_before_them() -> None:
    found = shape("GET / HTTP/1.1\r\ncmd: x\r\nMq: y").match(b"GET / HTTP/1.1\r\ncmd:produce\r\nMq: \t a b\r\n\r\n")
    assert found is not None
    assert found.groups() == (b"produce", b"a b")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nmq: \xc3\xbc\r\ncontent-length: 0\r\n\r\n",  # not ASCII
        b"GET / HTTP/1.1\r\nmq: a \r\ncontent-length: 0\r\n\r\n",  # a blank to trim
        b"GET / HTTP/1.1\r\nmq: \r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\x00\r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\x7f\r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\rb\r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\nb\r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\r\ncontent-length: 1234567890\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\r\ncontent-length: \r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\r\ncontent-length: 1\r\nx: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nmq: a\r\ncontent-length: 1\r\n",
        b"GET / HTTP/1.1\nmq: a\ncontent-length: 1\n\n",
        b"GET / HTTP/1.1\r\nMq: a\r\ncontent-length: 1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nmq: a\r\ncontent-length: 1\r\n\r\n",
    ],
)
def test_shape_leaves_everything_but_the_plain_case_to_the_strict_path(data: bytes) -> None:
    assert shape("GET / HTTP/1.1\r\nmq: a\r\ncontent-length: 1").match(data) is None


def test_dots_and_signs_in_names_and_lines_are_literal() -> None:
    found = shape("GET /a+b?c=d HTTP/1.1\r\nx.y: 1")
    assert found.match(b"GET /a+b?c=d HTTP/1.1\r\nx.y: 2\r\n\r\n")
    assert not found.match(b"GET /aab?c=d HTTP/1.1\r\nx.y: 2\r\n\r\n")
    assert not found.match(b"GET /a+b?c=d HTTP/1.1\r\nxzy: 2\r\n\r\n")


def test_run_has_one_value_where_all_are_equal_and_a_list_where_not() -> None:
    run = shape("GET /q?x=1 HTTP/1.1\r\ncmd: a\r\nmsgid: b").run([(b"c", b"1"), (b"c", b"2")], [b"", b""])
    assert run.keys == {b"mq": b"q", b"x": b"1", b"cmd": b"c", b"msgid": [b"1", b"2"]}
    assert run.part(1, 2).keys == {b"mq": b"q", b"x": b"1", b"cmd": b"c", b"msgid": b"2"}


def test_older_spelling_beside_the_newer_one_gives_nothing() -> None:
    both = shape("GET / HTTP/1.1\r\nmq-reply: a\r\nmq_reply: b")
    assert both.run([(b"hyphen", b"underscore")], [b""]).keys == {b"mq-reply": b"hyphen"}
    alone = shape("GET /?mq-reply=uri HTTP/1.1\r\nmq_reply: b")
    assert alone.run([(b"underscore",)], [b""]).keys == {b"mq-reply": b"underscore"}


# ---- what is remembered ---------------------------------------------------------------------------------------------


def test_shape_is_learned_on_its_second_appearance() -> None:
    shapes = Shapes()
    assert shapes.maybe_learn(head("GET /\r\na: 1"), True) == (None, False)
    made, is_new = shapes.maybe_learn(head("GET /\r\na: 2"), True)
    assert isinstance(made, Shape)
    assert is_new
    assert shapes.maybe_learn(head("GET /\r\na: 3"), True) == (made, False)


def test_shape_is_not_made_when_it_may_not_be() -> None:
    shapes = Shapes()
    for _ in range(3):
        assert shapes.maybe_learn(head("GET /\r\na: 1"), False) == (None, False)


def test_least_recently_wanted_shape_goes() -> None:
    shapes = Shapes()
    for _ in range(2):
        shapes.maybe_learn(head("GET /\r\nkept: 1"), True)
    for number in range(2 * REMEMBERED_SHAPES):
        shapes.maybe_learn(head(f"GET /\r\nh{number}: 1"), True)
        kept, _ = shapes.maybe_learn(head("GET /\r\nkept: 1"), True)
        assert kept is not None
    assert len(shapes._known) == REMEMBERED_SHAPES
    assert shapes.maybe_learn(head("GET /\r\nh1: 1"), True) == (None, False)


def test_one_connection_makes_few_patterns_and_tries_fewer() -> None:
    made = receiver(LIMITS, Curious())
    for number in range(3 * MADE_SHAPES):
        made.receive_data(f"GET / HTTP/1.1\r\nh{number}: 1\r\n\r\n".encode() * 3)
    assert made._stream._made_shapes == MADE_SHAPES
    assert len(made._stream._shapes) == TRIED_SHAPES


def test_shapes_that_take_turns_are_all_kept_at_hand() -> None:
    data = message(1) + b"GET / HTTP/1.1\r\ncmd: consume\r\nmq: orders\r\nmsgid: c-1\r\n\r\n"
    made = receiver(LIMITS, Curious())
    made.receive_data(data * 2)
    tried = list(made._stream._shapes)
    assert len(flat(made.receive_data(data * 5))) == 10
    assert sorted(map(id, made._stream._shapes)) == sorted(map(id, tried))


# ---- alike ----------------------------------------------------------------------------------------------------------


def test_alike_messages_are_one_batch_with_what_follows_them() -> None:
    made = curious()
    made.receive_data(b"".join(message(n) for n in range(2 * ALIKE)))
    assert made._stream._alike is not None
    data = [message(n) for n in range(3 * ALIKE)] + [message(7, b"longer"), message(8, mq="other")]
    (event,) = made.receive_data(b"".join(data))
    assert isinstance(event, Produce)
    assert event.batch.count == 3 * ALIKE + 2
    assert flat([event]) == flat(strict().receive_data(b"".join(data)))


@pytest.mark.parametrize("bad", [0, 1, ALIKE - 1, ALIKE, 2 * ALIKE - 1])
@pytest.mark.parametrize(
    "bytes_of_id", [b"id-00001 ", b"id-0000\xc3", b"id\r\na:b01", b"id-0000\x00", b" d-000001", b"\tid-00001"]
)
def test_id_that_is_unlike_the_others_goes_the_strict_way(bad: int, bytes_of_id: bytes) -> None:
    made = curious()
    made.receive_data(b"".join(message(n) for n in range(2 * ALIKE)))
    data = [message(n) for n in range(2 * ALIKE)]
    data[bad] = data[bad].replace(b"id-%06d" % bad, bytes_of_id)
    joined = b"".join(data)
    assert flat(made.receive_data(joined)) == flat(strict().receive_data(joined))


@pytest.mark.parametrize("bad", [0, 1, ALIKE - 1, ALIKE])
@pytest.mark.parametrize(
    ("like", "unlike"), [(b"token: a", b"token: b"), (b"cmd: produce", b"cmd: consume"), (b" 4", b" 0")]
)
def test_message_that_differs_where_the_others_agree_goes_its_own_way(bad: int, like: bytes, unlike: bytes) -> None:
    data = [message(n).replace(b"\r\ncontent", b"\r\ntoken: a\r\ncontent") for n in range(2 * ALIKE)]
    made = curious()
    made.receive_data(b"".join(data))
    data[bad] = data[bad].replace(like, unlike)
    joined = b"".join(data)
    assert flat(made.receive_data(joined)) == flat(strict().receive_data(joined))


def test_alike_messages_that_turn_out_different_are_forgotten() -> None:
    made = curious()
    made.receive_data(b"".join(message(n) for n in range(2 * ALIKE)))
    assert made._stream._alike is not None
    made.receive_data(b"".join(message(n, mq="other") for n in range(4)))
    assert made._stream._alike is None


def test_body_limit_holds_for_learned_shapes_too() -> None:
    made = receiver(ZbusLimits(body_bytes=4), Curious())
    made.receive_data(b"".join(message(n) for n in range(2 * ALIKE)))
    events = flat(made.receive_data(message(1) + message(2, b"12345") + message(3)))
    assert len(events) == 2
    assert events[1].status == 413


def test_head_limit_holds_for_learned_shapes_too() -> None:
    limits = ZbusLimits(head_bytes=len(message(1)) - 4)
    made = receiver(limits, Curious())
    assert len(flat(made.receive_data(message(1) * 3))) == 3
    events = flat(made.receive_data(message(1) + message(2, mq="orders1")))
    assert events[1].text == f"Bad format: head of more than {limits.head_bytes} bytes"


# ---- learned and strict agree ---------------------------------------------------------------------------------------

names = st.sampled_from(
    [
        "cmd", "mq", "Mq", "msgid", "msgid", "token", "ack", "mq-reply", "mq_reply", "msgid-raw", "msgid_raw", "topic",
        "reply-code", "reply_code", "window", "method", "sub_cmd", "content-type", "encoding", "content-encoding",
        "schema-id", "schema-version", "routing-key", "host", "origin", "x-a", "x-b", "broker", "remote-addr", "expect",
        "connection", "cookie", "zbus.topic", "content-length", "transfer-encoding", "bad name", "",
    ]
)  # fmt: skip
values = st.sampled_from(
    [
        "produce", "produce", "request", "consume", "heartbeat", "admin", "track_sub", "fly", "orders", "a", "b",
        "true", "0", "", " ", "a b", " a ", "500", "204", "100", "-1", "7", "07", "x/y", "utf-8", "ü", "\x7f", "a, b",
        "0", "3", "3",
    ]
)  # fmt: skip
first_lines = st.sampled_from(
    [
        "POST / HTTP/1.1", "POST / HTTP/1.1", "GET /", "HTTP/1.1 200 OK", "HTTP/1.1 500 Oops", "HTTP/1.1 100 x", "GET",
        "GET /q?cmd=produce&msgid=u&body=xyz HTTP/1.1", "GET /q?cmd=consume&window=0 HTTP/1.1", "GET /%zz HTTP/1.1",
        "GET /q?mq_reply=r&x=1&topic=t HTTP/1.1", "GET /?content-length=3 HTTP/1.1",
    ]
)  # fmt: skip
tokens = st.lists(st.tuples(names, values), max_size=6)


def _written(first_line: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    lines = [first_line, *(f"{name}:{' ' if len(value) % 2 else ''}{value}" for name, value in headers)]
    return "\r\n".join([*lines, "\r\n"]).encode() + body


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Messages of a few shapes, again and again with other values."""
    shapes = draw(st.lists(st.tuples(first_lines, st.lists(names, max_size=6)), min_size=1, max_size=3))
    messages = []
    for first_line, chosen in draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=8)):
        headers = [(name, draw(values)) for name in chosen]
        body = draw(st.sampled_from([b"", b"xyz", b"\r\n\r\n"])) if draw(st.booleans()) else None
        if body is not None:
            headers.append(("content-length", str(len(body))))
        messages.append(_written(first_line, headers, body or b""))
    return b"".join(message for message in messages for _ in range(draw(st.sampled_from([1, 1, 2, 3, ALIKE]))))


@settings(max_examples=300, deadline=None)
@given(streams(), st.lists(st.integers(0, 3000), max_size=3))
def test_learned_shapes_agree_with_the_strict_path_on_any_stream_cut_anywhere(data: bytes, cuts: list[int]) -> None:
    learned = curious()
    events = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        events += flat(learned.receive_data(data[start:end]))
    oracle = strict()
    assert events == flat(oracle.receive_data(data))
    assert learned.pending == oracle.pending


HEADS = [
    b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: orders\r\nmsgid: p\r\ntoken: t\r\nack: 1\r\ncontent-length: 4\r\n\r\nbody",
    b"GET / HTTP/1.1\r\ncmd: consume\r\nmq: q\r\nmsgid: c\r\ntopic: a, b\r\nwindow: 5\r\ncontent-length: 0\r\n\r\n",
    b"POST /q?x=1 HTTP/1.1\r\ncmd: request\r\nmq-reply: r\r\nmq_reply: s\r\nmsgid: q-1\r\nx-a: 1\r\n\r\n",
    b"HTTP/1.1 500\r\ncmd: produce\r\nmq: b\r\nmsgid: q\r\nack: 0\r\ncontent-type: a/b\r\ncontent-length: 1\r\n\r\n!",
]  # fmt: skip


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """A byte put in, taken out or replaced, or a piece of another head."""
    at = chance.randrange(len(data))
    odd = chance.choice(
        [b"\r", b"\n", b"\r\n", b"\0", b" ", b":", b"\t", b"%", b"\xc3", b"9", b"\r\n\r\n", b"content-length: 2\r\n"]
    )
    kind = chance.randrange(4)
    if kind == 0:
        return data[:at] + odd + data[at:]
    if kind == 1:
        return data[:at] + data[at + 1 :]
    if kind == 2:
        return data[:at] + odd + data[at + len(odd) :]
    other = chance.choice(HEADS)
    return data[:at] + other[chance.randrange(len(other)) :]


def test_learned_shapes_agree_with_the_strict_path_on_damaged_heads() -> None:
    chance = seeded("damaged heads")
    for _ in range(2000 * rounds(1)):
        known = chance.choice(HEADS)
        learned = curious()
        learned.receive_data(known * chance.choice([2, 2, 3 * ALIKE]))
        data = known * chance.choice([0, 1, ALIKE]) + _damaged(known, chance) + known
        oracle = strict()
        assert flat(learned.receive_data(data)) == flat(oracle.receive_data(data)), data
        assert learned.pending == oracle.pending, data


# ---- hostile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filler", [b" ", b"\t", b"a", b" a", b"a "])
def test_no_value_makes_a_pattern_search_for_long(filler: bytes) -> None:
    found = shape("GET / HTTP/1.1\r\na: 1\r\nb: 2")
    data = b"GET / HTTP/1.1\r\na:" + filler * 30_000 + b"\0\r\nb: 2\r\n\r\n"
    began = time.process_time()
    assert found.match(data) is None
    assert time.process_time() - began < 0.1
