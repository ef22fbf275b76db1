"""An S3 server on loopback, in its own process, and the settings that lead to it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from raceway import config
from raceway.pipeline.storage import Storage, storage_of
from tests.rigs.ports import free_port_base

BUCKET = "lake"
_PATIENCE_S = 60


@contextmanager
def object_store() -> Iterator[config.StorageSettings]:
    """A server with one empty bucket."""
    port = free_port_base()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _await(endpoint, server)
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request).close()
        yield config.StorageSettings(endpoint=endpoint, access_key="test", secret_key="test-secret")
    finally:
        server.terminate()
        server.wait()


def settings_file(file: Path, settings: config.StorageSettings) -> Path:
    """Write the settings for `--config`."""
    told: dict[str, Any] = msgspec.to_builtins(settings)
    file.write_text("[storage]\n" + "".join(f'{name} = "{value}"\n' for name, value in told.items() if value))
    return file


class Gate:
    """A way to a server that can be shut: then nobody gets through, and who was on the way is cut off."""

    def __init__(self, endpoint: str) -> None:
        self._target = urlsplit(endpoint)
        self._port = free_port_base()
        self.url = f"http://127.0.0.1:{self._port}"
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []

    def __enter__(self) -> Gate:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        if self._listener is not None:
            # A thread that waits for a connection would keep the port.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client = listener.accept()[0]
                server = socket.create_connection((self._target.hostname, self._target.port))
                self._connections += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=pair, daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def in_bucket(settings: config.StorageSettings, folder: str) -> Storage:
    return storage_of(f"s3a://{BUCKET}/{folder}", settings)


def _await(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        assert server.poll() is None, "the S3 server ended"
        try:
            urllib.request.urlopen(endpoint, timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the S3 server did not start")
