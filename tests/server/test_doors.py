from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from raceway import config, wires
from raceway.errors import ConfigError
from raceway.server.doors import CONSOLE_OFFSET, ports
from raceway.wires.danube.settings import DanubeWire
from raceway.wires.mb.settings import MbWire
from raceway.wires.seneca.settings import SenecaWire
from tests.rigs.hosted import Hosted, hosted
from tests.rigs.mb_wire import SUCCESS, PeerClosed, TcpPeer, WebSocketPeer, assert_error, compose, connect_socket
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until

ID = "550e8400-e29b-41d4-a716-446655440000"


def test_no_two_ports_have_one_place_and_all_fit_in_a_row() -> None:
    """Danube's is one port, with or without TLS."""
    places = {(port.offset, wire.name, port.setting) for wire in wires.WIRES for port in wire.ports}
    offsets = [offset for offset, _, _ in places] + [CONSOLE_OFFSET]
    assert sorted(offsets) == list(range(config.PORTS_IN_A_ROW)), "raise `config.PORTS_IN_A_ROW` for a new one"


# ---- ports -----------------------------------------------------------------------------------------------------------


def test_ports_follow_the_base() -> None:
    assert ports(config.Listen(port_base=10_000)) == {
        "mb": 10_000, "mb+ws": 10_001, "danube": 10_002, "zbus": 10_003, "seneca": 10_004, "seneca+tcp": 10_005,
        "console": 10_006,
    }  # fmt: skip


def test_without_a_base_each_door_has_its_own_default() -> None:
    assert ports(config.Listen()) == {
        "mb": 3001, "mb+ws": 3000, "danube": 6650, "zbus": 15555, "seneca": 10101, "seneca+tcp": 10201, "console": 8600,
    }  # fmt: skip
    own = config.Listen(
        console_port=1,
        wires=(MbWire(tcp_port=2, websocket_port=3), DanubeWire(port=4), SenecaWire(http_port=5, tcp_port=6)),
    )
    assert ports(own) == {
        "mb": 2, "mb+ws": 3, "danube": 4, "zbus": 15555, "seneca": 5, "seneca+tcp": 6, "console": 1,
    }  # fmt: skip


def test_a_certificate_opens_two_doors_more_and_makes_danubes_own_secure() -> None:
    secure: dict[str, Any] = {"tls_certificate": "x", "tls_key": "y"}
    assert ports(config.Listen(port_base=10_000, **secure)) == {
        "mb": 10_000, "mb+ws": 10_001, "danube+tls": 10_002, "zbus": 10_003, "seneca": 10_004, "seneca+tcp": 10_005,
        "console": 10_006, "mb+tls": 10_008, "mb+wss": 10_009,
    }  # fmt: skip
    assert ports(config.Listen(**secure)) == {
        "mb": 3001, "mb+ws": 3000, "danube+tls": 6650, "zbus": 15555, "seneca": 10101, "seneca+tcp": 10201,
        "console": 8600, "mb+tls": 8001, "mb+wss": 8000,
    }  # fmt: skip


# ---- open doors ------------------------------------------------------------------------------------------------------


def join(bus: Hosted) -> TcpPeer:
    return TcpPeer(connect_socket(bus.tcp_port))


def test_both_doors_lead_to_the_same_bus() -> None:
    with hosted() as bus, join(bus) as tcp, WebSocketPeer(f"ws://127.0.0.1:{bus.websocket_port}/") as websocket:
        tcp.subscribe("from.websocket")
        websocket.subscribe("from.tcp")
        assert websocket.publish("from.websocket", b"1").payload == SUCCESS
        assert tcp.publish("from.tcp", b"2").payload == SUCCESS
        assert (tcp.receive().payload, websocket.receive().payload) == (b"1", b"2")


def test_tls_doors_are_opened_with_the_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "certificate")
    files: dict[str, Any] = {"tls_certificate": str(tmp_path / "certificate"), "tls_key": str(tmp_path / "key")}
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with hosted(**files) as bus, TcpPeer(connect_socket(bus.tcp_port + 8, context)) as peer:
        assert peer.ask("system.heartbeat").payload == SUCCESS
        with WebSocketPeer(f"wss://127.0.0.1:{bus.tcp_port + 9}/", context) as secure:
            assert secure.ask("system.heartbeat").payload == SUCCESS
            for tls in (peer.socket, secure.websocket.socket):
                assert isinstance(tls, ssl.SSLSocket)
                assert tls.version() == "TLSv1.3"
                assert tls.session is not None
                assert not tls.session.has_ticket, "blocking clients in Python may hang on it"


@pytest.mark.parametrize("door", [0, 1])
def test_a_port_that_is_taken_is_named(door: int) -> None:
    with socket.socket() as taken:
        base = free_port_base()
        taken.bind(("127.0.0.1", base + door))
        taken.listen()
        with pytest.raises(ConfigError, match=f"port {base + door} on 127.0.0.1 is in use"):
            _open(base)


def _open(base: int) -> None:
    bus = Hosted(config.Listen(port_base=base), config.BrokerSettings(drain_s=0))
    try:
        bus.loop.run_until_complete(bus.doors.open())
    finally:
        bus.loop.run_until_complete(bus.doors.drain())
        bus.doors.close()
        bus.loop.close()


def test_silent_services_are_looked_for_again_and_again() -> None:
    with hosted(wires=(MbWire(heartbeat_ms=40, sweep_ms=10),)) as bus, join(bus) as peer:
        for _ in range(2):
            assert peer.receive().topic == "system.heartbeat"
            peer.send("response:system.heartbeat:1.0.0")


