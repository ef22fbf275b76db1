from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest

from raceway import config
from raceway.wires.mb.listen.websocket import MANY_MESSAGES, is_admitted
from raceway.wires.mb.settings import MbWire
from tests.rigs.hosted import Hosted, hosted
from tests.rigs.mb_wire import SUCCESS, RawWebSocket, WebSocketPeer, reply_header
from tests.rigs.server import wait_until

TEXT, BINARY, CONTINUATION = RawWebSocket.TEXT, RawWebSocket.BINARY, RawWebSocket.CONTINUATION
CLOSE, PING, PONG = RawWebSocket.CLOSE, RawWebSocket.PING, RawWebSocket.PONG
ID = "550e8400-e29b-41d4-a716-446655440000"
HEARTBEAT = f"request:system.heartbeat:1.0.0:{ID}\n{{}}".encode()
ANSWER = f"{reply_header('system.heartbeat', ID)}\n".encode() + SUCCESS
LARGEST = 16_751


@pytest.fixture(scope="module")
def bus() -> Iterator[Hosted]:
    with hosted() as bus:
        yield bus


@pytest.fixture
def raw(bus: Hosted) -> Iterator[RawWebSocket]:
    with RawWebSocket(bus.websocket_port) as raw:
        yield raw.greeted()


class Pieces:
    """Frames joined into one write, so that they arrive in one read."""

    def __init__(self, raw: RawWebSocket) -> None:
        self._raw = raw
        self._socket = raw.socket
        self.data = b""

    def sendall(self, data: bytes) -> None:
        self.data += data

    def __enter__(self) -> RawWebSocket:
        self._raw.socket = self  # type: ignore[assignment]
        return self._raw

    def __exit__(self, *_: object) -> None:
        self._raw.socket = self._socket
        self._socket.sendall(self.data)


def answers(raw: RawWebSocket) -> None:
    """The connection lives: a heartbeat is answered."""
    raw.send_frame(TEXT, HEARTBEAT)
    assert raw.receive_frame().payload == ANSWER


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TEXT, BINARY])
def test_text_and_binary_messages_are_taken_and_answered_with_text(raw: RawWebSocket, kind: int) -> None:
    raw.send_frame(kind, HEARTBEAT)
    answer = raw.receive_frame()
    assert (answer.opcode, answer.payload) == (TEXT, ANSWER)


def test_a_library_agrees(bus: Hosted) -> None:
    """The `websockets` client: what we write is WebSocket to somebody else, too."""
    with WebSocketPeer(f"ws://127.0.0.1:{bus.websocket_port}/any/path?q=1") as peer:
        peer.subscribe("library.#")
        sent = "größer\n" * 1500
        reply = peer.publish("library.a", sent)
        assert reply.payload == SUCCESS
        assert peer.receive().payload == sent.encode()


@pytest.mark.parametrize("first", [TEXT, BINARY])
@pytest.mark.parametrize("size", [1, 7, 40])
def test_fragments_are_one_message(raw: RawWebSocket, first: int, size: int) -> None:
    parts = [HEARTBEAT[at : at + size] for at in range(0, len(HEARTBEAT), size)]
    for number, part in enumerate(parts):
        raw.send_frame(first if number == 0 else CONTINUATION, part, fin=number == len(parts) - 1)
    assert raw.receive_frame().payload == ANSWER


def test_empty_fragments_are_fragments(raw: RawWebSocket) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, b"", fin=False)
        for _ in range(5):
            pieces.send_frame(CONTINUATION, b"", fin=False)
        pieces.send_frame(CONTINUATION, HEARTBEAT, fin=False)
        pieces.send_frame(CONTINUATION, b"", fin=True)
    assert raw.receive_frame().payload == ANSWER


def test_empty_fragments_without_end_cost_no_memory(bus: Hosted, raw: RawWebSocket) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, b"", fin=False)
        for _ in range(2000):
            pieces.send_frame(CONTINUATION, b"", fin=False)
        pieces.send_frame(PING, b"done")
    assert raw.receive_frame().opcode == PONG
    session = bus.newest()
    listener = session._pending.__self__  # type: ignore[attr-defined]
    assert len(listener._fragments) == 1
    assert session._pending() > 0, "a message is begun all the same"


