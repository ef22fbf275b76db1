"""Script as a page runs it that is served from loopback and holds nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from playwright.sync_api import ConsoleMessage

from tests.rigs.browser import running_browser
from tests.rigs.ports import free_port_base

# For messages that come from a socket on the same machine.
PATIENCE_MS = 10_000


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>blank</title>")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""


@contextmanager
def _address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", free_port_base()), _Blank) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def console_lines(code: str, count: int) -> str:
    """The first so many lines that the script writes to the console."""
    lines: list[str] = []

    def is_last(said: ConsoleMessage) -> bool:
        lines.append(said.text)
        return len(lines) == count

    with _address() as address, running_browser() as browser:
        page = browser.new_page()
        page.goto(address)
        with page.expect_console_message(is_last, timeout=PATIENCE_MS):
            page.add_script_tag(content=code)
    return "\n".join(lines)