def test_services_that_stay_silent_are_closed() -> None:
    with hosted(wires=(MbWire(heartbeat_ms=30, deregister_ms=60, sweep_ms=10),)) as bus, join(bus) as peer:
        with pytest.raises(PeerClosed):
            peer.wait_for(lambda message: False)
        assert bus.counted("bus.silent_closed") == 1


def test_while_the_journal_is_behind_nobody_is_read_from() -> None:
    with hosted() as bus, join(bus) as peer:
        bus.call(lambda: bus.journal.pressure(True))
        peer.send(f"request:system.heartbeat:1.0.0:{ID}")
        with pytest.raises(TimeoutError):
            peer.receive(timeout_s=0.1)
        bus.call(lambda: bus.journal.pressure(False))
        assert peer.receive().payload == SUCCESS


# ---- the end ---------------------------------------------------------------------------------------------------------


class Drain(threading.Thread):
    """A drain that runs beside the test; `took` is how long it was."""

    def __init__(self, bus: Hosted) -> None:
        super().__init__(daemon=True)
        self._bus = bus
        self.took = 0.0
        self.start()
        wait_until(lambda: bus.call(lambda: bus.broker.draining))

    def run(self) -> None:
        begin = time.monotonic()
        self._bus.run(self._bus.doors.drain)
        self.took = time.monotonic() - begin

    def ended(self) -> float:
        self.join(10)
        assert not self.is_alive()
        return self.took


PATIENT = config.BrokerSettings(drain_s=8)


def test_an_idle_bus_is_drained_at_once_and_takes_nobody_new() -> None:
    with hosted(PATIENT) as bus, join(bus) as peer:
        assert Drain(bus).ended() < 2
        with pytest.raises(ConnectionRefusedError):
            connect_socket(bus.tcp_port)
        with pytest.raises(ConnectionRefusedError):
            connect_socket(bus.websocket_port)
        assert_error(peer.publish("a"), "SERVICE_UNAVAILABLE", "The bus is stopping")
        bus.call(bus.doors.close)
        with pytest.raises(PeerClosed):
            peer.receive()


def test_a_drain_waits_until_open_requests_are_answered() -> None:
    with hosted(PATIENT) as bus, join(bus) as asker, join(bus) as responder:
        responder.subscribe("slow", "request")
        asker.send(f"request:slow:1.0.0:{ID}")
        request = responder.next_request()
        drain = Drain(bus)
        assert_error(responder.publish("a"), "SERVICE_UNAVAILABLE", "The bus is stopping")
        assert drain.is_alive()
        responder.answer(request, b"in time")
        assert asker.reply(ID).payload == b"in time"
        assert drain.ended() < 5


def test_a_drain_ends_at_its_limit() -> None:
    with hosted(config.BrokerSettings(drain_s=0.2)) as bus, join(bus) as asker, join(bus) as responder:
        responder.subscribe("never", "request")
        asker.send(f"request:never:1.0.0:{ID}")
        responder.next_request()
        assert 0.1 < Drain(bus).ended() < 5


def test_a_drain_waits_until_everything_is_committed_and_acknowledged() -> None:
    with hosted(PATIENT) as bus, join(bus) as peer:
        peer.subscribe("a")
        held = bus.call(lambda: bus.journal._hand_over)
        bus.call(lambda: setattr(bus.journal, "_hand_over", lambda block: None))  # a disk that takes its time
        peer.send(f"publish:a:1.0.0:{ID}")
        assert peer.receive().action == "publish"
        drain = Drain(bus)
        assert_error(peer.publish("a"), "SERVICE_UNAVAILABLE", "The bus is stopping")
        assert drain.is_alive()
        bus.call(lambda: held(bus.journal._in_flight[0]))
        assert peer.reply(ID).payload == SUCCESS
        assert drain.ended() < 5


def test_closing_frees_the_ports_without_a_drain() -> None:
    with hosted() as bus:
        bus.call(bus.doors.close)
        with pytest.raises(ConnectionRefusedError), join(bus):
            pass


def test_closing_writes_what_was_said_and_ends_every_connection() -> None:
    with hosted() as bus, join(bus) as peer:
        peer.subscribe("a")

        def deliver_and_close() -> None:
            session = next(iter(bus.doors.wires["mb"].gate.sessions))
            session.write(b"\x00\x00\x00\x03a\nb")
            bus.doors.close()

        bus.call(deliver_and_close)
        assert peer.receive().payload == b"b"
        with pytest.raises(PeerClosed):
            peer.receive()
        assert bus.sessions() == 0


def test_a_closed_peer_that_does_not_read_cannot_keep_its_connection() -> None:
    with hosted() as bus, join(bus) as sleeper, join(bus) as writer:
        sleeper.subscribe("a")
        (peer,) = bus.call(lambda: bus.broker.routing.subscribers("a"))
        (session,) = [each for each in bus.doors.wires["mb"].gate.sessions if each.peer is peer]
        while bus.call(session.transport.get_write_buffer_size) < config.MIB:
            writer.write_messages([compose("publish:a:1.0.0", b"x" * 16_000)] * 50)
            writer.publish("b")
        session.linger_s = 0.05
        bus.call(lambda: session.close("enough"))
        assert bus.call(session.transport.get_write_buffer_size) > 0
        wait_until(lambda: bus.call(session.transport.get_write_buffer_size) == 0)
