"""Traces arrive at a real OTLP receiver, from a started server."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

from raceway.client.sync import connect
from tests.rigs.otlp_receiver import attributes, otlp_receiver
from tests.rigs.server import Server, running_server, wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def post(server: Server, path: str, **headers: str) -> None:
    url = f"http://127.0.0.1:{server.port('console')}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=10):
        pass


def test_spans_of_all_wires_reach_the_collector_and_survive_its_absence() -> None:
    with otlp_receiver() as receiver:
        env: dict[str, Any] = {
            "RACEWAY_TELEMETRY__ENABLED": "true", "RACEWAY_TELEMETRY__ENDPOINT": receiver.endpoint,
            "RACEWAY_TELEMETRY__INTERVAL_MS": 20, "RACEWAY_TELEMETRY__SERVICE_NAME": "test-bus",
        }  # fmt: skip
        with running_server(**env) as server, connect(f"mb://127.0.0.1:{server.port('tcp')}") as service:
            service.serve("math.sum", lambda message: {"sum": 3})
            post(server, "/requests/math.sum", traceparent=f"00-{TRACE}-{PARENT}-01")
            processed = wait_until(lambda: receiver.named("process math.sum"), what="the span of the answer")[0]
            (sent,) = receiver.named("send math.sum")
            assert {sent.trace_id.hex(), processed.trace_id.hex()} == {TRACE}
            assert sent.parent_span_id.hex() == PARENT
            assert processed.parent_span_id == sent.span_id
            assert attributes(sent)["raceway.wire"] == "http"
            assert attributes(processed)["raceway.wire"] == "mb"
            receiver.status = 400  # refused for good: the exporter must try again by itself
            before = receiver.deliveries
            post(server, "/topics/later")
            wait_until(lambda: receiver.deliveries > before, what="a delivery that is refused")
            receiver.status = 200
            late = wait_until(lambda: receiver.named("send later"), what="the span once the collector is back")[0]
            assert attributes(late)["raceway.trace.derived"] is True
            server.stop()


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_on() -> None:
    code = "import sys, raceway.server.process; print(json.dumps([m for m in sys.modules if 'opentelemetry' in m]))"
    done = subprocess.run(
        [sys.executable, "-c", "import json; " + code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == []
