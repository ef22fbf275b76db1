from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway import config
from raceway.cli.app import app
from raceway.errors import ConfigError
from raceway.wires.zbus.settings import ZbusWire
from tests.rigs.ports import free_port_base
from tests.rigs.server import START_S, STOP_S, running_server, wait_until
from tests.rigs.zbus_wire import Client, broker_address

FAST: dict[str, Any] = {f"RACEWAY_LISTEN__ZBUS__{key}_MS": "50" for key in ("REPORT", "PROBE", "PUSH")}


class TrackerProcess:
    def __init__(self, folder: Path, **env: str) -> None:
        self.port = free_port_base()
        self._output = folder / "output"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "raceway", "track", "--port", str(self.port)],
                stdout=output, stderr=subprocess.DEVNULL, cwd=folder, env=inherited | FAST | env,
            )  # fmt: skip
        wait_until(lambda: b"ready" in self._output.read_bytes().splitlines(), START_S, "the line `ready`")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S)


@contextmanager
def tracker_alone(folder: Path, **env: str) -> Iterator[TrackerProcess]:
    tracker = TrackerProcess(folder, **env)
    try:
        yield tracker
    finally:
        tracker.process.kill()
        tracker.process.wait(STOP_S)


def test_a_tracker_alone_knows_the_brokers_that_report_themselves(tmp_path: Path) -> None:
    with tracker_alone(tmp_path) as tracker, Client(tracker.port) as subscriber:
        assert subscriber.ask("track_sub").json() == {"brokerTable": {}, "mqTable": {}}
        with running_server(RACEWAY_LISTEN__ZBUS__TRACKERS=f"127.0.0.1:{tracker.port}", **FAST) as bus:
            address = broker_address(bus)
            subscriber.wait_for_push(address)
            with Client(bus.port_base + 3) as maker:
                mq = maker.create()
            push = subscriber.wait_for(lambda push: mq in push.json()["mqTable"])
            assert [row["broker"] for row in push.json()["mqTable"][mq]] == [address]
            bus.kill()
        subscriber.wait_for(lambda push: address not in push.json()["brokerTable"])
    assert [path.name for path in tmp_path.iterdir()] == ["output"], "nothing is kept"


def test_it_stops_with_status_0_and_ends_its_connections(tmp_path: Path) -> None:
    with tracker_alone(tmp_path) as tracker, Client(tracker.port) as subscriber:
        subscriber.ask("track_sub")
        assert tracker.stop() == 0
        subscriber.until_closed()


def test_it_serves_no_queues(tmp_path: Path) -> None:
    with tracker_alone(tmp_path) as tracker, Client(tracker.port) as client:
        document = json.dumps({"mqName": "q", "mqMode": 1})
        assert client.admin("create_mq", document).status == 404
        assert [client.ask(cmd, mq="q").status for cmd in ("produce", "consume", "request")] == [404] * 3
        client.send("track_report", json.dumps({"broker": "<b>:1", "mqTable": {"<i>": {"broker": "x", "name": "<i>"}}}))
        assert client.admin("data").json()["brokerTable"]["<b>:1"]["mqTable"].keys() == {"<i>"}
        page = client.admin("index")
        assert page.is_page
        assert b"&lt;b&gt;:1" in page.body
        assert b"&lt;i&gt;" in page.body
        assert b"<i>" not in page.body


def test_a_guarded_tracker_takes_reports_with_its_token_only(tmp_path: Path) -> None:
    with (
        tracker_alone(tmp_path, RACEWAY_SECURITY__ADMIN_TOKEN="s3cret") as tracker,
        Client(tracker.port) as subscriber,
    ):
        assert subscriber.ask("track_sub").status == 403
        assert subscriber.ask("track_sub", token="s3cret").status == 200
        env = FAST | {"RACEWAY_LISTEN__ZBUS__TRACKERS": f"127.0.0.1:{tracker.port}"}
        with running_server(RACEWAY_LISTEN__ZBUS__TRACKER_TOKEN="s3cret", **env) as bus:
            subscriber.wait_for_push(broker_address(bus))


def test_a_follower_that_does_not_read_is_closed_and_others_are_still_told(tmp_path: Path) -> None:
    with (
        tracker_alone(tmp_path, RACEWAY_LISTEN__STALL_S="3", RACEWAY_LISTEN__ZBUS__SWEEP_MS="50") as tracker,
        Client(tracker.port) as reporter,
        Client(tracker.port) as reader,
    ):
        with Client(tracker.port, receive_buffer=4096) as sleeper:
            sleeper.ask("track_sub")
            reader.ask("track_sub")
            table = {f"q{number}": {"broker": "127.0.0.1:1", "name": "q" * 100} for number in range(1000)}
            document = json.dumps({"broker": f"127.0.0.1:{tracker.port}", "mqTable": table})

            def is_closed() -> bool:
                reporter.send("track_report", document)
                reader.wait_for_push(f"127.0.0.1:{tracker.port}")
                return _is_reset(sleeper)

            wait_until(is_closed, 20, "the sleeper to be closed")
        reader.backlog.clear()
        assert reader.wait_for_push(f"127.0.0.1:{tracker.port}")


def _is_reset(client: Client) -> bool:
    """Has the other side ended the connection, whatever is still unread?"""
    try:
        client.socket.send(b"GET / HTTP/1.1\r\ncmd: heartbeat\r\n\r\n")
    except ConnectionError:
        return True
    return False


# ---- flags -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[config.Settings]:
    """The settings with which a tracker would have been run."""
    found: list[config.Settings] = []

    def run(settings: config.Settings, *, only: str) -> int:
        assert only == "tracker"
        found.append(settings)
        return 0

    monkeypatch.setattr("raceway.server.process.run", run)
    monkeypatch.setattr("raceway.server.logs.configure", lambda *_: None)
    return found


def track(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["track", *arguments], catch_exceptions=False)


def test_without_flags_it_is_the_usual_port_on_loopback(seen: list[config.Settings]) -> None:
    track()
    listen = seen[0].config.listen
    assert (listen.host, listen.port_base, listen.of(ZbusWire).tracker_port, listen.of(ZbusWire).tracker) == (
        "127.0.0.1",
        0,
        16666,
        True,
    )


def test_a_port_that_is_named_counts_more_than_a_port_base(
    seen: list[config.Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACEWAY_LISTEN__PORT_BASE", "20000")
    track("--port", "16667")
    track()
    assert [(each.config.listen.port_base, each.config.listen.of(ZbusWire).tracker_port) for each in seen] == [
        (0, 16667),
        (20000, 16666),
    ]


def test_other_machines_are_let_in_only_when_that_is_said(seen: list[config.Settings]) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        track("--host", "0.0.0.0")
    track("--host", "0.0.0.0", "--insecure")
    assert [each.config.listen.insecure for each in seen] == [True]
