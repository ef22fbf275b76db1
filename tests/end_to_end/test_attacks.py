"""Attacks that the doors must hold against, as one table for each protocol, on one server.

After each of them the wire has said in its own words what was wrong, a well-behaved client is served, and the process
has not grown. What is not in a table is found by damaging good traffic at random.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import frame
from tests.rigs.http2 import GREETING, block, data, headers, message
from tests.rigs.mb_wire import SUCCESS, connect, fresh_topic
from tests.rigs.rounds import rounds, seeded
from tests.rigs.schema_rest import bind, call, register
from tests.rigs.server import Door, Server, running_server

MIB = 1 << 20
GROWTH = 48 * MIB
# In `make test`, and in `make soak` at least.
ROUNDS = (10, 200)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__HEAD_S=2, RACEWAY_LISTEN__GRPC__RESET_RATE=100_000) as server:
        yield server


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    server.forget_peak()
    before = server.rss()
    yield
    server.assert_not_ended_by_itself()
    assert server.peak_rss() - before < GROWTH
    with connect(server, "tcp") as peer:
        topic = fresh_topic()
        peer.subscribe(topic)
        assert peer.publish(topic, b"x").payload == SUCCESS
        assert peer.receive().payload == b"x"
    assert server.http("/healthz")[0] == 200


def said_to(server: Server, door: Door, sent: bytes, *, greeting: bytes = b"", farewell: bool = False) -> bytes:
    """All that a door says to these bytes until it closes. With `farewell` the client closes its side first.

    With `greeting` that is sent before, and the bytes when the door has said something to it.
    """
    said = bytearray()
    with socket.create_connection(("127.0.0.1", server.port(door)), timeout=20) as connection:
        if greeting:
            connection.sendall(greeting)
            while not said.endswith(b"system.initialize:1.0.0\n{}"):
                said += connection.recv(1 << 16)
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        with suppress(ConnectionResetError, OSError):
            if farewell:
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1 << 16):
                said += more
    return bytes(said)


# ---- HTTP/2 ----------------------------------------------------------------------------------------------------------

HEALTH = (
    (":method", "POST"), (":scheme", "http"), (":path", "/danube.HealthCheck/HealthCheck"), (":authority", "x"),
    ("content-type", "application/grpc"), ("te", "trailers"),
)  # fmt: skip


def opened(number: int = 1) -> bytes:
    return headers(number, *HEALTH)


def each(count: int, make: Callable[[int], bytes]) -> bytes:
    return b"".join(make(number) for number in range(1, 2 * count, 2))


HTTP2: dict[str, tuple[Callable[[], bytes], int]] = {
    "rapid reset": (lambda: each(20_000, lambda n: opened(n) + h2.reset(n, h2.CANCEL)), h2.ENHANCE_YOUR_CALM),
    "made resets": (lambda: each(20_000, lambda n: opened(n) + h2.window_update(n, 0)), h2.ENHANCE_YOUR_CALM),
    "continuation flood": (
        lambda: headers(1, *HEALTH, flags=0) + frame(h2.CONTINUATION, 0, 1, b"\0\1a\1b" * 1000) * 1000,
        h2.ENHANCE_YOUR_CALM,
    ),
    "empty continuations": (
        lambda: headers(1, *HEALTH, flags=0) + frame(h2.CONTINUATION, 0, 1) * 30_000, h2.ENHANCE_YOUR_CALM,
    ),
    "empty data": (lambda: opened() + data(1, b"", end=False) * 30_000, h2.ENHANCE_YOUR_CALM),
    "pings": (lambda: frame(h2.PING, 0, 0, bytes(8)) * 40_000, h2.ENHANCE_YOUR_CALM),
    "settings": (lambda: h2.settings([(h2.INITIAL_WINDOW_SIZE, 1)]) * 20_000, h2.ENHANCE_YOUR_CALM),
    "priorities": (lambda: frame(h2.PRIORITY, 0, 1, b"\0\0\0\3\1") * 30_000, h2.ENHANCE_YOUR_CALM),
    "unknown frames": (lambda: frame(200, 0, 0, b"x") * 30_000, h2.ENHANCE_YOUR_CALM),
    "window overflow": (lambda: h2.window_update(0, 2**31 - 1), h2.FLOW_CONTROL_ERROR),
    "a frame of 16 MiB": (lambda: b"\xff\xff\xff\0\0\0\0\0\1" + bytes(MIB), h2.FRAME_SIZE_ERROR),
    "headers of an even stream": (lambda: headers(2, *HEALTH), h2.PROTOCOL_ERROR),
    "a header table bomb": (
        lambda: frame(h2.HEADERS, h2.END_HEADERS, 1, block(*HEALTH) + b"\x40\x01x\x7f\x81\x1e" + b"y" * 3968)
        + frame(h2.HEADERS, h2.END_HEADERS, 3, block(*HEALTH) + b"\xbe" * 16_000),
        h2.ENHANCE_YOUR_CALM,
    ),
    "a push from the client": (lambda: frame(h2.PUSH_PROMISE, 0, 1, bytes(4)), h2.PROTOCOL_ERROR),
    "data that was never allowed": (lambda: data(1, b"x"), h2.PROTOCOL_ERROR),
    "a broken header block": (lambda: frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff" * 40), h2.COMPRESSION_ERROR),
}  # fmt: skip


def goodbye(said: bytes) -> int | None:
    """The error of the last GOAWAY; None if it was lost to a reset of the connection."""
    found, at = None, 0
    while at + 9 <= len(said):
        word, _, _ = h2.FRAME.unpack_from(said, at)
        if word & 255 == h2.GOAWAY:
            found = int.from_bytes(said[at + 13 : at + 17], "big")
        at += 9 + (word >> 8)
    return found


@pytest.mark.parametrize("name", HTTP2)
def test_an_attack_on_http2_ends_its_connection(server: Server, name: str) -> None:
    attack, error = HTTP2[name]
    assert goodbye(said_to(server, "danube", GREETING + attack())) in (error, None)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (message(gzip.compress(bytes(50 * MIB)), compressed=True), b"3"),
        (message(b"\x1f\x8b nonsense", compressed=True), b"13"),
        (b"\0\xff\xff\xff\xff" + bytes(1000), b"3"),
    ],
)
def test_bodies_that_lie_get_a_status(server: Server, body: bytes, status: bytes) -> None:
    sent = GREETING + headers(1, *HEALTH, ("grpc-encoding", "gzip"))
    for at in range(0, len(body), 16_000):
        sent += data(1, body[at : at + 16_000], end=at + 16_000 >= len(body))
    said = said_to(server, "danube", sent, farewell=True)
    assert b"grpc-status" + bytes([len(status)]) + status in said


# ---- WebSocket -------------------------------------------------------------------------------------------------------

TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


def upgrade(**changed: str) -> bytes:
    lines = {
        "Host": "127.0.0.1", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13", **changed,
    }  # fmt: skip
    return b"GET / HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode() + b"\r\n"


def ws(
    opcode: int, payload: bytes = b"", *, first: int = 0x80, masked: bool = True, length: int | None = None
) -> bytes:
    """One frame; `length` may be a lie. The mask is zero, which is a mask."""
    size = len(payload) if length is None else length
    bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([first | opcode, bit | size])
    elif size < 65_536:
        head = bytes([first | opcode, bit | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first | opcode, bit | 127]) + struct.pack(">Q", size)
    return head + (bytes(4) if masked else b"") + payload


WEBSOCKET: dict[str, tuple[Callable[[], bytes], set[int]]] = {
    "no mask": (lambda: ws(TEXT, b"x", masked=False), {1002}),
    "reserved bits": (lambda: ws(TEXT, b"x", first=0xC0), {1002}),
    "an opcode that is none": (lambda: ws(3, b"x"), {1002}),
    "a long ping": (lambda: ws(PING, bytes(200)), {1002}),
    "a ping in parts": (lambda: ws(PING, b"x", first=0), {1002}),
    "an end without a beginning": (lambda: ws(0, b"x"), {1002}),
    "two beginnings": (lambda: ws(TEXT, b"a", first=0) + ws(TEXT, b"b"), {1002}),
    "text that is no UTF-8": (lambda: ws(TEXT, b"\xc3\x28"), {1007}),
    "a frame of 2^62 bytes": (lambda: ws(BINARY, bytes(1000), length=2**62), {1002, 1009}),
    "a message of endless parts": (lambda: ws(BINARY, b"a", first=0) + ws(0, bytes(1000), first=0) * 5000, {1009}),
    "a message of endless empty parts": (
        lambda: ws(BINARY, b"", first=0) + ws(0, b"", first=0) * 50_000 + ws(TEXT), {1002},
    ),
    "a close code that nobody may send": (lambda: ws(CLOSE, struct.pack(">H", 1005)), {1002}),
    "a close frame of one byte": (lambda: ws(CLOSE, b"x"), {1002}),
}  # fmt: skip


@pytest.mark.parametrize("name", WEBSOCKET)
def test_an_attack_on_websocket_ends_its_connection(server: Server, name: str) -> None:
    attack, codes = WEBSOCKET[name]
    said = said_to(server, "websocket", attack(), greeting=upgrade())
    closes = [int.from_bytes(code, "big") for code in re.findall(rb"\x88[\x02-\x7d](..)", said, re.DOTALL)]
    assert said.startswith(b"HTTP/1.1 101")
    # A client that still sends when the door closes may lose the last words to a reset.
    assert closes[-1:] in [[code] for code in codes] or (not closes and "endless" in name), said[-100:]


@pytest.mark.parametrize(
    "changed",
    [{"Origin": "http://evil.example"}, {"Sec-WebSocket-Version": "99"}, {"Upgrade": "h2c"}, {"Sec-WebSocket-Key": ""}],
)
def test_an_upgrade_that_may_not_be_is_refused(server: Server, changed: dict[str, str]) -> None:
    said = said_to(server, "websocket", upgrade(**changed), farewell=True)
    assert not said.startswith(b"HTTP/1.1 101")


# ---- request smuggling -----------------------------------------------------------------------------------------------

HTTP_DOORS: dict[Door, bytes] = {
    "zbus": b"POST / HTTP/1.1\r\ncmd: heartbeat\r\n",
    "seneca": b"POST /act HTTP/1.1\r\nhost: 127.0.0.1\r\n",
    "console": b"POST /topics/smuggled HTTP/1.1\r\nhost: 127.0.0.1\r\n",
}
INNER = b"GET /inner HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
SMUGGLED: dict[str, bytes] = {
    "two lengths": b"content-length: 2\r\ncontent-length: %d\r\n\r\n{}" % (2 + len(INNER)),
    "two lengths in one": b"content-length: 2, %d\r\n\r\n{}" % (2 + len(INNER)),
    "a length with a sign": b"content-length: +2\r\n\r\n{}",
    "a length in hexadecimal": b"content-length: 0x2\r\n\r\n{}",
    "a length and chunks": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "chunks that are not the last coding": b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a coding that nobody knows": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded line": b"x: 1\r\n content-length: 5\r\ncontent-length: 2\r\ncontent-length: 7\r\n\r\n{}",
    "a bare line feed": b"x: 1\ncontent-length: 7\r\ncontent-length: 2\r\n\r\n{}",
    "a chunk size that overflows": b"transfer-encoding: chunked\r\n\r\nffffffffffffffff2\r\n{}\r\n0\r\n\r\n",
    "a chunk size with a sign": b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk without its end": b"transfer-encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    "trailers": b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nhost: evil.example\r\n\r\n",
    "a NUL in a value": b"x: a\0b\r\ncontent-length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("door", HTTP_DOORS)
@pytest.mark.parametrize("name", SMUGGLED)
def test_what_could_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read(
    server: Server, name: str, door: Door
) -> None:
    said = said_to(server, door, HTTP_DOORS[door] + SMUGGLED[name] + INNER, farewell=True)
    statuses = re.findall(rb"HTTP/1\.1 (\d\d\d)", said)
    assert len(statuses) == 1, said
    assert statuses[0].startswith((b"4", b"501")), said


# ---- schemas that would take for ever --------------------------------------------------------------------------------


def nested(depth: int, opening: str, closing: str, inner: str) -> str:
    return opening * depth + inner + closing * depth


def deep_avro(depth: int) -> str:
    return nested(depth, '{"type":"array","items":', "}", '"int"')


def wide_refs(depth: int) -> str:
    """Each definition names the one before it twice: two to the power of `depth` when written out."""
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n - 1}"}] * 2} for n in range(1, depth)}
    return json.dumps({"$defs": {"d0": {"type": "object"}, **parts}, "$ref": f"#/$defs/d{depth - 1}"})


BOMBS: dict[str, tuple[str, str]] = {
    "references that double": ("JSON", wide_refs(40)),
    "a reference to itself": ("JSON", '{"$ref":"#"}'),
    "references in a ring": (
        "JSON", '{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}',
    ),
    "a reference to another machine": ("JSON", '{"$ref":"http://127.0.0.1:1/x"}'),
    "a pattern that backtracks": ("JSON", '{"type":"string","pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}'),
    "a pattern of huge repeats": ("JSON", '{"type":"string","pattern":"((a{1,1000}){1,1000}){1,1000}"}'),
    "nesting in JSON Schema": ("JSON", nested(20_000, '{"not":', "}", "{}")),
    "brackets without end": ("JSON", "[" * 200_000),
    "an enum of very many": ("JSON", json.dumps({"enum": [f"v{n}" for n in range(20_000)]})),
    "nesting in Avro": ("AVRO", deep_avro(10_000)),
    "an Avro enum of very many": (
        "AVRO", json.dumps({"type": "enum", "name": "e", "symbols": [f"s{n}" for n in range(20_000)]}),
    ),
    "Avro records that double": (
        "AVRO",
        json.dumps({"type": "record", "name": "r", "fields": [
            {"name": f"f{n}", "type": ["null", "r"]} for n in range(2000)]}),
    ),
    "nesting in Protobuf": (
        "PROTOBUF", 'syntax = "proto3";' + nested(3000, "message M {", "}", "int32 a = 1;"),
    ),
    "a Protobuf message of very many fields": (
        "PROTOBUF", 'syntax = "proto3"; message M {' + "".join(f"int32 f{n} = {n};" for n in range(1, 9000)) + "}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_would_take_for_ever_is_refused_or_costs_little(server: Server, name: str) -> None:
    kind, definition = BOMBS[name]
    path = f"/subjects/{fresh_topic()}/versions"
    for _ in range(2):  # the second time beside the first version, if that was taken
        answer = call(server, "POST", path, {"schemaType": kind, "schema": definition})
        assert answer.status in (200, 409, 413, 422)


def test_a_pattern_that_backtracks_is_checked_in_time(server: Server) -> None:
    topic = fresh_topic()
    register(server, topic, {"type": "string", "pattern": "^(a+)+$"})
    bind(server, topic, topic, "enforce")
    assert call(server, "POST", f"/topics/{topic}", json.dumps("a" * 50_000 + "b").encode()).status == 422
    assert call(server, "POST", f"/topics/{topic}", json.dumps("a" * 50_000).encode()).status == 201


# ---- good traffic, damaged -------------------------------------------------------------------------------------------

GOOD: dict[Door, list[bytes]] = {
    "tcp": [b"".join(struct.pack(">I", len(m)) + m for m in [b"publish:a.b:1.0.0\nx", b"request:a:1.0.0\nx"] * 5)],
    "websocket": [upgrade() + ws(TEXT, b"publish:a.b:1.0.0\nx") * 5 + ws(CLOSE)],
    "danube": [GREETING + each(10, lambda n: opened(n) + data(n, message(b"")))],
    "zbus": [b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\ncontent-length: 3\r\n\r\nabc" * 5],
    "seneca": [HTTP_DOORS["seneca"] + b"content-length: 7\r\n\r\n" + b'{"a":1}'],
    "seneca_tcp": [b'{"a":1,"meta$":{"id":"a/b"}}\n' * 5],
    "console": [
        HTTP_DOORS["console"] + b"content-length: 3\r\n\r\nabc",
        HTTP_DOORS["console"] + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ],
}


def damaged(rng: random.Random, good: bytes) -> bytes:
    """Bytes changed, cut out, doubled or put in."""
    found = bytearray(good)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.randint(0, 20))
        found[at:end] = rng.choice(
            (b"", rng.randbytes(3), bytes(found[at:end]) * 2, b"\r\n", b"\0", rng.randbytes(1) * 50)
        )
    return bytes(found)


@pytest.mark.parametrize("door", GOOD)
def test_damaged_traffic_ends_in_an_answer_or_a_close(server: Server, door: Door) -> None:
    rng = seeded(f"damaged {door}")
    for _ in range(rounds(*ROUNDS)):
        said_to(server, door, damaged(rng, rng.choice(GOOD[door])), farewell=True)