def test_control_frames_may_stand_between_fragments(raw: RawWebSocket) -> None:
    raw.send_frame(TEXT, HEARTBEAT[:10], fin=False)
    raw.send_frame(PING, b"between")
    raw.send_frame(PONG, b"unasked")
    raw.send_frame(CONTINUATION, HEARTBEAT[10:])
    assert raw.receive_frame()[1] == b"between"
    assert raw.receive_frame().payload == ANSWER


def test_a_ping_is_answered_with_its_own_bytes(raw: RawWebSocket) -> None:
    raw.send_frame(PING, b"\x00\xffany")
    pong = raw.receive_frame()
    assert (pong.opcode, pong.payload) == (PONG, b"\x00\xffany")


def test_a_message_is_taken_also_when_a_ping_follows_it_in_the_same_read(raw: RawWebSocket) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, HEARTBEAT)
        pieces.send_frame(PING, b"p")
    frames = {raw.receive_frame().payload, raw.receive_frame().payload}
    assert frames == {b"p", ANSWER}


def test_a_message_is_taken_also_when_half_of_the_next_follows_it(raw: RawWebSocket) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, HEARTBEAT)
        pieces.socket.sendall(b"\x81\xfe")
    assert raw.receive_frame().payload == ANSWER


def test_many_messages_in_one_read_are_all_taken_in_order(raw: RawWebSocket) -> None:
    ids = [str(uuid.uuid4()) for _ in range(3 * MANY_MESSAGES)]
    with Pieces(raw) as pieces:
        for one in ids:
            pieces.send_frame(TEXT, f"request:system.heartbeat:1.0.0:{one}\n".encode())
    heard = [raw.receive_frame().payload.split(b":")[3].decode() for _ in ids]
    assert heard == ids
    answers(raw)


# ---- what breaks the protocol ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rsv", [1, 2, 4, 7])
@pytest.mark.parametrize("kind", [TEXT, PING])
def test_reserved_bits_close_with_1002(bus: Hosted, raw: RawWebSocket, rsv: int, kind: int) -> None:
    failed = bus.counted("connection.failed")
    raw.send_frame(kind, b"x", rsv=rsv)
    assert raw.close_code() == 1002
    assert bus.counted("connection.failed") == failed + 1


def test_a_continuation_of_nothing_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(CONTINUATION, b"x")
    assert raw.close_code() == 1002


@pytest.mark.parametrize("kind", [TEXT, BINARY])
def test_a_new_message_within_a_message_closes_with_1002(raw: RawWebSocket, kind: int) -> None:
    raw.send_frame(TEXT, b"begun", fin=False)
    raw.send_frame(kind, b"new")
    assert raw.close_code() == 1002


