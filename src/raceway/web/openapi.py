"""`/api/openapi.json`: the OpenAPI document of the console port, generated from the routes and `operations`.

The schema registry (`/subjects`, …) follows Confluent's API and is documented there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from raceway import __version__
from raceway.web.answers import Refusal
from raceway.web.asking import answered
from raceway.web.operations import OPERATIONS, Operation
from raceway.web.routing import LOOKUP, Route

ADDRESS = "/api/openapi.json"
REFERENCE = "#/components/schemas/{name}"
JSON = "application/json"
OURS = ("/api/", "/topics/", "/requests/", "/asyncapi", "/healthz", "/readyz", "/metrics")
PARTS = {"position": {"type": "integer", "minimum": 0, "maximum": (1 << 53) - 1}}
# Methods that `Route` adds by itself.
UNSAID = {"HEAD"}


def document_route(routes: Sequence[Route]) -> Route:
    documents: list[dict[str, Any]] = []

    async def document(request: Request) -> Response:
        if not documents:
            documents.append(describe([*routes, route]))
        return answered(documents[0])

    route = Route(ADDRESS, document, LOOKUP)
    return route


def described(routes: Sequence[Route]) -> list[tuple[str, Route]]:
    """Return each documented route with each of its methods."""
    ours = [route for route in routes if route.path.startswith(OURS)]
    return [(method, route) for route in ours for method in sorted((route.methods or set()) - UNSAID)]


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document. Raises KeyError for a route without a description."""
    found = [(method, route, OPERATIONS[method, route.path]) for method, route in described(routes)]
    types = [Refusal, *(kind for _, _, operation in found for kind in (operation.body, operation.answer) if kind)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for method, route, operation in found:
        path = re.sub(r":\w+}", "}", route.path)
        access = {"x-permission": str(route.access[method])}
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation, by_type) | access
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Raceway", "version": __version__,
            "description": "The API behind the console. All errors have the form "
            '{"error": {"code", "message"}}. If the bus has an administrator\'s token or security is on, requests need '
            "`Authorization: Bearer TOKEN`; with security on, `x-permission` is the required permission.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }  # fmt: skip


def _operation(method: str, path: str, operation: Operation, by_type: dict[Any, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PARTS.get(name, {"type": "string", "minLength": 1})}
        for name in re.findall(r"{(\w+)}", path)
    ]
    answer = {"schema": by_type[operation.answer]} if operation.answer else {"schema": {"type": "string"}}
    statuses = {str(status): operation.summary for status in operation.statuses}
    responses: dict[str, Any] = {
        status: {"description": said, "content": {operation.media_type: answer}} for status, said in statuses.items()
    }
    refused = {"description": "Error", "content": {JSON: {"schema": by_type[Refusal]}}}
    responses |= dict.fromkeys(("4XX", "502", "503", "504"), refused)
    if "503" in statuses:
        responses["503"] = {"description": "Not ready", "content": {JSON: answer}}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{method.lower()}{re.sub('[^a-zA-Z]+', '_', path).rstrip('_')}",
        "tags": [operation.tag],
        "parameters": [*parameters, *query_parameters(operation)],
        "responses": responses,
    }
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": by_type[operation.body]}}}
    elif operation.takes:
        anything = {"schema": {"type": "string", "format": "binary"}}
        found["requestBody"] = {"content": {operation.takes: anything}}
    return found


def query_parameters(operation: Operation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = msgspec.json.schema(operation.query)
    (fields,) = schema["$defs"].values()
    found = []
    for name, of_field in fields["properties"].items():
        shown = dict(of_field)
        description = shown.pop("description", "")
        if "anyOf" in shown:  # null means absent
            (kind,) = (each for each in shown.pop("anyOf") if each != {"type": "null"})
            description = kind.pop("description", description)
            shown = {**kind}
        found.append(
            {"name": name, "in": "query", "required": name in fields.get("required", ()), "description": description,
             "schema": shown}
        )  # fmt: skip
    return found
