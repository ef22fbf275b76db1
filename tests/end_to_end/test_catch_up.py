"""A peer that slept through what it subscribed to: over every transport it gets what it missed, then what is live."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from raceway.config import KIB, MIB
from tests.rigs.http_door import post
from tests.rigs.mb_wire import Peer, TcpPeer, Transport, WebSocketPeer, compose, connect_socket, fresh_topic
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import frame

COUNT, PADDING = 3000, b"x" * 2000
SLOW: dict[str, Any] = {"RACEWAY_LISTEN__OUTPUT_BYTES": 256 * KIB, "RACEWAY_BROKER__HOLD_MS": 200}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    names = {f"RACEWAY_LISTEN__TLS_{name}": folder / "both.pem" for name in ("CERTIFICATE", "KEY")}
    with running_server(**names, **SLOW) as server:
        yield server


def sleeper(server: Server, transport: Transport, authority: trustme.CA | None, topic: str) -> Peer:
    """A subscriber whose own kernel buffers little, so that what it leaves unread stays with the server."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port(transport)))
    context = None
    if authority is not None and transport in ("tls", "wss"):
        context = ssl.create_default_context()
        authority.configure_trust(context)
    peer: Peer
    if transport in ("websocket", "wss"):
        scheme = "wss" if context else "ws"
        peer = WebSocketPeer(f"{scheme}://127.0.0.1:{server.port(transport)}/", context, sock=connection)
    elif context is not None:
        peer = TcpPeer(context.wrap_socket(connection, server_hostname="127.0.0.1"))
    else:
        peer = TcpPeer(connection)
    peer.subscribe(topic)
    return peer


def publish(server: Server, topic: str, payloads: list[bytes]) -> None:
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        peer.write_bytes(b"".join(frame(compose(f"publish:{topic}:1.0.0", payload)) for payload in payloads))
        peer.settled()


def is_behind(server: Server) -> bool:
    return server.metric("raceway_subscribers_behind") == 1


def catching_up(server: Server) -> list[str]:
    """Ids of peers that the console says so of."""
    return [row["id"] for row in json.loads(server.http("/api/peers")[1])["peers"] if row["catching_up"]]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["tcp", "websocket", "tls", "wss"])
def test_one_that_slept_gets_what_it_missed_and_is_live_again(
    server: Server, authority: trustme.CA, transport: Transport
) -> None:
    topic, payloads = fresh_topic(), [b"%d:" % number + PADDING for number in range(COUNT)]
    closed, rejoined = (
        server.metric(f"raceway_{name}_total") for name in ("slow_peers_closed", "rejoined_subscribers")
    )
    with sleeper(server, transport, authority, topic) as peer:
        publish(server, topic, payloads[: COUNT // 2])
        wait_until(lambda: is_behind(server), 30, "it to leave the live path")
        assert len(catching_up(server)) == 1
        publish(server, topic, payloads[COUNT // 2 :])
        assert [peer.receive(30).payload for _ in payloads] == payloads
        wait_until(lambda: server.metric("raceway_rejoined_subscribers_total") == rejoined + 1, 30, "it to be live")
        assert not catching_up(server)
        publish(server, topic, [b"live"])
        assert peer.receive(30).payload == b"live"
    assert server.metric("raceway_slow_peers_closed_total") == closed


@pytest.mark.timeout(120)
def test_whoever_publishes_over_http_waits_as_long_as_one_may_hold_it() -> None:
    topic, hold_s, took = fresh_topic(), 1.5, list[float]()
    with (
        running_server(**SLOW | {"RACEWAY_BROKER__HOLD_MS": round(hold_s * 1000)}) as server,
        sleeper(server, "tcp", None, topic) as peer,
    ):
        payloads = [b"%d:" % number + b"x" * 50_000 for number in range(60)]
        for payload in payloads:
            began = time.monotonic()
            assert post(server, f"/topics/{topic}", payload).status == 201
            took.append(time.monotonic() - began)
        assert max(took) >= 0.9 * hold_s
        assert sum(took) < 3 * hold_s, "it reads alone then, and nobody waits"
        assert server.metric("raceway_detached_subscribers_total") == 1
        assert [peer.receive(30).payload for _ in payloads] == payloads


@pytest.mark.timeout(120)
def test_what_retention_removed_is_counted_logged_and_told() -> None:
    journal = {"SEGMENT_BYTES": 256 * KIB, "RETENTION__MAX_BYTES": MIB, "UPKEEP_S": 0.1, "SEAL": "false"}
    env: dict[str, Any] = SLOW | {f"RACEWAY_JOURNAL__{name}": value for name, value in journal.items()}
    topic, payloads = fresh_topic(), [b"%d:" % number + PADDING for number in range(2 * COUNT + 10)]
    with running_server(**env) as server, TcpPeer(connect_socket(server.port("tcp"))) as watcher:
        watcher.ask("system.log.subscribe", {"levels": ["warn"]})
        with sleeper(server, "tcp", None, topic) as peer:
            # 200 KB at a time: a segment larger than what retention keeps would take the last ones with it.
            for begin in range(0, len(payloads) - 10, 100):
                publish(server, topic, payloads[begin : begin + 100])
            wait_until(lambda: is_behind(server), 30, "it to leave the live path")
            wait_until(lambda: server.metric("raceway_journal_bytes") < 2 * MIB, 30, "retention")
            publish(server, topic, payloads[-10:])
            got: list[bytes] = []
            while not got or got[-1] != payloads[-1]:
                got.append(peer.receive(30).payload)
        numbers = [int(payload.partition(b":")[0]) for payload in got]
        assert got == [payloads[number] for number in numbers]
        assert numbers == sorted(set(numbers)), "in order, once"
        assert len(numbers) < len(payloads)
        assert server.metric("raceway_live_gaps_total") >= 1
        assert "rows missed by a subscriber" in server.stderr
        assert watcher.wait_for(lambda message: b"removed by retention" in message.payload)
