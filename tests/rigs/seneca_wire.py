"""A small client of the Seneca wire for black-box tests, and services to stand behind the bus, written apart from the
product's own codec. Blocking, and everything has a deadline.

Documents of the four dialects are made here field by field, so that a test can leave out or spoil any of them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

import pyarrow.compute as pc

from raceway.journal.read.reader import Reader
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, wait_until

DEADLINE_S = 15.0
ID = re.compile(r"[0-9a-z]{12}")
JSON = {"Content-Type": "application/json", "Accept": "application/json"}


def new_id(prefix: str = "m") -> str:
    """Of this test only."""
    return prefix + uuid.uuid4().hex[:11]


def fresh_word() -> str:
    """For the pattern of one test: no other test attaches it."""
    return "w" + uuid.uuid4().hex[:10]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# ---- documents ------------------------------------------------------------------------------------------------------


def seed(data: Mapping[str, Any], sync: bool = True, sid: str = "A", **meta: Any) -> dict[str, Any]:
    """A request of the seed's form. `meta` adds to or replaces fields; None takes one away."""
    mid = meta.get("mid") or new_id()
    fields = {
        "vin": 1,
        "sid": sid,
        "act": True,
        "mid": mid,
        "cid": new_id("c"),
        "snc": sync,
        "trk": [{"sid": sid, "mid": mid, "tms": [now_ms()]}],
    }
    fields.update(meta)
    return {**data, "meta$": {name: value for name, value in fields.items() if value is not None}}


def web(data: Mapping[str, Any], sync: bool = True, custom: Mapping[str, Any] | None = None) -> dict[str, Any]:
    mid, cid = new_id(), new_id("c")
    meta = {"id": f"{mid}/{cid}", "mi": mid, "tx": cid, "sync": sync, "custom": custom or {}, "instance": "A"}
    return {**data, "meta$": meta}


def legacy_headers(mid: str | None = None, cid: str | None = None, sid: str = "A") -> dict[str, str]:
    return {
        **JSON,
        "seneca-id": f"{mid or new_id()}/{cid or new_id('c')}",
        "seneca-kind": "req",
        "seneca-origin": sid,
        "seneca-track": json.dumps([sid]),
        "seneca-time-client-sent": str(now_ms()),
    }


