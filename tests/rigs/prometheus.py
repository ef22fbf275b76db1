"""A real Prometheus that scrapes a real bus every second, with alert rules."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until
from tests.rigs.tools import installed

START_S = 60.0
STOP_S = 30.0


class Prometheus:
    """Asked over its HTTP interface."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self._url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as response:
            answer = json.loads(response.read())
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that an expression has now. Raises AssertionError if it is refused."""
        try:
            found: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        except urllib.error.HTTPError as refusal:
            with refusal:
                raise AssertionError(f"{expression}: {refusal.read().decode()}") from None
        return found

    def is_ready(self) -> bool:
        try:
            return bool(self.query("vector(1)"))
        except (OSError, AssertionError):
            return False


@contextmanager
def running_prometheus(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """Prometheus with its data in `folder`; ended by SIGTERM."""
    program = installed("prometheus", "prometheus")
    port = free_port_base()
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "raceway", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    listen = f"--web.listen-address=127.0.0.1:{port}"
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", listen]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    prometheus = Prometheus(port)
    try:
        wait_until(lambda: prometheus.is_ready() or process.poll() is not None, START_S, "an answer of Prometheus")
        assert process.poll() is None, (folder / "log").read_text("utf-8")
        yield prometheus
    finally:
        process.terminate()
        process.wait(STOP_S)
