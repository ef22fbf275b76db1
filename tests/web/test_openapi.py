from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from starlette.applications import Starlette

from raceway.model.intents.schemas import RegisterSchema
from raceway.model.subscriptions import ConsumerWanted
from raceway.web.app import build_app
from raceway.web.registry_form import is_address
from raceway.web.routing import Operation, checked
from raceway.web.schemas import Differences
from raceway.wires.seneca.codec.patterns import PinTable
from raceway.wires.seneca.dial.services import ServiceTable
from raceway.wires.seneca.listen.routes import SenecaRoutes
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


class NoServices(ServiceTable):
    """A table without services, so that its routes are there."""

    def __init__(self) -> None:
        self.pins = PinTable()


@pytest.fixture(scope="module")
def document() -> Any:
    return ask(build_app(DOOR(Bench().broker), (), more=[SenecaRoutes(NoServices())]), "/api/openapi.json").json()


def operations() -> list[Operation]:
    app = build_app(DOOR(Bench().broker), (), more=[SenecaRoutes(NoServices())])
    return [each for route in checked(app.routes) for each in route.operations.values()]


OPERATIONS = {(each.method, each.path): each for each in operations()}


def test_every_route_is_declared_with_what_the_document_needs() -> None:
    assert len(OPERATIONS) > 80
    for (method, path), each in OPERATIONS.items():
        assert each.access, path
        if is_address(path) or path in ("/", "/console/{name:path}"):
            assert not each.tag, path  # Confluent's registry, and files
            continue
        assert each.tag, path
        assert each.summary.endswith("."), path
        assert each.answer or each.media_type != "application/json", path
        assert method not in ("PUT", "POST") or each.body or each.takes, path


def test_the_document_has_every_route_that_is_ours(document: Any) -> None:
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == {(each.method, re.sub(r":\w+}", "}", each.path)) for each in OPERATIONS.values() if each.tag}


def test_the_document_has_the_permission_that_is_checked(document: Any) -> None:
    for each in OPERATIONS.values():
        if each.tag:
            found = document["paths"][re.sub(r":\w+}", "}", each.path)][each.method.lower()]
            assert (found["x-permission"], found["summary"]) == (str(each.access), each.summary)


def test_parameters_come_from_the_records_that_check_them(document: Any) -> None:
    (search,) = (each for each in document["paths"]["/api/messages"]["get"]["parameters"] if each["name"] == "limit")
    assert search["in"] == "query"
    assert search["schema"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}


def test_parts_of_an_address_are_parameters(document: Any) -> None:
    (name,) = document["paths"]["/api/topics/{name}"]["get"]["parameters"]
    assert (name["name"], name["in"], name["required"]) == ("name", "path", True)


def test_every_operation_has_a_name_of_its_own(document: Any) -> None:
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(set(names)) == len(names)


def test_every_operation_may_refuse_in_the_one_shape(document: Any) -> None:
    shape = {"$ref": "#/components/schemas/ErrorAnswer"}
    for methods in document["paths"].values():
        for each in methods.values():
            assert each["responses"]["4XX"]["content"]["application/json"]["schema"] == shape


def test_all_references_lead_somewhere(document: Any) -> None:
    def references(part: Any) -> set[str]:
        if isinstance(part, dict):
            own = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
            return own.union(*map(references, part.values()))
        return set().union(*map(references, part)) if isinstance(part, list) else set()

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


WITHOUT_PARTS = sorted(
    path
    for (method, path), each in OPERATIONS.items()
    if method == "GET" and each.tag and each.answer and "{" not in path
)
# What a question must say.
QUESTIONS = {
    **dict.fromkeys(("/api/subscriptions/policy", "/api/subscriptions/one"), "?topic=orders&name=billing"),
    "/api/history/topic": "?topic=orders",
    "/api/sql": "?sql=SELECT%201",
}


@pytest.fixture(scope="module")
def used() -> Starlette:
    """Over a bus that has a topic with messages and a subscription, and a schema with two versions."""
    bench = Bench()
    bench.publish(bench.peer(), Message(b"orders"), Message(b"orders"))
    bench.broker.subscriptions.make(ConsumerWanted("orders", "", "billing"), None)
    for definition in (b'{"type": "object"}', b'{"type": "object", "required": ["id"]}'):
        bench.broker.schemas.prepare_mode("order", "none")
        bench.broker.schemas.register(RegisterSchema("order", "json_schema", definition))
    bench.loop.settle()
    return build_app(DOOR(bench.broker), (), more=[SenecaRoutes(NoServices())])


@pytest.mark.parametrize("path", WITHOUT_PARTS)
def test_answers_are_what_the_document_says(used: Starlette, path: str) -> None:
    msgspec.convert(ask(used, path + QUESTIONS.get(path, "")).json(), OPERATIONS["GET", path].answer)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/topics/{name:path}", "/topics/orders?limit=1"),
        ("/api/topics/{name:path}", "/api/topics/orders"),
        ("/api/schemas/{subject:path}/versions", "/api/schemas/order/versions"),
        ("/api/schemas/{subject:path}/differences", "/api/schemas/order/differences?old=1&new=2"),
    ],
)
def test_so_are_answers_about_one_thing(used: Starlette, path: str, asked: str) -> None:
    found = ask(used, asked).json()
    described = msgspec.convert(found, OPERATIONS["GET", path].answer)
    assert msgspec.to_builtins(described).keys() >= found.keys()


def test_differences_name_what_each_direction_lacks(used: Starlette) -> None:
    found = msgspec.convert(ask(used, "/api/schemas/order/differences?old=1&new=2").json(), Differences)
    assert found.reasons["backward"] != []
    assert found.reasons["forward"] == []
