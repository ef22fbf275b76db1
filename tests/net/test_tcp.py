from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator

import pytest

from raceway import config
from raceway.net.tcp import FULL_READ
from raceway.wires.mb.listen.tcp import MbTcp
from raceway.wires.mb.settings import MbWire
from tests.rigs.desk import MbDesk
from tests.rigs.doubles import RecordingTransport
from tests.rigs.hosted import Hosted, hosted
from tests.rigs.mb_wire import SUCCESS, PeerClosed, TcpPeer, compose, connect_socket, reply_header
from tests.rigs.server import wait_until
from tests.rigs.vectors.mb import frame

ID = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture
def desk() -> MbDesk:
    return MbDesk()


@pytest.fixture(scope="module")
def bus() -> Iterator[Hosted]:
    with hosted() as bus:
        yield bus


# ---- over a transport that writes down -------------------------------------------------------------------------------


def test_bytes_may_be_split_at_any_place(desk: MbDesk) -> None:
    service = desk.service()
    for byte in frame(compose(f"request:system.heartbeat:1.0.0:{ID}")):
        service.protocol.data_received(bytes([byte]))
    assert [message.header for message in service.heard()] == [reply_header("system.heartbeat", ID)]


def test_a_full_read_yields_the_turn_and_a_smaller_one_does_not(desk: MbDesk) -> None:
    service = desk.service()
    one = frame(compose("publish:a:1.0.0", b"x" * 1000))
    service.protocol.data_received(one * 10)
    assert service.transport.reading
    service.protocol.data_received(one * (FULL_READ // len(one) + 1))
    assert not service.transport.reading
    desk.loop.turn()
    assert service.transport.reading


def test_over_the_connection_limit_a_peer_is_closed_without_a_word() -> None:
    desk = MbDesk(config.Listen(wires=(MbWire(max_connections=1),)))
    desk.service()
    transport, protocol = RecordingTransport(), MbTcp(desk.gate)
    protocol.connection_made(transport)
    protocol.data_received(b"ignored")
    protocol.pause_writing()
    protocol.resume_writing()
    assert not protocol.eof_received()
    protocol.connection_lost(None)
    desk.loop.settle()
    assert (transport.closed, transport.writes) == (True, [])
    assert (desk.counted("connection.rejected"), desk.counted("connection.failed")) == (1, 0)
    assert len(desk.gate.sessions) == 1


def test_a_connection_that_ends_in_an_error_is_counted(desk: MbDesk) -> None:
    first, second = desk.service(), desk.service()
    first.protocol.connection_lost(ConnectionResetError("reset"))
    second.protocol.connection_lost(None)
    assert (desk.counted("connection.failed"), desk.counted("connection.disconnected")) == (1, 2)
    assert len(desk.gate.sessions) == 0


def test_a_peer_that_has_said_all_is_closed_when_it_is_acknowledged(desk: MbDesk) -> None:
    desk.peer("a")
    service = desk.service()
    service.send(f"publish:a:1.0.0:{ID}")
    assert service.protocol.eof_received(), "the transport stays open"
    assert not service.transport.closed
    assert [message.payload for message in service.heard()] == [SUCCESS]
    assert service.transport.closed
    assert len(desk.gate.sessions) == 0


def test_a_peer_that_has_said_nothing_is_closed_at_its_end(desk: MbDesk) -> None:
    service = desk.service()
    service.protocol.eof_received()
    desk.loop.settle()
    assert service.transport.closed
    service.protocol.eof_received()
    service.protocol.connection_lost(None)
    assert desk.counted("connection.disconnected") == 1


def test_tls_knows_no_half_closed_connections(desk: MbDesk) -> None:
    protocol = MbTcp(desk.gate)
    protocol.connection_made(RecordingTransport(sslcontext=object()))
    assert not protocol.eof_received()


# ---- over real sockets -----------------------------------------------------------------------------------------------


def test_a_half_closed_socket_still_reads_its_acknowledgements(bus: Hosted) -> None:
    ids = [str(uuid.uuid4()) for _ in range(100)]
    with TcpPeer(connect_socket(bus.tcp_port)) as reader, TcpPeer(connect_socket(bus.tcp_port)) as writer:
        reader.subscribe("half")
        writer.write_messages(compose(f"publish:half:1.0.0:{one}") for one in ids)
        writer.socket.shutdown(socket.SHUT_WR)
        assert [writer.receive().header for _ in ids] == [reply_header("half", one) for one in ids]
        with pytest.raises(PeerClosed):
            writer.receive()


def test_a_service_that_says_all_before_it_reads_hears_all_it_said(bus: Hosted) -> None:
    """It hears itself: output that waits must not keep it from being read for ever, nor grow without a bound."""
    count = 4000
    with TcpPeer(connect_socket(bus.tcp_port)) as peer:
        peer.subscribe("loud")
        peer.socket.settimeout(30)
        peer.socket.sendall(b"".join(frame(compose("publish:loud:1.0.0", b"%9999d." % n)) for n in range(count)))
        for number in range(count):
            assert int(peer.receive().payload[:-1]) == number
        assert (bus.counted("bus.slow_closed"), bus.counted("bus.detached")) == (0, 1)


def test_kernel_buffers_are_bounded(bus: Hosted) -> None:
    with TcpPeer(connect_socket(bus.tcp_port)):
        connection = bus.newest().transport.get_extra_info("socket")
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * config.Listen().socket_send_bytes


def test_a_peer_that_vanishes_is_forgotten(bus: Hosted) -> None:
    wait_until(lambda: bus.sessions() == 0)
    before = 0
    peer = TcpPeer(connect_socket(bus.tcp_port))
    assert bus.sessions() == before + 1
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset instead of an end
    peer.close()
    wait_until(lambda: bus.sessions() == before)
