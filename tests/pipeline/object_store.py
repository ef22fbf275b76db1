"""An S3 server on loopback, in its own process, and the settings that lead to it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
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


# In a process of its own: delta-rs keeps all threads of this one from running while it waits for an answer.
_FORWARD = """
import asyncio, sys
async def carry(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
async def accept(reader, writer):
    answers, asked = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(carry(reader, asked), carry(answers, writer), return_exceptions=True)
async def main():
    await (await asyncio.start_server(accept, "127.0.0.1", int(sys.argv[1]))).serve_forever()
asyncio.run(main())
"""


class Gate:
    """A way to a server that can be shut: then nobody gets through, and who was on the way is cut off."""

    def __init__(self, endpoint: str) -> None:
        self._target, self._port = urlsplit(endpoint).port, free_port_base()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Gate:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def open(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _FORWARD, str(self._port), str(self._target)])
        _await(self.url, self._process)

    def shut(self) -> None:
        self._process.kill()
        self._process.wait()


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