@pytest.mark.parametrize("payload", [b"\xff", b"publish:a:1.0.0\n\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_text_that_is_not_utf_8_closes_with_1007(raw: RawWebSocket, payload: bytes) -> None:
    raw.send_frame(TEXT, payload)
    assert raw.close_code() == 1007


def test_a_character_may_be_split_between_fragments(bus: Hosted, raw: RawWebSocket) -> None:
    raw.send_frame(TEXT, b"publish:a:1.0.0\n\xc3", fin=False)
    raw.send_frame(CONTINUATION, b"\xbc")
    assert b"NO_ROUTE_FOUND" in raw.receive_frame().payload


def test_a_binary_message_need_not_be_utf_8(raw: RawWebSocket) -> None:
    raw.send_frame(BINARY, b"publish:a:1.0.0\n\xff")
    assert b"NO_ROUTE_FOUND" in raw.receive_frame().payload


@pytest.mark.parametrize("sizes", [[LARGEST], [LARGEST - 1, 1], [1, LARGEST - 1], [0, LARGEST, 0]])
def test_the_largest_message_is_taken_however_it_is_cut(raw: RawWebSocket, sizes: list[int]) -> None:
    for number, size in enumerate(sizes):
        raw.send_frame(CONTINUATION if number else TEXT, b"x" * size, fin=number == len(sizes) - 1)
    assert b"MALFORMED_MESSAGE" in raw.receive_frame().payload
    answers(raw)


@pytest.mark.parametrize("sizes", [[LARGEST + 1], [LARGEST, 1], [1, LARGEST]])
def test_one_byte_more_closes_with_1009(raw: RawWebSocket, sizes: list[int]) -> None:
    for number, size in enumerate(sizes):
        raw.send_frame(CONTINUATION if number else TEXT, b"x" * size, fin=number == len(sizes) - 1)
    assert raw.close_code() == 1009


@pytest.mark.parametrize("together", [True, False])
def test_what_was_said_before_the_breach_is_done_and_answered(raw: RawWebSocket, together: bool) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, HEARTBEAT)
        if together:
            pieces.send_frame(CONTINUATION, b"x")
    assert raw.receive_frame().payload == ANSWER
    if not together:
        raw.send_frame(CONTINUATION, b"x")
    assert raw.close_code() == 1002


def test_nothing_is_taken_after_the_breach(bus: Hosted, raw: RawWebSocket) -> None:
    stored = bus.call(lambda: bus.journal.next_sequence)
    with Pieces(raw) as pieces:
        pieces.send_frame(CONTINUATION, b"x")
        pieces.send_frame(TEXT, b"publish:a:1.0.0\n")
    assert raw.close_code() == 1002
    assert bus.call(lambda: bus.journal.next_sequence) == stored


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1011, 3000, 4999])
def test_a_close_is_echoed(raw: RawWebSocket, code: int) -> None:
    raw.send_frame(CLOSE, code.to_bytes(2, "big") + b"bye")
    assert raw.close_code() == code


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 2999, 5000])
def test_a_close_code_that_must_not_be_sent_is_answered_with_1002(raw: RawWebSocket, code: int) -> None:
    raw.send_frame(CLOSE, code.to_bytes(2, "big"))
    assert raw.close_code() == 1002


def test_what_was_said_before_the_close_is_done(bus: Hosted, raw: RawWebSocket) -> None:
    with Pieces(raw) as pieces:
        pieces.send_frame(TEXT, HEARTBEAT)
        pieces.send_frame(CLOSE, (1000).to_bytes(2, "big"))
    assert raw.receive_frame().payload == ANSWER
    assert raw.close_code() == 1000
    wait_until(lambda: bus.sessions() == 0)


def test_a_connection_that_just_ends_is_forgotten(bus: Hosted) -> None:
    wait_until(lambda: bus.sessions() == 0)
    with RawWebSocket(bus.websocket_port) as raw:
        raw.greeted()
        assert bus.sessions() == 1
    wait_until(lambda: bus.sessions() == 0)


def test_silence_closes_with_1000() -> None:
    wire = MbWire(heartbeat_ms=30, deregister_ms=60, sweep_ms=10)
    with hosted(wires=(wire,)) as bus, RawWebSocket(bus.websocket_port) as raw:
        assert raw.greeted().close_code() == 1000
        assert bus.counted("bus.silent_closed") == 1


@pytest.mark.parametrize("begun", ["a fragment", "an empty fragment", "half a frame"])
def test_a_message_that_is_begun_and_never_ends_is_cut(begun: str) -> None:
    wire = MbWire(sweep_ms=10)
    with hosted(wires=(wire,), head_s=0.05) as bus, RawWebSocket(bus.websocket_port) as raw:
        raw.greeted()
        if begun == "half a frame":
            raw.socket.sendall(b"\x81\x85ma")
        else:
            raw.send_frame(TEXT, b"x" if begun == "a fragment" else b"", fin=False)
        assert raw.close_code() is None
        assert bus.counted("bus.stalled_closed") == 1


