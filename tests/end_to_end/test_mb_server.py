"""The started server as its operator sees it: ports, health, figures, a stop under load, a start that cannot be."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raceway.journal.read.reader import Reader
from tests.rigs.mb_wire import SUCCESS, Peer, PeerClosed, Transport, compose, connect, fresh_topic, new_id
from tests.rigs.server import Server, running_server, wait_until

DRAIN_S = 1.0


@pytest.fixture
def stoppable() -> Iterator[Server]:
    with running_server(RACEWAY_BROKER__DRAIN_S=DRAIN_S) as server:
        yield server


# ---- the console port ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/readyz", "/healthz"])
def test_a_started_server_says_that_it_is_well(server: Server, path: str) -> None:
    status, _ = server.http(path)
    assert status == 200


def test_metrics_are_in_prometheus_form(server: Server) -> None:
    status, text = server.http("/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    assert len(families) > 10
    assert all(family.documentation for family in families)


def test_counts_move_with_the_traffic(server: Server, transport: Transport) -> None:
    def figures() -> dict[str, float]:
        return {
            "publishes": server.metric("raceway_messages_total", wire="mb", kind="publish"),
            "delivered": server.metric("raceway_delivered_messages_total"),
            "unrouted": server.metric("raceway_unrouted_publishes_total"),
            "committed": server.metric("raceway_journal_committed_rows_total"),
        }

    before = figures()
    with connect(server, transport) as peer:
        topic = fresh_topic()
        peer.subscribe(topic)
        for _ in range(17):
            assert peer.publish(topic).payload == SUCCESS
        peer.publish(fresh_topic())
        peers = server.metric("raceway_peers")
    after = figures()
    assert {name: after[name] - before[name] for name in after} | {"committed": 0} == {
        "publishes": 18,
        "delivered": 17,
        "unrouted": 1,
        "committed": 0,
    }
    assert after["committed"] >= before["committed"] + 17
    assert peers >= 1
    wait_until(lambda: server.metric("raceway_peers") == peers - 1)


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}])
def test_the_console_port_refuses_foreign_origins_and_hosts(server: Server, headers: dict[str, str]) -> None:
    status, _ = server.http("/metrics", **headers)
    assert status in (400, 403, 421)


def test_the_data_folder_names_the_running_server(server: Server) -> None:
    text = (server.data / "raceway.json").read_text()
    document = json.loads(text)
    assert str(server.pid) in text
    for door in ("tcp", "websocket", "console"):
        assert str(server.port(door)) in text
    assert isinstance(document, dict)


def test_the_data_folder_is_private(server: Server) -> None:
    assert server.data.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in server.data.iterdir() if file.is_file())


def test_only_loopback_is_listened_on(server: Server) -> None:
    rows = [line.split() for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]]
    ports = range(server.port_base, server.port_base + 10)
    addresses = {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) in ports}
    assert addresses == {"0100007F"}


def test_doors_that_were_not_asked_for_stay_closed(server: Server) -> None:
    for offset in (7, 8, 9):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port_base + offset), timeout=5)


def test_standard_output_holds_the_line_ready_and_logs_go_to_standard_error(server: Server) -> None:
    assert "ready" in server.stdout.splitlines()
    assert "Traceback" not in server.stderr


def test_the_defaults_are_those_of_the_wire() -> None:
    """The ports of the shipped configuration, and no limit unless one is set."""
    command = [sys.executable, "-m", "raceway", "config", "--json"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
    told = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=30, env=env).stdout)
    expected = {
        "listen.mb.websocket_port": 3000, "listen.mb.tcp_port": 3001, "listen.mb.wss_port": 8000,
        "listen.mb.tls_port": 8001, "listen.tls_handshake_s": 5, "listen.mb.payload_limit": 16_384,
        "listen.mb.heartbeat_ms": 30_000, "listen.mb.deregister_ms": 60_000, "listen.mb.max_connections": 0,
        "listen.mb.rate_per_service": 0, "listen.mb.rate_per_topic": 0, "broker.max_outstanding": 10_000,
        "broker.request_timeout_ms": 5000, "broker.request_timeout_max_ms": 3_600_000, "listen.head_s": 10,
    }  # fmt: skip
    assert {key: told[key]["value"] for key in expected} == expected


# ---- the end ---------------------------------------------------------------------------------------------------------


class Load(threading.Thread):
    """Publishes with ids as fast as acknowledgements come; remembers which were acknowledged."""

    def __init__(self, server: Server, topic: str) -> None:
        super().__init__()
        self.server, self.topic = server, topic
        self.acknowledged: list[str] = []

    def run(self) -> None:
        with connect(self.server, "tcp") as peer, suppress(PeerClosed, OSError):
            peer.subscribe(self.topic)
            while True:
                ids = [new_id() for _ in range(50)]
                peer.write_messages(compose(f"publish:{self.topic}:1.0.0:{i}", i) for i in ids)
                for message_id in ids:
                    if peer.reply(message_id).payload == SUCCESS:
                        self.acknowledged.append(message_id)
                peer.backlog.clear()


def test_a_stop_under_load_ends_in_time_with_status_0_and_keeps_what_was_acknowledged(stoppable: Server) -> None:
    load = [Load(stoppable, fresh_topic()) for _ in range(4)]
    for publisher in load:
        publisher.start()
    wait_until(lambda: all(len(publisher.acknowledged) > 100 for publisher in load))
    took = stoppable.stop()
    for publisher in load:
        publisher.join()
    assert took < DRAIN_S + 4
    kept = [row for batch in Reader(stoppable.data).read(0) for row in batch.to_pylist()]
    for publisher in load:
        ids = [row["message_id"] for row in kept if row["topic"] == publisher.topic]
        assert len(set(ids)) == len(ids)
        assert set(publisher.acknowledged) <= set(ids)
    assert "Traceback" not in stoppable.stderr


def test_a_stop_does_not_wait_for_ever_for_an_open_request(stoppable: Server) -> None:
    with connect(stoppable, "tcp") as responder, connect(stoppable, "websocket") as requester:
        topic = fresh_topic()
        responder.subscribe(topic, "request")
        requester.send(f"request:{topic}:1.0.0:{new_id()}::60000")
        responder.next_request()
        assert stoppable.stop() < DRAIN_S + 4
        assert_closed(responder)
        assert_closed(requester)


def test_a_server_with_nothing_left_to_do_does_not_wait_for_its_drain_time() -> None:
    with running_server(RACEWAY_BROKER__DRAIN_S=15) as server, connect(server, "tcp"), connect(server, "websocket"):
        assert server.stop() < 10


def assert_closed(peer: Peer) -> None:
    _, code = peer.until_closed()
    assert code in (None, 1000, 1001, 1012)


# ---- starts that cannot be -------------------------------------------------------------------------------------------


def last_words(server: Server) -> list[str]:
    """What a server that could not start wrote to standard error."""
    assert server.process.wait(15) != 0
    assert "ready" not in server.stdout.splitlines()
    return [line for line in server.stderr.splitlines() if line.strip()]


@pytest.mark.parametrize("door", [0, 1, 6])
def test_a_port_in_use_is_named_in_one_line(tmp_path: Path, door: int) -> None:
    server = Server(tmp_path / "data", tmp_path, {})
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", server.port_base + door))
        occupant.listen()
        server.spawn()
        (line,) = last_words(server)
    assert str(server.port_base + door) in line
    assert "in use" in line


def test_a_second_server_on_the_same_folder_is_refused_in_one_line(server: Server, tmp_path: Path) -> None:
    second = Server(server.data, tmp_path, {})
    second.spawn()
    (line,) = last_words(second)
    assert str(server.pid) in line
    assert str(server.data) in line
    status, _ = server.http("/readyz")
    assert status == 200


def test_a_setting_that_cannot_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", tmp_path, {"RACEWAY_BROKER__MAX_OUTSTANDING": "many"})
    server.spawn()
    (line,) = last_words(server)
    assert "broker.max_outstanding" in line


def test_an_address_that_others_can_reach_needs_tls_or_a_word(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", tmp_path, {"RACEWAY_LISTEN__HOST": "0.0.0.0"})
    server.spawn()
    (line,) = last_words(server)
    assert "listen.host" in line
    assert "--insecure" in line
