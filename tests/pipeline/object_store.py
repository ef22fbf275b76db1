"""An S3 server on loopback, in its own process, and the settings that lead to it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

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
