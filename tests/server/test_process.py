from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raceway import config, wires
from raceway.errors import ConfigError, LockedError
from raceway.journal import open_journal
from raceway.journal.lock import maybe_began
from raceway.journal.read.reader import Reader
from raceway.server import process
from raceway.server.process import Console, announced, repeat, urls_of
from raceway.server.running import maybe_running
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.rigs.mb_wire import SUCCESS, PeerClosed, TcpPeer, connect_socket
from tests.rigs.ports import free_port_base
from tests.rigs.server import START_S, wait_until


def settings(folder: Path, **more: Any) -> config.Settings:
    flags = {"journal.folder": str(folder), "listen.port_base": free_port_base(), "broker.drain_s": 0.5}
    return config.load(environment={}, flags=flags | more, sections=wires.sections())


def get(port: int, path: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


class Visitor(threading.Thread):
    """Visits a bus that runs in the main thread as soon as it is ready, then ends it with a signal."""

    def __init__(self, base: int, visit: Callable[[int], None], number: signal.Signals = signal.SIGTERM) -> None:
        super().__init__(daemon=True)
        self._base, self._visit, self._number = base, visit, number
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            wait_until(self._is_ready, START_S, what="ready")
            self._visit(self._base)
        except BaseException as error:  # handed to the main thread by `visited`
            self.error = error
        os.kill(os.getpid(), self._number)

    def _is_ready(self) -> bool:
        try:
            return get(self._base + 6, "/readyz")[0] == 200
        except OSError:
            return False


def visited(chosen: config.Settings, visit: Callable[[int], None], number: signal.Signals = signal.SIGTERM) -> int:
    """Run a bus in this thread, as `raceway serve` does, while `visit` is there; its exit status."""
    visitor = Visitor(chosen.config.listen.port_base, visit, number)
    visitor.start()
    try:
        status = process.run(chosen)
    finally:
        visitor.join()
    if visitor.error is not None:
        raise visitor.error
    return status


@pytest.fixture(autouse=True)
def _harmless_signals() -> Iterator[None]:
    """Should a bus not start, its visitor's signal must not end the tests."""
    kept = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


# ---- a whole run -----------------------------------------------------------------------------------------------------


def test_a_bus_says_ready_serves_and_stops_with_status_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def visit(base: int) -> None:
        with TcpPeer(connect_socket(base)) as peer:
            peer.subscribe("a")
            assert peer.publish("a", b"kept").payload == SUCCESS

    assert visited(settings(tmp_path), visit) == 0
    assert "ready" in capsys.readouterr().out.splitlines()
    rows = [row for batch in Reader(tmp_path).read(0) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows] == [b"kept"]


def test_interrupting_stops_it_the_same_way(tmp_path: Path) -> None:
    assert visited(settings(tmp_path), lambda base: None, signal.SIGINT) == 0


def test_while_it_runs_its_folder_says_where_it_is(tmp_path: Path) -> None:
    def visit(base: int) -> None:
        running = maybe_running(tmp_path)
        assert running is not None
        assert running.pid == os.getpid()
        assert running.urls == {
            "mb": f"mb://127.0.0.1:{base}", "mb+ws": f"mb+ws://127.0.0.1:{base + 1}",
            "danube": f"danube://127.0.0.1:{base + 2}",
            "zbus": f"zbus://127.0.0.1:{base + 3}", "console": f"http://127.0.0.1:{base + 6}",
            "seneca": f"seneca://127.0.0.1:{base + 4}", "seneca+tcp": f"seneca+tcp://127.0.0.1:{base + 5}",
        }  # fmt: skip

    visited(settings(tmp_path), visit)
    assert maybe_running(tmp_path) is None


def test_a_stop_ends_connections_and_refuses_new_ones(tmp_path: Path) -> None:
    peers: list[TcpPeer] = []
    chosen = settings(tmp_path)
    visited(chosen, lambda base: peers.append(TcpPeer(connect_socket(base))))
    (peer,) = peers
    with pytest.raises(PeerClosed):
        peer.receive()
    peer.close()
    with pytest.raises(ConnectionRefusedError):
        connect_socket(chosen.config.listen.port_base)


def test_a_second_bus_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def visit(base: int) -> None:
        with pytest.raises(LockedError) as caught:
            open_journal(config.JournalSettings(folder=str(tmp_path)), post=lambda call: None)
        refused.append(caught.value)

    visited(settings(tmp_path), visit)
    assert f"{os.getpid()}" in str(refused[0])


def test_a_port_that_is_taken_ends_the_start_and_frees_the_folder(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", chosen.config.listen.port_base + 6))
        taken.listen()
        with pytest.raises(ConfigError, match="is in use"):
            process.run(chosen)
    assert visited(settings(tmp_path), lambda base: None) == 0


def test_a_bus_in_memory_leaves_no_file_behind(tmp_path: Path) -> None:
    def visit(base: int) -> None:
        with TcpPeer(connect_socket(base)) as peer:
            peer.subscribe("a")
            assert peer.publish("a").payload == SUCCESS

    folder = tmp_path / "none"
    visited(settings(folder, **{"journal.durability": "memory"}), visit)
    assert not folder.exists()


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_the_console_answers_on_its_port_until_it_is_closed() -> None:
    port = free_port_base()

    async def serve() -> list[tuple[int, Any]]:
        console = Console(DOOR(Bench().broker), config.Config(listen=config.Listen(hosts=("bus.example",))), port)
        await console.open()
        answers = [
            await asyncio.to_thread(get, port, "/healthz", Host=host)
            for host in (f"127.0.0.1:{port}", "bus.example", "evil.example")
        ]
        await console.close()
        return answers

    statuses = [status for status, _ in asyncio.run(serve())]
    assert statuses == [200, 200, 403]
    with pytest.raises(urllib.error.URLError):
        get(port, "/healthz")


def test_what_is_repeated_goes_on_until_it_is_cancelled() -> None:
    calls: list[int] = []

    async def scene() -> None:
        task = repeat(asyncio.get_running_loop(), 0.001, lambda: calls.append(1))
        async with asyncio.timeout(10):
            while len(calls) < 3:  # noqa: ASYNC110 - the calls are what is waited for
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(scene())
    assert len(calls) >= 3


def test_only_the_owner_may_read_where_the_bus_is(tmp_path: Path) -> None:
    journal, listen = config.JournalSettings(folder=str(tmp_path)), config.Listen()
    with announced(journal, urls_of(listen, {"mb": 1})):
        file = tmp_path / "raceway.json"
        assert file.stat().st_mode & 0o777 == 0o600
        document = {"pid": os.getpid(), "urls": {"mb": "mb://127.0.0.1:1"}, "began": maybe_began(os.getpid())}
        assert json.loads(file.read_bytes()) == document
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_takes_its_announcement_back(tmp_path: Path) -> None:
    journal = config.JournalSettings(folder=str(tmp_path))
    with pytest.raises(RuntimeError), announced(journal, {"mb": "mb://127.0.0.1:1"}):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
