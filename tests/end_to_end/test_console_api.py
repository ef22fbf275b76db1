"""The addresses behind the console, at a started server: bad input everywhere, everything the document allows, searches
in pieces, and whoever may not look."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from raceway.client.sync import connect
from raceway.web.app import build_app
from raceway.wires.seneca.listen.routes import SenecaRoutes
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.rigs.rounds import SOAKING, rounds
from tests.rigs.schema_rest import Answer, call
from tests.rigs.server import Server, running_server, wait_until
from tests.web.test_openapi import NoServices

# Bodies and parts of addresses that nobody should send.
BAD_PARTS = ("%00", "%FF%FE", "..", "9" * 40, "-1", "%3Cscript%3E", "x" * 3000, "%2F%2F", "{}", "latest")
BAD_VALUES = ("", "-1", "9" * 40, "1e9", "null", "NaN", "%00", "x" * 3000, "%F0%9F%92%A9", "a=b&c")
BAD_BODIES = (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":' * 2000, b'{"type": 7}', b'{"unknown": true}')
# Checks of schemathesis; what a stranger may get wrong is answered with a refusal, which the rest do not like.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# Rows of a search that comes in pieces.
MANY = 200_000 if SOAKING else 40_000
# Confluent's, whose clients expect errors in Confluent's form.
OF_CONFLUENT = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/contexts", "/v1/metadata")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as found:
        for number in range(5):
            assert call(found, "POST", "/topics/shop.orders", b'{"n": %d}' % number).status == 201
        yield found


def ask(server: Server, path: str) -> Any:
    answer = call(server, "GET", path)
    assert answer.status == 200, answer
    return answer.json()


class Caller:
    """Asks over one connection: there are thousands of questions."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __call__(self, method: str, path: str, body: bytes | None = None) -> Answer:
        self._connection.request(method, path, body)
        response = self._connection.getresponse()
        kind = response.getheader("content-type", "")
        if kind.startswith("text/event-stream"):  # an answer that does not end
            self._connection.close()
            return Answer(response.status, kind, b"")
        return Answer(response.status, kind, response.read())


@pytest.fixture
def ask_for(server: Server) -> Iterator[Caller]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port("console"), timeout=60)
    yield Caller(connection)
    connection.close()


def operations(server: Server) -> list[tuple[str, str, dict[str, Any]]]:
    paths = ask(server, "/api/openapi.json")["paths"]
    return [
        (method.upper(), path, each)
        for path, methods in paths.items()
        for method, each in methods.items()
        if path != "/api/live"  # its answer does not end
    ]


def routes() -> list[tuple[str, str]]:
    """Method and address of every route there is, described or not."""
    app = build_app(DOOR(Bench().broker), (), more=[SenecaRoutes(NoServices())])
    found = [
        (sorted((route.methods or set()) - {"HEAD"}), route.path) for route in app.routes if isinstance(route, Route)
    ]
    return [
        (method, re.sub(r":\w+}", "}", path)) for methods, path in found for method in methods if path != "/api/live"
    ]


def assert_refused_or_answered(answer: Answer, what: str) -> None:
    """A refusal has the one shape, whatever was wrong."""
    assert answer.status < 500 or answer.status in (503, 504), f"{what}: {answer}"
    if answer.status >= 400:
        refusal = answer.json()
        error = refusal if what.split()[1].startswith(OF_CONFLUENT) and "error_code" in refusal else refusal["error"]
        assert error.get("code") or error.get("error_code"), what
        assert error["message"], what


def filled(path: str, part: str) -> str:
    return re.sub(r"{\w+}", part, path)


def test_every_route_refuses_bad_addresses_in_the_one_shape(server: Server, ask_for: Caller) -> None:
    for method, path in routes():
        for part in BAD_PARTS if "{" in path else ("",):
            answer = ask_for(method, filled(path, part), b"" if method != "GET" else None)
            assert_refused_or_answered(answer, f"{method} {path} with {part!r}")
    assert server.http("/healthz")[0] == 200


def test_every_address_refuses_bad_questions_in_the_one_shape(server: Server, ask_for: Caller) -> None:
    for method, path, each in operations(server):
        for parameter in [each["name"] for each in each["parameters"] if each["in"] == "query"]:
            for value in BAD_VALUES:
                answer = ask_for(method, f"{filled(path, 'shop.orders')}?{parameter}={value}")
                assert_refused_or_answered(answer, f"{method} {path}?{parameter}={value[:20]!r}")
    assert server.http("/healthz")[0] == 200


def test_every_route_refuses_bad_bodies_in_the_one_shape(server: Server, ask_for: Caller) -> None:
    for method, path in routes():
        for body in BAD_BODIES if method != "GET" else ():
            answer = ask_for(method, filled(path, "shop.orders"), body)
            assert_refused_or_answered(answer, f"{method} {path} with {body[:20]!r}")


