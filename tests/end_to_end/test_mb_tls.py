"""MB over TLS and wss: the same wire inside, 1.2 or newer outside, and nothing plain on those ports."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from tests.rigs.mb_wire import SUCCESS, Peer, Transport, connect, connect_socket, fresh_topic
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import I, frame

SECURE: list[Transport] = ["tls", "wss"]
PLAIN: list[Transport] = ["tcp", "websocket"]
HANDSHAKE_S = 2  # enough for an honest handshake on a busy machine


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    for part in certificate.cert_chain_pems:
        part.write_to_path(folder / "chain.pem", append=True)
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "chain.pem",
        RACEWAY_LISTEN__TLS_KEY=folder / "key.pem",
        RACEWAY_LISTEN__TLS_HANDSHAKE_S=HANDSHAKE_S,
        RACEWAY_LISTEN__HEAD_S=5,
        RACEWAY_LISTEN__MB__SWEEP_MS=50,
    ) as server:
        yield server


@pytest.fixture
def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def still_serves(server: Server, context: ssl.SSLContext) -> None:
    for transport in SECURE:
        with connect(server, transport, context) as peer:
            assert peer.settled() == []


@pytest.mark.parametrize("transport", SECURE)
def test_the_same_messages_travel_inside_tls(server: Server, trusting: ssl.SSLContext, transport: Transport) -> None:
    with connect(server, transport, trusting) as secure, connect(server, "tcp") as plain:
        topic = fresh_topic()
        secure.subscribe(topic)
        assert plain.publish(topic, b"x" * 16_384).payload == SUCCESS
        assert secure.receive().payload == b"x" * 16_384
        plain.subscribe(topic, "request")
        secure.send(f"request:{topic}:1.0.0:{I}", b"question")
        plain.serve_one(b"answer")
        assert secure.reply(I).payload == b"answer"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(server: Server, trusting: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    trusting.minimum_version = trusting.maximum_version = version
    with connect(server, "tls", trusting) as peer:
        assert peer.settled() == []


@pytest.mark.parametrize("door", SECURE)
def test_tls_1_1_is_refused(server: Server, trusting: ssl.SSLContext, door: Transport) -> None:
    """Offered by hand, since this side's library would not offer it: a hello whose highest version is 3.2."""
    with connect_socket(server.port(door)) as connection:
        hello = _client_hello(version=0x0302)
        connection.sendall(hello)
        record = connection.recv(64)
        assert record[:1] in (b"\x15", b""), "an alert or a close, not a server hello"
        if record:
            assert record[6:7] == b"\x46", "alert: protocol version"
    still_serves(server, trusting)


def _client_hello(version: int) -> bytes:
    suites = b"\xc0\x13\xc0\x14\x00\x2f\x00\x35"  # those of TLS 1.1 with ECDHE or RSA
    groups = b"\x00\x0a\x00\x04\x00\x02\x00\x17" + b"\x00\x0b\x00\x02\x01\x00"
    body = struct.pack(">H", version) + bytes(32) + b"\x00" + struct.pack(">H", len(suites)) + suites + b"\x01\x00"
    body += struct.pack(">H", len(groups)) + groups
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(handshake)) + handshake


@pytest.mark.parametrize("door", SECURE)
def test_plain_bytes_on_a_tls_port_are_refused(server: Server, trusting: ssl.SSLContext, door: Transport) -> None:
    with connect_socket(server.port(door)) as connection:
        connection.sendall(frame(f"request:system.heartbeat:1.0.0:{I}\n{{}}".encode()) * 10)
        answer = _read_to_end(connection)
        assert b"initialize" not in answer
        assert b"heartbeat" not in answer
    still_serves(server, trusting)


@pytest.mark.parametrize("door", SECURE)
def test_a_silent_handshake_is_closed_at_its_limit(server: Server, trusting: ssl.SSLContext, door: Transport) -> None:
    with connect_socket(server.port(door)) as silent, connect_socket(server.port(door)) as halfway:
        halfway.sendall(_client_hello(0x0303)[:20])
        assert _read_to_end(silent) == b""
        assert b"initialize" not in _read_to_end(halfway)
    still_serves(server, trusting)


def test_a_client_that_does_not_trust_the_certificate_leaves_the_server_unharmed(
    server: Server, trusting: ssl.SSLContext
) -> None:
    for _ in range(20):
        with connect_socket(server.port("tls")) as connection, pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")
    still_serves(server, trusting)


def test_a_tls_client_on_the_plain_ports_is_closed(server: Server, trusting: ssl.SSLContext) -> None:
    for door in PLAIN:
        with connect_socket(server.port(door)) as connection, pytest.raises((ssl.SSLError, OSError)):
            trusting.wrap_socket(connection, server_hostname="127.0.0.1")
    still_serves(server, trusting)


def test_a_client_that_vanishes_inside_tls_is_deregistered(server: Server, trusting: ssl.SSLContext) -> None:
    with connect(server, "tcp") as watcher:
        topic = fresh_topic()
        leaving: Peer = connect(server, "tls", trusting)
        leaving.subscribe(topic)
        leaving.close()
        wait_until(lambda: watcher.publish(topic).payload != SUCCESS, what="its subscription is gone")


def _read_to_end(connection: socket.socket) -> bytes:
    """Until the server closes; the socket's own timeout is the deadline."""
    received = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(4096):
            received += data
    return received