def line(data: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A line of dialect T; None takes a field away."""
    whole = {
        "id": f"{new_id()}/{new_id('c')}",
        "kind": "act",
        "origin": "A",
        "track": ["A"],
        "time": {"client_sent": now_ms()},
        "act": {**data, "custom$": {}},
        "sync": True,
    }
    whole.update(fields)
    return {name: value for name, value in whole.items() if value is not None}


# ---- HTTP -----------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = self.json()["meta$"]
        return meta

    @property
    def data(self) -> dict[str, Any]:
        """Everything but the meta data."""
        return {name: value for name, value in self.json().items() if name != "meta$"}


def encode(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


class Http:
    """One kept connection."""

    def __init__(self, port: int, deadline_s: float = DEADLINE_S) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=deadline_s)

    def post(self, body: Any, headers: Mapping[str, str] = JSON, path: str = "/act", method: str = "POST") -> Answer:
        self._connection.request(method, path, encode(body), dict(headers))
        return self.read()

    def announce(self, length: int) -> None:
        """The head of a request alone."""
        self._connection.putrequest("POST", "/act")
        self._connection.putheader("Content-Length", str(length))
        self._connection.endheaders()

    def read(self) -> Answer:
        response = self._connection.getresponse()
        found = response.read()
        lowered = {name.lower(): value for name, value in response.getheaders()}
        assert lowered.get("content-length") == str(len(found)), "the length must be exact"
        return Answer(response.status, lowered, found)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def post(
    server: Server, body: Any, headers: Mapping[str, str] = JSON, path: str = "/act", method: str = "POST"
) -> Answer:
    """On a connection of its own."""
    with Http(server.port("seneca")) as http:
        return http.post(body, headers, path, method)


# ---- lines ----------------------------------------------------------------------------------------------------------


class Lines:
    """One TCP connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._stream = self.socket.makefile("rb")

    def send(self, document: Any) -> None:
        self.socket.sendall(encode(document) + b"\n")

    def receive(self) -> Any:
        """The next line; EOFError when the server has closed."""
        found = self._stream.readline()
        if not found:
            raise EOFError
        assert found.endswith(b"\n")
        return json.loads(found)

    def ask(self, document: Any) -> Any:
        self.send(document)
        return self.receive()

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- services behind the bus ----------------------------------------------------------------------------------------


class Got(NamedTuple):
    """A request that a service received."""

    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def meta(self) -> dict[str, Any]:
        meta: dict[str, Any] = self.json()["meta$"]
        return meta


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The bus opens many connections at once; Python's own default is 5.
    request_queue_size = 1024

    def handle_error(self, *_: Any) -> None:
        """A bus that was killed has reset its connections."""


Reaction = Callable[[Got], tuple[int, Any]]


class Service:
    """An HTTP server of the test's own; `react` gives status and body of each answer."""

    def __init__(self, react: Reaction, headers: Callable[[Got], Mapping[str, str]] = lambda _: {}) -> None:
        self.got: list[Got] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                service.got.append(got)
                status, answer = react(got)
                content = encode(answer)
                with suppress(ConnectionError):
                    self.send_response(status)
                    for name, value in {"Content-Type": "application/json", **headers(got)}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", free_port_base()), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.port: int = self._server.server_address[1]

    def url(self, path: str = "/act") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def wait_for(self, count: int, deadline_s: float = DEADLINE_S) -> list[Got]:
        wait_until(lambda: len(self.got) >= count, deadline_s, f"{count} requests at a service")
        return self.got

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def seed_answer(got: Got, result: Mapping[str, Any], rid: str = "B", **meta: Any) -> dict[str, Any]:
    """The response document that a service of the seed's form gives: `trk` completed by its own times."""
    asked = got.meta
    trk = [dict(entry) for entry in asked["trk"]]
    own = next(entry for entry in reversed(trk) if entry["mid"] == asked["mid"])
    own["rid"] = rid
    own["tms"] = [*own["tms"][:1], now_ms(), now_ms()]
    fields = {
        "rid": rid,
        "res": True,
        "mid": asked["mid"],
        "cid": asked["cid"],
        "trk": trk,
        "usr": asked.get("ctm", {}),
    }
    return {**result, "meta$": {**fields, **meta}}


def answering(result: Mapping[str, Any], rid: str = "B", **meta: Any) -> Reaction:
    """A service of the seed's form that always says the same; asynchronous messages are accepted."""

    def react(got: Got) -> tuple[int, Any]:
        if not got.meta.get("snc", True):
            return 202, {}
        return 500 if meta.get("error") else 200, seed_answer(got, result, rid, **meta)

    return react


# ---- the bus itself --------------------------------------------------------------------------------------------------


def console(server: Server, method: str, path: str, body: Any = None) -> Answer:
    connection = HTTPConnection("127.0.0.1", server.port("console"), timeout=DEADLINE_S)
    try:
        connection.request(method, path, None if body is None else encode(body), JSON)
        response = connection.getresponse()
        return Answer(response.status, {n.lower(): v for n, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def attach(server: Server, pin: str, url: str, dialect: str | None = None) -> None:
    wanted = {"pin": pin, "url": url} | ({"dialect": dialect} if dialect else {})
    answer = console(server, "POST", "/api/seneca/services", wanted)
    assert answer.status < 300, answer.body


def detach(server: Server, pin: str, url: str) -> None:
    query = urllib.parse.urlencode({"pin": pin, "url": url})
    answer = console(server, "DELETE", f"/api/seneca/services?{query}")
    assert answer.status < 300, answer.body


@contextmanager
def attached(server: Server, pin: str, url: str, dialect: str | None = None) -> Iterator[None]:
    attach(server, pin, url, dialect)
    try:
        yield
    finally:
        if server.is_running():
            detach(server, pin, url)


@contextmanager
def serving(server: Server, pin: str, react: Reaction, dialect: str = "S") -> Iterator[Service]:
    """A service of the test's own, attached."""
    with Service(react) as service, attached(server, pin, service.url(), dialect):
        yield service


def journal_end(server: Server) -> int:
    """The position behind the last committed row."""
    return Reader(server.data).committed() + 1


def rows(server: Server, since: int | None = None, **wanted: Any) -> list[dict[str, Any]]:
    """What the journal has from that position on, of the rows whose columns have these values."""
    found: list[dict[str, Any]] = []
    for batch in Reader(server.data).read(server.rows_begin if since is None else since):
        for name, value in wanted.items():
            batch = batch.filter(pc.equal(batch.column(name), value))
        found += batch.to_pylist()
    return found


def wait_for_rows(server: Server, count: int, since: int | None = None, **wanted: Any) -> list[dict[str, Any]]:
    def enough() -> list[dict[str, Any]] | None:
        found = rows(server, since, **wanted)
        return found if len(found) >= count else None

    return wait_until(enough, DEADLINE_S, f"{count} rows with {wanted}")
