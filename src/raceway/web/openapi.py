"""`/api/openapi.json`: the OpenAPI document of the console port, generated from its routes.

The schema registry (`/subjects`, …) follows Confluent's API and is documented there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import msgspec

from raceway import __version__
from raceway.web.answers import ErrorAnswer
from raceway.web.routing import JSON, LOOKUP, Operation, SiteRoutes, WebRoute, get

REFERENCE = "#/components/schemas/{name}"
PARTS = {"position": {"type": "integer", "minimum": 0, "maximum": (1 << 53) - 1}}


class DocumentRoutes(SiteRoutes):
    @get("/api/openapi.json", LOOKUP, "bus")
    async def document(self) -> dict[str, Any]:
        """The OpenAPI document of this port."""
        return self._document

    @cached_property
    def _document(self) -> dict[str, Any]:
        return describe(documented(self._site.routes))


def documented(routes: Iterable[WebRoute]) -> list[Operation]:
    return [each for route in routes for each in route.operations.values() if each.tag]


def describe(operations: list[Operation]) -> dict[str, Any]:
    """Return the document."""
    types = [ErrorAnswer, *(kind for each in operations for kind in (each.body, each.answer) if kind)]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        path = shown_path(each.path)
        paths.setdefault(path, {})[each.method.lower()] = _operation(path, each, by_type)
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


def shown_path(path: str) -> str:
    """Return a path as documents show it, without the types of its parts."""
    return re.sub(r":\w+}", "}", path)


def _operation(path: str, operation: Operation, by_type: dict[Any, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PARTS.get(name, {"type": "string", "minLength": 1})}
        for name in re.findall(r"{(\w+)}", path)
    ]
    answer = {"schema": by_type[operation.answer]} if operation.answer else {"schema": {"type": "string"}}
    statuses = {str(status): operation.summary for status in operation.statuses}
    responses: dict[str, Any] = {
        status: {"description": said, "content": {operation.media_type: answer}} for status, said in statuses.items()
    }
    refused = {"description": "Error", "content": {JSON: {"schema": by_type[ErrorAnswer]}}}
    responses |= dict.fromkeys(("4XX", "502", "503", "504"), refused)
    if "503" in statuses:
        responses["503"] = {"description": "Not ready", "content": {JSON: answer}}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{re.sub('[^a-zA-Z]+', '_', path).rstrip('_')}",
        "tags": [operation.tag],
        "parameters": [*parameters, *query_parameters(operation)],
        "responses": responses,
        "x-permission": str(operation.access),
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
