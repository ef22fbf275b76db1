"""Conversations with bytes changed, left out and doubled: the fuzz target on what is almost right."""

from __future__ import annotations

import gzip

import pytest

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import frame
from tests.fuzz.grpc_receiver import check
from tests.rigs.http2 import CALL, block, call, data, headers, message, with_fields
from tests.rigs.rounds import rounds, seeded

CHAT = with_fields(path="/test.Echo/Chat")
PIECES = [
    call(1),
    call(3, bytes(200)),
    headers(5, *CHAT) + data(5, message(b"a") + message(b"b"), end=False),
    headers(7, flags=0) + frame(h2.CONTINUATION, h2.END_HEADERS, 7),
    data(7, message(b"in parts")[:4], end=False) + data(7, message(b"in parts")[4:]),
    data(5, message(b"c")),
    frame(h2.PING, 0, 0, b"12345678"),
    h2.settings([(h2.INITIAL_WINDOW_SIZE, 10), (h2.MAX_FRAME_SIZE, 20_000)]),
    h2.window_update(0, 1000) + h2.window_update(5, 7),
    headers(9, *CALL, ("grpc-encoding", "gzip")) + data(9, message(gzip.compress(bytes(100)), True)),
    headers(11, *with_fields(method="GET")) + data(11, b"a stranger"),
    headers(13) + h2.reset(13, h2.CANCEL),
    frame(h2.HEADERS, h2.END_HEADERS, 15, block(*CALL) + b"\x40\x01x\x05value") + data(15, message(b"x")),
    frame(h2.HEADERS, h2.END_HEADERS, 17, block(*CALL) + b"\xbe") + data(17, message(b"y")),
    headers(19) + frame(h2.DATA, h2.PADDED | h2.END_STREAM, 19, b"\3" + message(b"z") + bytes(3)),
]


@pytest.mark.parametrize("number", range(rounds(300)))
def test_damage_is_judged_alike_however_it_is_read(number: int) -> None:
    rng = seeded("damage")
    pieces = list(PIECES)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(pieces))
        pieces[at : at + 1] = rng.choice([[], [pieces[at]] * 2, [rng.randbytes(12), pieces[at]]])
    damaged = bytearray(b"".join(pieces))
    for _ in range(rng.randrange(8)):
        damaged[rng.randrange(len(damaged))] = rng.choice([0, 1, 5, 255, rng.randrange(256)])
    check(bytes([rng.randrange(256)]) + bytes(damaged))


def test_without_damage_everything_is_heard() -> None:
    check(b"\x40" + b"".join(PIECES))
