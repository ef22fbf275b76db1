from __future__ import annotations

from typing import Any

import pytest
from starlette.routing import Route

from raceway.web.app import build_app
from raceway.web.openapi import described
from raceway.web.operations import OPERATIONS
from tests.doubles import Bench
from tests.web.asgi import ask


class NoServices:
    """A table without services, so that its routes are there."""

    def rows(self) -> list[Any]:
        return []

    async def attach(self, pins: str, url: str, dialect: str = "auto") -> list[Any]:
        raise AssertionError("nobody attaches")

    async def detach(self, pins: str, url: str) -> int:
        return 0


@pytest.fixture(scope="module")
def document() -> Any:
    return ask(build_app(Bench().broker, (), services=NoServices()), "/api/openapi.json").json()


def test_every_route_is_described_and_every_description_has_a_route() -> None:
    app = build_app(Bench().broker, (), services=NoServices())
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert {(method, route.path) for method, route in described(routes)} == OPERATIONS.keys()


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
    shape = {"$ref": "#/components/schemas/Refusal"}
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
