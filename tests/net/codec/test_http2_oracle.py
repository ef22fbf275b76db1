"""Our HTTP/2 beside hyper-h2 as the client: what one sends the other understands, however it is cut."""

from __future__ import annotations

import random
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from raceway.net.codec import http2_frames as ours
from raceway.net.codec.grpc import Finished as HalfClosed
from raceway.net.codec.grpc import GrpcConnection, GrpcLimits, Said
from raceway.net.codec.grpc_head import Status
from raceway.net.codec.http2 import Http2Limits
from tests.rigs.http2 import CALL, METHODS, message, with_fields
from tests.rigs.rounds import rounds, seeded


class Pair:
    """A client made of hyper-h2 and our server, joined by buffers that are cut at random."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.client = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None, validate_inbound_headers=True)
        )
        self.client.initiate_connection()
        self.client.update_settings({
            h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: rng.choice([0, 1, 7, 100, 65_535, 1 << 20]),
            h2.settings.SettingCodes.MAX_FRAME_SIZE: rng.choice([16_384, 20_000, 1 << 20]),
            h2.settings.SettingCodes.ENABLE_PUSH: 0,
        })  # fmt: skip
        limits = GrpcLimits(http2=Http2Limits(flood_burst=1_000_000))
        self.server = GrpcConnection(limits, METHODS)
        self.to_client = bytearray()
        self.server.start(self.to_client.extend)
        self.bodies: dict[int, bytearray] = {}
        self.status: dict[int, str] = {}
        self.waiting: dict[int, bytes] = {}  # of requests, not yet sent
        self.calls: list[tuple[int, bytes]] = []
        self.said: dict[int, list[bytes]] = {}

    # ---- the client's side -------------------------------------------------------------------------------------------

    def send_some(self) -> None:
        """As much of the requests as the windows allow, in pieces of any size, with padding now and then."""
        for stream, rest in list(self.waiting.items()):
            room = min(self.client.local_flow_control_window(stream), self.client.max_outbound_frame_size)
            padding = self.rng.choice([None, None, 0, 9, 255])
            room -= 0 if padding is None else padding + 1
            size = min(len(rest), room, self.rng.choice([1, 5, 6, 1000, 20_000, 20_000]))
            if size < 0 or (size == 0 and rest):
                continue
            rest = rest[size:]
            ends = not rest and self.rng.random() < 0.7
            self.client.send_data(stream, self.waiting[stream][:size], end_stream=ends, pad_length=padding)
            if rest:
                self.waiting[stream] = rest
                continue
            del self.waiting[stream]
            if not ends:
                self.end(stream)

    def end(self, stream: int) -> None:
        if self.rng.random() < 0.5:
            self.client.send_headers(stream, [("x-checksum", "none")], end_stream=True)
        else:
            self.client.end_stream(stream)

    def begin(self, fields: tuple[tuple[str, str], ...], body: bytes) -> int:
        stream: int = self.client.get_next_available_stream_id()
        priority: dict[str, Any] = {}
        if self.rng.random() < 0.2:
            priority = {"priority_weight": self.rng.randint(1, 256), "priority_depends_on": 0}
        # Long metadata makes hyper-h2 send CONTINUATION frames.
        fields = fields if self.rng.random() < 0.9 else (*fields, ("x-long", "a\N{COPYRIGHT SIGN}" * 2500))
        self.client.send_headers(stream, fields, **priority)
        self.bodies[stream] = bytearray()
        self.waiting[stream] = body
        return stream

    def disturb(self) -> None:
        """What a client may do at any time, without meaning for the calls."""
        choice = self.rng.randrange(5)
        if choice == 0:
            self.client.ping(self.rng.randbytes(8))
        elif choice == 1:
            self.client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: self.rng.choice([0, 3, 70_000])})
        elif choice == 2:
            self.client._data_to_send += ours.frame(99, 0xFF, self.rng.randrange(9), b"of an extension")
        elif choice == 3 and self.bodies:
            self.client.prioritize(max(self.bodies), weight=7, depends_on=0)

    def widen(self) -> None:
        """Open whatever keeps the server waiting, a little."""
        for stream in list(self.bodies):
            if stream not in self.status:
                self.client.increment_flow_control_window(self.rng.choice([1, 50, 30_000]), stream)
        self.client.increment_flow_control_window(self.rng.choice([1, 1000, 100_000]))

    # ---- both --------------------------------------------------------------------------------------------------------

    def exchange(self) -> None:
        sent = self.client.data_to_send()
        for piece in self.cut(sent):
            for arrivals in self.server.receive_data(piece):
                self.calls += [(stream, body) for stream, body, _ in arrivals.calls]
                for note in arrivals.notes:
                    self.note(note)
        assert self.server.http2.fault is None, self.server.http2.fault
        received, self.to_client[:] = bytes(self.to_client), b""
        for piece in self.cut(received):
            for event in self.client.receive_data(piece):
                self.take(event)

    def cut(self, whole: bytes) -> list[bytes]:
        size = self.rng.choice([1, 2, 9, 100, 5000, 1 << 20])
        if len(whole) / size > 5000:
            size = 1000
        return [whole[at : at + size] for at in range(0, len(whole), size)]

    def note(self, note: object) -> None:
        if isinstance(note, Said):
            self.said.setdefault(note.stream, []).append(note.message)
        elif isinstance(note, HalfClosed):
            self.server.open(note.stream)
            self.server.send(note.stream, self.said[note.stream])
            self.server.end(note.stream, Status.OK, "")

    def take(self, event: Any) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id] += event.data
        elif isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
            for name, value in event.headers:
                if name == b"grpc-status":
                    self.status[event.stream_id] = value.decode()
        assert not isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated), event


@pytest.mark.parametrize("number", range(rounds(60)))
def test_calls_and_answers_are_the_same_at_both_ends_however_they_are_cut(number: int) -> None:
    rng = seeded("oracle")
    pair = Pair(rng)
    asked: dict[int, bytes] = {}
    for _ in range(rng.randint(1, 25)):
        body = rng.randbytes(rng.choice([0, 1, 50, 3000, 70_000, 300_000] if rng.random() < 0.2 else [0, 1, 50, 3000]))
        if rng.random() < 0.2:
            parts = [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 30))]
            body = b"".join(map(message, parts))
            asked[pair.begin(with_fields(path="/test.Echo/Chat"), body)] = body
        else:
            asked[pair.begin(CALL, message(body))] = message(body)
        if rng.random() < 0.5:
            pair.send_some()
            pair.exchange()
        if rng.random() < 0.3:
            pair.disturb()
        answer(pair)
    for _ in range(20_000):
        if len(pair.status) == len(asked):
            break
        pair.send_some()
        pair.exchange()
        answer(pair)
        pair.exchange()
        pair.widen()
    assert pair.status == dict.fromkeys(asked, "0")
    assert {stream: bytes(body) for stream, body in pair.bodies.items()} == asked
    assert pair.server.out.waiting == 0
    assert not pair.server.http2.streams


def answer(pair: Pair) -> None:
    """Some of the open calls, in any order."""
    pair.rng.shuffle(pair.calls)
    some = [pair.calls.pop() for _ in range(pair.rng.randint(0, len(pair.calls)))]
    pair.server.answer_many(some)
