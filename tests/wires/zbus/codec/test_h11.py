"""zbus heads that are true HTTP, read beside h11. Where both take a message they must agree on every byte of it.

h11 knows less (a request must name its host and its version, a method is upper case only by habit) and forgives more
(lines that end with LF alone, folded lines, a length said twice with a comma), so one may take what the other refuses.
What they must never do is to see a different message.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.wires.zbus.codec.head import ZbusLimits
from raceway.wires.zbus.codec.shapes import ShapedRun
from raceway.wires.zbus.codec.stream import ZbusStream
from tests.rigs.rounds import rounds, seeded
from tests.rigs.zbus_events import Curious, Forgetful


class Message(NamedTuple):
    headers: dict[bytes, bytes]
    body: bytes
    rest: bytes


def h11_reads(data: bytes, role: type[h11.CLIENT | h11.SERVER]) -> Message | None:
    """The first message; None if h11 refuses it or waits for more."""
    connection = h11.Connection(role, max_incomplete_event_size=1 << 20)
    if role is h11.CLIENT:
        connection.send(h11.Request(method="GET", target="/", headers=[("host", "h")]))
        connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    headers: dict[bytes, bytes] = {}
    body = b""
    try:
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return None
            if isinstance(event, h11.Request | h11.Response):
                headers = dict(event.headers)
            elif isinstance(event, h11.Data):
                body += event.data
    except h11.RemoteProtocolError:
        return None
    return Message(headers, body, connection.trailing_data[0])


def zbus_reads(data: bytes) -> Message | None:
    """The first message, and how much was left for the next: found by giving the bytes one by one."""
    stream = ZbusStream(ZbusLimits(), Forgetful())
    for at in range(len(data)):
        for found in stream.receive(data[at : at + 1]):
            if isinstance(found, ShapedRun):
                keys = {name: value for name, value in found.keys.items() if type(value) is bytes}
                of_headers = {name: value for name, value in keys.items() if name not in found.first.keys}
                return Message(of_headers, found.bodies[0], data[at + 1 :])
            return None
    return None


def assert_same(data: bytes, role: type[h11.CLIENT | h11.SERVER]) -> bool:
    """False if one of them does not take it."""
    theirs, ours = h11_reads(data, role), zbus_reads(data)
    if theirs is None or ours is None:
        return False
    assert ours == theirs, data
    return True


# ---- messages as they should be -------------------------------------------------------------------------------------

names = st.sampled_from(["X-Shop", "cmd", "msgid", "Accept", "x.y", "user-agent", "Token", "x!#$%&'*+-.^_`|~1"])
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20).map(str.strip)
headers = st.dictionaries(names, values, max_size=5)


@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH"]), headers, st.none() | st.binary(max_size=40), st.binary(max_size=9)
)
def test_request_is_read_as_h11_reads_it(method: str, headers: dict[str, str], body: bytes | None, rest: bytes) -> None:
    lines = [f"{method} / HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    data = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
    assert assert_same(data + rest, h11.SERVER)


@given(st.sampled_from([200, 201, 400, 404, 500, 599]), headers, st.binary(max_size=40), st.binary(max_size=9))
def test_reply_is_read_as_h11_reads_it(status: int, headers: dict[str, str], body: bytes, rest: bytes) -> None:
    lines = [f"HTTP/1.1 {status} Reason Given", *(f"{name}:{value}" for name, value in headers.items())]
    data = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    assert assert_same(data + rest, h11.CLIENT)


# ---- messages as they should not be ---------------------------------------------------------------------------------

SAMPLES = [
    b"POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 4\r\nx-a: b c\r\n\r\nbodyGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: h\r\naccept: */*\r\n\r\nPOST / HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\n\r\nx",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\nConnection: close\r\n\r\n0123456789",
    b"POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\nbody",
]
PIECES = [
    b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\0", b"0", b"4", b",", b";", b"+", b"-", b"\x0b", b"\x7f",
    b"\x85", b"\xa0",
    b"content-length: 1\r\n", b"Content-Length:2\r\n", b"content-length : 3\r\n", b" content-length: 3\r\n",
    b"transfer-encoding: chunked\r\n", b"Transfer-Encoding:identity\r\n", b"content-length: 4, 4\r\n", b"\r\n\r\n",
]  # fmt: skip


def _changed(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 2, 3])):
        at, piece = chance.randrange(len(data)), chance.choice(PIECES)
        if chance.random() < 0.7 and b"\r\n" in data:  # mostly where a line starts
            starts = [found + 2 for found in range(len(data)) if data.startswith(b"\r\n", found)]
            at = chance.choice(starts)
        data = data[:at] + piece + data[at + chance.choice([0, 0, 1, len(piece)]) :]
    return data


def test_damaged_request_is_never_seen_as_another_one() -> None:
    chance = seeded("damaged requests")
    tries = 3000 * rounds(1)
    agreed = sum(assert_same(_changed(chance.choice(SAMPLES), chance), h11.SERVER) for _ in range(tries))
    assert agreed > tries // 20  # else the damage is too great for the test to mean anything


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([*PIECES, b"GET / HTTP/1.1\r\n", b"host: h\r\n", b"x: y", b"GET", b"\r\n"]), max_size=12)
)
def test_pieces_in_any_order_are_never_seen_as_another_request(pieces: list[bytes]) -> None:
    assert_same(b"GET / HTTP/1.1\r\nhost: h\r\n" + b"".join(pieces) + b"\r\n\r\n", h11.SERVER)


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_are_taken_by_both(sample: bytes) -> None:
    assert assert_same(sample, h11.SERVER)


def test_learned_shapes_read_what_h11_reads() -> None:
    data = SAMPLES[0].partition(b"GET")[0]
    stream = ZbusStream(ZbusLimits(), Curious())
    theirs = h11_reads(data, h11.SERVER)
    assert theirs is not None
    for _ in range(3):
        for run in stream.receive(data * 40):
            assert isinstance(run, ShapedRun)
            assert run.keys == theirs.headers
            assert set(run.bodies) == {theirs.body}
