"""Real npm Seneca beside the bus: `tests/npm/peers.js` in a Node process, and its instances as methods.

    with node_peers() as node:
        node.listen("B", "W", port)
        node.client("A", "T", bus_port)
        assert node.act("A", role="math", cmd="sum", a=1, b=2).result == {"sum": 3}

The packages come from `tests/npm/package-lock.json`, with integrity hashes, once per state of that file; those of an
older Seneca from `tests/npm38`. Where Node or npm is missing the tests skip and say so (with CI=true they fail).
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

Dialect = Literal["L", "W", "T"]
DIALECTS: tuple[Dialect, ...] = ("L", "W", "T")

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "tests" / "npm"
OLD_PACKAGES = ROOT / "tests" / "npm38"
INSTALL_S = 300
# Above Seneca's own patience with a call, which is 22.2 s.
ANSWER_S = 40.0


class Outcome(NamedTuple):
    """What the callback of `act` was given."""

    result: Any = None
    custom: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class Kept(NamedTuple):
    """A message as an action of a listener saw it."""

    message: dict[str, Any]
    id: str
    sync: bool
    custom: dict[str, Any]

    @property
    def mid(self) -> str:
        return self.id.partition("/")[0]

    @property
    def cid(self) -> str:
        return self.id.partition("/")[2]


class Load(NamedTuple):
    """Milliseconds of each call and of the whole run."""

    took: list[float]
    errors: int
    elapsed: float


def installed(packages: Path = PACKAGES) -> Path:
    """The folder with `node_modules` for this state of the lock file."""
    state = hashlib.sha256((packages / "package-lock.json").read_bytes()).hexdigest()[:16]
    folder = ROOT / ".tools" / f"npm-{state}"
    lacking = _maybe_lacking(packages, folder)
    if lacking is not None:
        pytest.skip(lacking)
    return folder


@functools.cache
def _maybe_lacking(packages: Path, folder: Path) -> str | None:
    """Why there are no packages in `folder`; they are installed there first, if that can be done."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed: nothing can be said about real npm clients (Node 18 or newer)"
    return None if folder.exists() else _maybe_failure_to_install(packages, folder)


def _maybe_failure_to_install(packages: Path, folder: Path) -> str | None:
    """Beside the folder first: another run of the tests may be installing at the same time."""
    folder.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="npm-", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(packages / name, fresh)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            return f"`npm ci` in tests/{packages.name} failed, so real npm clients are missing:\n{done.stderr[-2000:]}"
        with suppress(OSError):
            fresh.rename(folder)
    return None


class NodePeers:
    """A Node process with any number of Seneca instances in it, by name."""

    def __init__(self, packages: Path = PACKAGES) -> None:
        # Node looks for packages upwards from the program's own folder.
        program = installed(packages) / "peers.js"
        if not program.exists() or program.read_bytes() != (PACKAGES / "peers.js").read_bytes():
            shutil.copy(PACKAGES / "peers.js", program)
        self.process = subprocess.Popen(
            ["node", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._waiting: dict[int, Future[Any]] = {0: Future()}
        self._number = 0
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="node-peers", daemon=True)
        self._reader.start()
        self.version: str = self._waiting[0].result(ANSWER_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            future = self._waiting.pop(said["n"])
            if "failed" in said:
                future.set_exception(AssertionError(said["failed"]))
            else:
                future.set_result(said["ok"])
        for future in list(self._waiting.values()):
            future.set_exception(ConnectionError("the Node process ended"))

    def order(self, do: str, **order: Any) -> Future[Any]:
        """Without waiting for what comes of it."""
        assert self.process.stdin is not None
        with self._lock:
            self._number += 1
            future = self._waiting[self._number] = Future[Any]()
            self.process.stdin.write(json.dumps({"n": self._number, "do": do, **order}).encode() + b"\n")
            self.process.stdin.flush()
        return future

    def _obey(self, do: str, **order: Any) -> Any:
        return self.order(do, **order).result(ANSWER_S)

    # ---- instances --------------------------------------------------------------------------------------------------

    def listen(
        self,
        name: str,
        dialect: Dialect,
        port: int,
        *,
        role: str = "math",
        extra: Mapping[str, Any] | None = None,
        clients: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """An instance that hosts the actions of `peers.js` under `role:ROLE,cmd:*`. `extra`: pattern to a fixed
        result, or to `{"ask": message, "result": …}` for one that asks further through `clients` (dialect, port, pin
        each)."""
        further = {"extra": extra or {}, "clients": list(clients)}
        self._obey("listen", name=name, dialect=dialect, port=port, role=role, **further)

    def client(
        self, name: str, dialect: Dialect, port: int, *, timeout_ms: int | None = None, pin: str | None = None
    ) -> None:
        self._obey("client", name=name, dialect=dialect, port=port, timeout=timeout_ms, pin=pin)

    def close_instance(self, name: str) -> None:
        self._obey("close", name=name)

    # ---- as a caller ------------------------------------------------------------------------------------------------

    def act(self, name: str, **message: Any) -> Outcome:
        return Outcome(**self._obey("act", name=name, message=message))

    def start_act(self, name: str, **message: Any) -> Future[Any]:
        """Gives what `Outcome` is made of."""
        return self.order("act", name=name, message=message)

    def post(self, name: str, **message: Any) -> None:
        """Without a callback: asynchronous, where the dialect can say so."""
        self._obey("post", name=name, message=message)

    def together(self, name: str, messages: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """All at once."""
        return [Outcome(**outcome) for outcome in self._obey("together", name=name, messages=list(messages))]

    def load(self, name: str, count: int, in_flight: int, message: Mapping[str, Any]) -> Load:
        return Load(**self.order("load", name=name, count=count, in_flight=in_flight, message=message).result(120))

    # ---- as a service -----------------------------------------------------------------------------------------------

    def kept(self, name: str) -> list[Kept]:
        return [Kept(**row) for row in self._obey("kept", name=name)]

    def forget(self, name: str) -> None:
        self._obey("forget", name=name)

    # ---- life -------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def node_peers(packages: Path = PACKAGES) -> Iterator[NodePeers]:
    node = NodePeers(packages)
    try:
        yield node
    finally:
        node.close()