def test_a_service_that_says_all_before_it_reads_hears_all_it_said(bus: Hosted, raw: RawWebSocket) -> None:
    """It hears itself: output that waits must not keep it from being read for ever, nor grow without a bound."""
    # Kernels let receive buffers grow to tens of megabytes. This one must not: what is not read waits in the bus.
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    raw.send_frame(TEXT, f"subscribe:loud:1.0.0:{ID}\n".encode())
    assert raw.receive_frame().payload.endswith(SUCCESS)
    one = Pieces(raw)
    with one:
        raw.send_frame(TEXT, b"publish:loud:1.0.0\n" + b"x" * 10_000)
    raw.socket.settimeout(30)
    raw.socket.sendall(one.data * 3999)
    # The bus's own receive buffer may still hold most of it: on a busy machine a reader would keep up from here on.
    wait_until(lambda: bus.counted("bus.detached") == 1, 30, "it to leave the live path")
    for _ in range(4000):
        assert len(raw.receive_frame().payload) > 10_000
    assert (bus.counted("bus.slow_closed"), bus.counted("bus.detached")) == (0, 1)


@pytest.mark.parametrize(("count", "yields"), [(MANY_MESSAGES, True), (MANY_MESSAGES - 1, False)])
def test_many_messages_in_one_read_yield_the_turn(
    bus: Hosted, raw: RawWebSocket, monkeypatch: pytest.MonkeyPatch, count: int, yields: bool
) -> None:
    yielded: list[int] = []
    monkeypatch.setattr("raceway.wires.mb.listen.session.MbSession.yield_turn", lambda session: yielded.append(1))
    with Pieces(raw) as pieces:
        for _ in range(count):
            pieces.send_frame(TEXT, HEARTBEAT)
    for _ in range(count):
        assert raw.receive_frame().payload == ANSWER
    assert bool(yielded) is yields


def test_kernel_buffers_are_bounded(bus: Hosted, raw: RawWebSocket) -> None:
    connection = bus.newest().transport.get_extra_info("socket")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * config.Listen().socket_send_bytes


# ---- the upgrade -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offered", "chosen"), [("", None), ("mb", "mb"), ("mb.v2, mb.v1", "mb.v2"), (" a ,b", "a")])
def test_the_first_subprotocol_offered_is_echoed(bus: Hosted, offered: str, chosen: str | None) -> None:
    with RawWebSocket(bus.websocket_port, Sec_WebSocket_Protocol=offered) as raw:
        assert raw.greeted().headers.get("sec-websocket-protocol") == chosen


def test_a_foreign_origin_is_refused_and_counted(bus: Hosted) -> None:
    wait_until(lambda: bus.sessions() == 0)
    failed, sessions = bus.counted("connection.failed"), bus.sessions()
    with RawWebSocket(bus.websocket_port, Origin="https://evil.example") as raw:
        assert raw.status == 403
    assert (bus.counted("connection.failed"), bus.sessions()) == (failed + 1, sessions)


def test_one_connection_too_many_is_refused() -> None:
    with hosted(wires=(MbWire(max_connections=1),)) as bus, RawWebSocket(bus.websocket_port) as first:
        first.greeted()
        with RawWebSocket(bus.websocket_port) as second:
            assert second.status == 503
        assert bus.counted("connection.rejected") == 1
        answers(first)


LOOPBACK = ["http://localhost", "https://localhost:3000", "http://127.0.0.1:8080", "http://127.8.9.1", "http://[::1]:1"]
FOREIGN = [
    "https://evil.example", "http://127.0.0.1.evil.example", "http://127.evil.example", "http://localhost.evil.example",
    "http://evil.example/localhost", "null", "", "http://", "http://[::1", "http://10.0.0.1", "http://0.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("origin", LOOPBACK)
def test_pages_from_loopback_are_admitted(origin: str) -> None:
    assert is_admitted(origin, ())


@pytest.mark.parametrize("origin", FOREIGN)
def test_other_pages_are_not_unless_they_are_named(origin: str) -> None:
    assert not is_admitted(origin, ("https://good.example",))
    assert is_admitted(origin, (origin,))
    assert is_admitted(origin, ("*",))
