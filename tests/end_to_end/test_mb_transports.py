"""MB over TCP and over WebSocket: frames, limits, and what each transport must refuse."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import InvalidStatus

from tests.rigs.mb_wire import (
    GREETING,
    LARGEST,
    SUCCESS,
    Join,
    Peer,
    RawWebSocket,
    TcpPeer,
    Transport,
    WebSocketPeer,
    assert_error,
    compose,
    connect,
    connect_socket,
    fresh_topic,
    new_id,
)
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import I, frame

HEARTBEAT = compose(f"request:system.heartbeat:1.0.0:{I}")
ALIVE = f"response:system.heartbeat:1.0.0:{I}:{I}\n".encode() + SUCCESS


@pytest.fixture(params=["tcp", "websocket"])
def transport(request: pytest.FixtureRequest) -> Transport:
    """Both, also in `make test`."""
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def tcp(server: Server) -> Iterator[TcpPeer]:
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        yield peer


@pytest.fixture
def raw(server: Server) -> Iterator[RawWebSocket]:
    with RawWebSocket(server.port("websocket")) as websocket:
        yield websocket.greeted()


# ---- TCP -------------------------------------------------------------------------------------------------------------


def test_the_example_frame_starts_as_the_protocol_says(tcp: TcpPeer) -> None:
    assert frame(HEARTBEAT)[:7] == bytes.fromhex("00000046 726571")
    tcp.write_bytes(frame(HEARTBEAT))
    assert tcp.read_message(5) == ALIVE


def test_a_frame_may_come_byte_by_byte(tcp: TcpPeer) -> None:
    for byte in frame(HEARTBEAT):
        tcp.write_bytes(bytes([byte]))
    assert tcp.read_message(5) == ALIVE


def test_two_glued_frames_may_be_split_at_every_byte(tcp: TcpPeer) -> None:
    data = frame(HEARTBEAT) * 2
    for cut in range(1, len(data)):
        tcp.write_bytes(data[:cut])
        tcp.write_bytes(data[cut:])
        assert [tcp.read_message(5), tcp.read_message(5)] == [ALIVE, ALIVE]


def test_many_glued_frames_are_answered_in_order(tcp: TcpPeer) -> None:
    ids = [new_id() for _ in range(2000)]
    tcp.write_bytes(b"".join(frame(compose(f"request:system.heartbeat:1.0.0:{i}")) for i in ids))
    assert [tcp.receive().id for _ in ids] == ids


def test_a_frame_of_length_zero_is_legal_framing(tcp: TcpPeer) -> None:
    tcp.write_bytes(bytes(4) + frame(HEARTBEAT) + bytes(4))
    text = "Invalid message format: no newline separator found within the maximum header length of 367 bytes"
    assert_error(tcp.receive(), "MALFORMED_MESSAGE", text)
    assert tcp.read_message(5) == ALIVE
    assert_error(tcp.receive(), "MALFORMED_MESSAGE", text)


def test_a_frame_of_the_largest_size_is_read(tcp: TcpPeer) -> None:
    header = f"publish:a.b:1.0.0:{I}"
    tcp.send(header, b"x" * (LARGEST - len(header) - 1))
    assert tcp.receive().json()["error"]["message"] == "Payload exceeds maximum length of 16KB"
    assert tcp.settled() == []


@pytest.mark.parametrize("word", ["00004170", "00010000", "7fffffff", "ffffffff"])
def test_a_longer_length_word_closes_at_once_without_a_message(tcp: TcpPeer, word: str) -> None:
    """16752 and up: the body is not waited for."""
    tcp.write_bytes(bytes.fromhex(word))
    assert tcp.until_closed() == ([], None)


def test_frames_before_a_too_long_one_are_still_answered(tcp: TcpPeer) -> None:
    tcp.write_bytes(frame(HEARTBEAT) + (LARGEST + 1).to_bytes(4, "big"))
    messages, _ = tcp.until_closed()
    assert [message.id for message in messages] == [I]


def test_http_on_the_tcp_port_reads_as_a_giant_length_and_is_closed(tcp: TcpPeer) -> None:
    tcp.write_bytes(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert tcp.until_closed() == ([], None)


def test_an_answer_may_be_longer_than_the_largest_inbound_frame(peer: Peer) -> None:
    start = fresh_topic(1)
    for number in range(80):
        peer.subscribe(f"{start}.{'x' * 230}{number}")
    reply = peer.ask("system.topic.list")
    assert len(reply.payload) > LARGEST
    assert sum(row["topic"].startswith(start) for row in reply.json()["topics"]) == 80


# ---- WebSocket: messages ---------------------------------------------------------------------------------------------


def test_text_and_binary_messages_are_answered_with_text(raw: RawWebSocket) -> None:
    for opcode in (raw.TEXT, raw.BINARY):
        raw.send_frame(opcode, HEARTBEAT)
        assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)


@pytest.mark.parametrize("opcode", [RawWebSocket.TEXT, RawWebSocket.BINARY])
def test_a_message_may_come_in_fragments(raw: RawWebSocket, opcode: int) -> None:
    raw.send_frame(opcode, HEARTBEAT[:1], fin=False)
    for byte in HEARTBEAT[1:-1]:
        raw.send_frame(raw.CONTINUATION, bytes([byte]), fin=False)
    raw.send_frame(raw.CONTINUATION, HEARTBEAT[-1:])
    assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)


def test_empty_fragments_are_fine(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, b"", fin=False)
    raw.send_frame(raw.CONTINUATION, HEARTBEAT, fin=False)
    raw.send_frame(raw.CONTINUATION, b"")
    assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)


def test_a_character_may_be_split_between_fragments(raw: RawWebSocket, server: Server) -> None:
    topic = fresh_topic()
    with connect(server, "tcp") as subscriber:
        subscriber.subscribe(topic)
        message = compose(f"publish:{topic}:1.0.0", "€")
        raw.send_frame(raw.TEXT, message[:-1], fin=False)
        raw.send_frame(raw.CONTINUATION, message[-1:])
        assert subscriber.receive().payload == "€".encode()


def test_a_ping_is_answered_with_a_pong_even_between_fragments(raw: RawWebSocket) -> None:
    raw.send_frame(raw.PING, b"are you there")
    assert raw.receive_frame() == (0x80 | raw.PONG, b"are you there")
    raw.send_frame(raw.TEXT, HEARTBEAT[:10], fin=False)
    raw.send_frame(raw.PING, b"")
    assert raw.receive_frame() == (0x80 | raw.PONG, b"")
    raw.send_frame(raw.CONTINUATION, HEARTBEAT[10:])
    assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)


def test_a_pong_nobody_asked_for_is_ignored(raw: RawWebSocket) -> None:
    raw.send_frame(raw.PONG, b"hello")
    raw.send_frame(raw.TEXT, HEARTBEAT)
    assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)


def test_binary_bytes_that_are_no_utf8_come_back_replaced(raw: RawWebSocket) -> None:
    raw.send_frame(raw.BINARY, b"publish:a\xff:1.0.0\n{}")
    received = raw.receive_frame()
    assert received.opcode == raw.TEXT
    assert "Invalid topic name: a\ufffd" in received.payload.decode()


def test_many_messages_in_one_write_are_answered_in_order(server: Server) -> None:
    with connect(server, "websocket") as peer:
        ids = [new_id() for _ in range(500)]
        peer.write_messages(compose(f"request:system.heartbeat:1.0.0:{i}") for i in ids)
        assert [peer.receive().id for _ in ids] == ids


def test_an_empty_message_is_answered_with_an_error(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, b"")
    assert b"no newline separator found" in raw.receive_frame().payload


# ---- WebSocket: handshake --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/", "/any/path", "/mb?token=x&y=1", "/%C3%A4", "/" + "p" * 2000])
def test_any_path_and_query_is_accepted(server: Server, target: str) -> None:
    with RawWebSocket(server.port("websocket"), target) as websocket:
        websocket.greeted()


@pytest.mark.parametrize(("offered", "chosen"), [("mb", "mb"), ("one, two, three", "one"), ("", None)])
def test_the_first_offered_subprotocol_is_echoed(server: Server, offered: str, chosen: str | None) -> None:
    with RawWebSocket(server.port("websocket"), Sec_WebSocket_Protocol=offered) as websocket:
        assert websocket.headers.get("sec-websocket-protocol") == chosen
        websocket.greeted()


def test_the_client_library_sees_its_subprotocol(server: Server) -> None:
    url = f"ws://127.0.0.1:{server.port('websocket')}/"
    with WebSocketPeer(url, subprotocols=["chat", "mb"]) as peer:
        assert peer.websocket.subprotocol == "chat"


def test_no_compression_is_agreed_on(server: Server) -> None:
    offer = "permessage-deflate; client_max_window_bits"
    with RawWebSocket(server.port("websocket"), Sec_WebSocket_Extensions=offer) as websocket:
        assert "sec-websocket-extensions" not in websocket.headers
        websocket.greeted()


@pytest.mark.parametrize(
    "missing", [{"Sec_WebSocket_Key": ""}, {"Sec_WebSocket_Version": "12"}, {"Upgrade": ""}, {"Connection": ""}]
)
def test_a_request_that_is_no_handshake_is_refused(server: Server, missing: dict[str, str]) -> None:
    with RawWebSocket(server.port("websocket"), **missing) as websocket:
        assert 400 <= websocket.status < 500


# ---- WebSocket: origins ----------------------------------------------------------------------------------------------

LOOPBACK = [
    "http://localhost",
    "http://localhost:5173",
    "https://127.0.0.1:8443",
    "http://127.0.0.1",
    "http://127.8.9.10:80",
    "http://[::1]:3000",
]
FOREIGN = [
    "https://evil.example",
    "http://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://127.evil.example",
    "http://notlocalhost",
    "http://evil.example:80#localhost",
    "http://localhost@evil.example",
    "http://192.168.0.1",
    "null",
]


@pytest.mark.parametrize("origin", LOOPBACK)
def test_a_loopback_origin_is_admitted(server: Server, origin: str) -> None:
    with RawWebSocket(server.port("websocket"), Origin=origin) as websocket:
        websocket.greeted()


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_origin_is_refused(server: Server, origin: str) -> None:
    with RawWebSocket(server.port("websocket"), Origin=origin) as websocket:
        assert websocket.status == 403


def test_a_client_without_origin_is_admitted(server: Server) -> None:
    with RawWebSocket(server.port("websocket")) as websocket:
        websocket.greeted()


def test_configured_origins_are_admitted_beside_loopback_ones() -> None:
    with running_server(RACEWAY_LISTEN__MB__ORIGINS='["https://app.example"]') as server, ExitStack() as stack:

        def status(origin: str) -> int:
            return stack.enter_context(RawWebSocket(server.port("websocket"), Origin=origin)).status

        assert status("https://app.example") == 101
        assert status("http://localhost:3000") == 101
        assert status("http://app.example") == 403
        assert status("https://app.example.evil.example") == 403
        assert status("https://app.example:444") == 403


def test_a_refused_origin_is_an_http_error_to_a_client_library(server: Server) -> None:
    with pytest.raises(InvalidStatus):
        WebSocketPeer(f"ws://127.0.0.1:{server.port('websocket')}/", origin="https://evil.example")


# ---- WebSocket: what must be refused ---------------------------------------------------------------------------------


def test_a_message_of_the_largest_size_is_read(server: Server) -> None:
    with connect(server, "websocket") as peer:
        peer.write_messages([b"x" * LARGEST])
        assert peer.receive().json()["error"]["code"] == "MALFORMED_MESSAGE"
        assert peer.settled() == []


@pytest.mark.parametrize("size", [LARGEST + 1, 65_535])
def test_a_longer_message_closes_with_1009(raw: RawWebSocket, size: int) -> None:
    raw.send_frame(raw.TEXT, b"x" * size)
    assert raw.close_code() == 1009


def test_the_client_library_sees_1009_too(server: Server) -> None:
    with connect(server, "websocket") as peer:
        peer.write_messages([b"x" * (LARGEST + 1)])
        assert peer.until_closed() == ([], 1009)


def test_fragments_that_are_too_long_together_close_with_1009(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, b"x" * 10_000, fin=False)
    raw.send_frame(raw.CONTINUATION, b"x" * (LARGEST - 9_999), fin=False)
    assert raw.close_code() == 1009


def test_a_frame_that_promises_gigabytes_closes_with_1009(raw: RawWebSocket) -> None:
    raw.socket.sendall(b"\x81\xff" + (1 << 40).to_bytes(8, "big") + b"mask")
    assert raw.close_code() == 1009


@pytest.mark.parametrize("reserved", [1, 2, 4])
def test_a_reserved_bit_closes_with_1002(raw: RawWebSocket, reserved: int) -> None:
    raw.send_frame(raw.TEXT, HEARTBEAT, rsv=reserved)
    assert raw.close_code() == 1002


def test_an_unmasked_frame_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, HEARTBEAT, masked=False)
    assert raw.close_code() == 1002


@pytest.mark.parametrize("opcode", [3, 7, 11, 15])
def test_an_unknown_opcode_closes_with_1002(raw: RawWebSocket, opcode: int) -> None:
    raw.send_frame(opcode, b"")
    assert raw.close_code() == 1002


@pytest.mark.parametrize("opcode", [RawWebSocket.TEXT, RawWebSocket.BINARY])
def test_a_new_message_inside_a_fragmented_one_closes_with_1002(raw: RawWebSocket, opcode: int) -> None:
    raw.send_frame(raw.TEXT, HEARTBEAT[:10], fin=False)
    raw.send_frame(opcode, HEARTBEAT)
    assert raw.close_code() == 1002


def test_a_continuation_of_nothing_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(raw.CONTINUATION, HEARTBEAT)
    assert raw.close_code() == 1002


def test_a_fragmented_ping_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(raw.PING, b"x", fin=False)
    assert raw.close_code() == 1002


def test_a_ping_of_more_than_125_bytes_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(raw.PING, b"x" * 126)
    assert raw.close_code() == 1002


@pytest.mark.parametrize("message", [b"publish:a.b:1.0.0\n\xff", b"\xc0\x80", b"a\xed\xa0\x80"])
def test_a_text_message_that_is_no_utf8_closes_with_1007(raw: RawWebSocket, message: bytes) -> None:
    raw.send_frame(raw.TEXT, message)
    assert raw.close_code() == 1007


def test_fragments_of_text_that_are_no_utf8_together_close_with_1007(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, "€".encode()[:1], fin=False)
    raw.send_frame(raw.CONTINUATION, b"x")
    assert raw.close_code() == 1007


@pytest.mark.parametrize("code", [1000, 1001, 3000, 4999])
def test_a_close_is_answered_with_a_close(raw: RawWebSocket, code: int) -> None:
    raw.send_frame(raw.CLOSE, code.to_bytes(2, "big") + b"bye")
    assert raw.close_code() in (1000, code)


def test_a_close_without_a_code_is_answered_with_a_close(raw: RawWebSocket) -> None:
    raw.send_frame(raw.CLOSE)
    assert raw.close_code() in (0, 1000)


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 5000])
def test_a_close_with_a_code_that_must_not_be_sent_closes_with_1002(raw: RawWebSocket, code: int) -> None:
    raw.send_frame(raw.CLOSE, code.to_bytes(2, "big"))
    assert raw.close_code() == 1002


def test_a_close_with_half_a_code_closes_with_1002(raw: RawWebSocket) -> None:
    raw.send_frame(raw.CLOSE, b"\x03")
    assert raw.close_code() == 1002


def test_a_close_reason_that_is_no_utf8_is_a_violation(raw: RawWebSocket) -> None:
    raw.send_frame(raw.CLOSE, b"\x03\xe8\xff\xff")
    assert raw.close_code() in (1002, 1007)


def test_what_came_before_a_violation_is_still_answered(raw: RawWebSocket) -> None:
    raw.send_frame(raw.TEXT, HEARTBEAT)
    raw.send_frame(raw.TEXT, HEARTBEAT, rsv=4)
    assert raw.receive_frame() == (0x80 | raw.TEXT, ALIVE)
    assert raw.close_code() == 1002


# ---- both ------------------------------------------------------------------------------------------------------------


def test_the_greeting_comes_first_and_clients_may_speak_before_it(server: Server) -> None:
    with connect_socket(server.port("tcp")) as connection, connection.makefile("rb") as stream:
        connection.sendall(frame(HEARTBEAT))
        expected = frame(GREETING) + frame(ALIVE)
        assert stream.read(len(expected)) == expected


def test_a_client_that_shuts_down_its_sending_side_is_let_go(server: Server) -> None:
    with connect(server, "tcp") as watcher, TcpPeer(connect_socket(server.port("tcp"))) as leaving:
        topic = fresh_topic()
        leaving.subscribe(topic)
        leaving.socket.shutdown(socket.SHUT_WR)
        assert leaving.until_closed() == ([], None)
        wait_until(lambda: watcher.publish(topic).payload != SUCCESS, what="its subscription is gone")


def test_a_service_on_one_transport_reaches_one_on_the_other(server: Server, transport: Transport, join: Join) -> None:
    with connect(server, "tcp" if transport == "websocket" else "websocket") as other:
        topic = fresh_topic()
        other.subscribe(topic)
        assert join().publish(topic, b"across").payload == SUCCESS
        assert other.receive().payload == b"across"


def test_a_hundred_and_thirty_connections_are_accepted_unless_a_limit_is_set(server: Server, join: Join) -> None:
    """The reference's limit of 100 is a default that nothing enforces."""
    peers = [join() for _ in range(130)]
    assert all(peer.settled() == [] for peer in peers)


def test_closing_the_client_side_ends_the_service(join: Join) -> None:
    staying, leaving = join(), join()
    gone = leaving.service_id()
    assert gone in staying.ask("system.service.list").payload.decode()
    leaving.close()
    wait_until(lambda: gone not in staying.ask("system.service.list").payload.decode())
