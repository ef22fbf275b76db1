from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.applications import Starlette

from raceway.errors import ForbiddenError, NameInvalidError, PinTakenError, RacewayError
from raceway.web.app import build_app
from raceway.wires.seneca.dial.services import ServiceRow, ServiceTable
from raceway.wires.seneca.listen.routes import SenecaRoutes
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import Answer, ask, settled

PATH = "/api/seneca/services"
TOKEN = {"Authorization": "Bearer s3cret"}


def row(pin: str, url: str, state: str = "up") -> ServiceRow:
    return ServiceRow(pin, "a", url, "S", state, "", "command", 0, 0, 0, 0)


class Table(ServiceTable):
    """A table of services that writes down what it is told, or refuses it."""

    def __init__(self, error: RacewayError | None = None) -> None:
        self.told: list[tuple[str, ...]] = []
        self._error = error

    def rows(self) -> list[ServiceRow]:
        return [row("role:a", "http://127.0.0.1:1"), row("role:b", "tcp://127.0.0.1:2", "down")]

    async def attach(self, pins: str, url: str, dialect: str = "auto", name: str = "") -> list[ServiceRow]:
        self.told.append(("attach", pins, url, dialect, *([name] if name else [])))
        if self._error is not None:
            raise self._error
        return [row(pins, url)]

    async def detach(self, pins: str, url: str) -> int:
        self.told.append(("detach", pins, url))
        return 1


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(bench: Bench, table: Table) -> Starlette:
    return build_app(DOOR(bench.broker), (), more=[SenecaRoutes(table)])


def send(bench: Bench, app: Starlette, method: str, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    """A request with a body, in two pieces."""
    sent: list[MutableMapping[str, Any]] = []
    pieces = [body[: len(body) // 2], body[len(body) // 2 :]]

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def write(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": PATH, "raw_path": PATH.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }  # fmt: skip
    asyncio.run(settled(app(scope, receive, write), bench.loop.settle))
    return Answer(sent[0]["status"], {}, b"".join(part.get("body", b"") for part in sent[1:]))


def test_services_are_listed(app: Starlette) -> None:
    services = ask(app, PATH).json()["services"]
    assert [(row["pin"], row["state"]) for row in services] == [("role:a", "up"), ("role:b", "down")]


def test_a_service_is_attached_by_body_or_by_query(bench: Bench, app: Starlette, table: Table) -> None:
    settle = bench.loop.settle
    wanted = {"pin": "role:a", "url": "http://127.0.0.1:1", "dialect": "L"}
    assert json.loads(send(bench, app, "POST", json.dumps(wanted).encode()).body)["services"][0]["pin"] == "role:a"
    assert ask(app, f"{PATH}?pin=role:b&url=tcp://h:2", "POST", settle=settle).status == 200
    assert ask(app, f"{PATH}?pin=foo:*&url=tcp://h:2&name=foos", "POST", settle=settle).status == 200
    assert table.told == [
        ("attach", "role:a", "http://127.0.0.1:1", "L"),
        ("attach", "role:b", "tcp://h:2", "auto"),
        ("attach", "foo:*", "tcp://h:2", "auto", "foos"),
    ]


def test_a_service_is_detached(bench: Bench, app: Starlette, table: Table) -> None:
    answer = ask(app, f"{PATH}?pin=role:b&url=tcp://h:2", "DELETE", settle=bench.loop.settle)
    assert answer.json() == {"detached": 1}
    assert table.told == [("detach", "role:b", "tcp://h:2")]


@pytest.mark.parametrize(
    "body",
    [b"x", b"[]", b'{"pin":1,"url":"u"}', b'{"pin":"p"}', b'{"pin":"p","url":"u","dialect":"Q"}',
     b'{"pin":"p","url":"u","more":1}', b"\xff", b" " * 100_000],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(bench: Bench, app: Starlette, table: Table, body: bytes) -> None:
    assert send(bench, app, "POST", body).status == 400
    assert table.told == []


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NameInvalidError("role:seneca", "it is Seneca's own"), 400),
        (PinTakenError("a:1", "1", "b:1", "1"), 409),
        (ForbiddenError("the bus", "connect there"), 403),
    ],
)
def test_a_refusal_says_why(error: RacewayError, status: int) -> None:
    app = build_app(DOOR(Bench().broker), (), more=[SenecaRoutes(Table(error))])
    answer = ask(app, f"{PATH}?pin=p&url=u", "POST")
    assert (answer.status, answer.json()["error"]["code"]) == (status, error.code)


def test_where_the_bus_has_a_token_it_is_wanted(bench: Bench, table: Table) -> None:
    app = build_app(DOOR(bench.broker), (), "s3cret", [SenecaRoutes(table)])
    for method in ("GET", "POST", "DELETE"):
        assert ask(app, f"{PATH}?pin=p&url=u", method).status == 403
    assert table.told == []
    assert ask(app, PATH, headers=TOKEN).status == 200
    assert ask(app, f"{PATH}?pin=p&url=u", "POST", TOKEN, settle=bench.loop.settle).status == 200


def test_pages_of_other_sites_attach_nothing(app: Starlette, table: Table) -> None:
    assert ask(app, f"{PATH}?pin=p&url=u", "POST", {"Origin": "http://evil.example"}).status == 403
    assert table.told == []


def test_figures_count_services_by_state(app: Starlette) -> None:
    lines = ask(app, "/metrics").body.decode().splitlines()
    assert 'raceway_seneca_services{state="up"} 1.0' in lines
    assert 'raceway_seneca_services{state="down"} 1.0' in lines