def test_every_address_refuses_other_methods_in_the_one_shape(server: Server, ask_for: Caller) -> None:
    known: dict[str, set[str]] = {path: set() for _, path, _ in operations(server)}
    for method, path, _ in operations(server):
        known[path].add(method)
    for path, methods in known.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
            answer = ask_for(method, filled(path, "1"), b"{}")
            assert answer.status in (404, 405), f"{method} {path}: {answer}"
            assert answer.json()["error"]["code"] in ("method", "not_found")


def test_the_document_holds_under_schemathesis(server: Server, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{server.port('console')}"
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{base}/api/openapi.json", "--checks", CHECKS,
        "--max-examples", str(rounds(4)), "--phases", "examples,fuzzing", "--seed", "1", "--exclude-path", "/api/live",
        "--exclude-path", "/topics",  # like the former, an answer that does not end
        "--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert server.http("/healthz")[0] == 200


def test_a_search_through_many_rows_comes_in_pieces(server: Server) -> None:
    stored = ask(server, "/api/overview")["committed"]
    with connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as bus:
        bus.publish_many("bulk.rows", ({"n": number} for number in range(MANY)), confirm=False)
        bus.heartbeat()
    wait_until(lambda: ask(server, "/api/overview")["committed"] >= stored + MANY, 60)
    before, scanned, found, rounds = "", 0, list[Any](), 0
    while before is not None:
        asked = f"/api/messages?path=n&path_value=7&topic=bulk.rows&before={before}&budget={MANY // 4}"
        page = ask(server, asked.replace("before=&", ""))
        assert page["scanned"] <= MANY // 4
        before, scanned, rounds = page["before"], scanned + page["scanned"], rounds + 1
        found += page["messages"]
    assert rounds >= 4
    assert scanned >= MANY
    assert [each["payload"] for each in found] == ['{"n":7}']


def test_messages_of_a_guarded_queue_are_not_shown(server: Server) -> None:
    with connect(f"zbus://127.0.0.1:{server.port('zbus')}", wire="zbus", token="secret") as bus:
        bus.create_queue("vault", token="secret")
        bus.publish("vault", b"bullion")
    row = wait_until(lambda: ask(server, "/api/topics?contains=vault")["topics"])[0]
    assert row["next"] == 1
    assert ask(server, "/api/messages?topic=vault")["messages"] == []
    assert ask(server, "/api/messages?text=bullion")["messages"] == []
    newest = ask(server, "/api/journal")["health"]["committed"]
    statuses = {call(server, "GET", f"/api/messages/{position}").status for position in range(newest - 3, newest + 1)}
    assert 200 not in statuses or b"bullion" not in call(server, "GET", f"/api/messages/{newest}").body


def test_live_figures_come_as_often_as_set_and_end_with_the_bus() -> None:
    with running_server(RACEWAY_LISTEN__HTTP__LIVE_MS=100) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port("console"), timeout=60)
        connection.request("GET", "/api/live")
        response = connection.getresponse()
        assert response.getheader("content-type", "").startswith("text/event-stream")
        events = [line for line in (response.readline() for _ in range(18)) if line.startswith(b"data:")]
        assert len(events) == 6
        times = [json.loads(line[5:])["time_us"] for line in events]
        assert times == sorted(set(times))
        assert min(later - time_us for time_us, later in pairwise(times[1:])) < 500_000, "and not once a second"
        server.stop()
        assert response.read() is not None
        connection.close()


def children_of(server: Server, program: str) -> list[str]:
    """Process ids of the bus's children whose command line has this text."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [pid for pid in children if program in Path(f"/proc/{pid}/cmdline").read_text()]


def test_a_question_whose_asker_has_gone_is_given_up() -> None:
    with running_server(RACEWAY_SQL__TIMEOUT_S=3600, RACEWAY_SQL__MAX_RUNNING=1) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port("console"), timeout=60)
        connection.request("GET", "/api/sql?sql=SELECT%20count(*)%20FROM%20range(1000000000000)")
        wait_until(lambda: children_of(server, "sandbox"), what="the process of the query")
        connection.close()
        assert ask(server, "/api/sql?sql=SELECT%207")["rows"] == [[7]], "it has left its turn to others"
        assert children_of(server, "sandbox") == []
        assert "Exception" not in server.stderr


def test_the_process_that_looks_ends_with_the_bus_and_is_made_again(server: Server) -> None:
    """After all others: it ends the bus."""
    assert call(server, "POST", "/topics/a.b", b"1").status == 201
    assert len(ask(server, "/api/messages?topic=a.b")["messages"]) == 1
    (first,) = children_of(server, "spawn_main")
    subprocess.run(["kill", "-9", first], check=True)
    assert len(ask(server, "/api/messages?topic=a.b")["messages"]) == 1, "another one answers"
    (second,) = set(children_of(server, "spawn_main")) - {first}
    server.kill()
    wait_until(lambda: not Path(f"/proc/{second}").exists() or "Z" in Path(f"/proc/{second}/stat").read_text())
