"""The page of the console port's addresses, from the table that its OpenAPI document is made of."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from docs.generate.markdown import cell, page, table
from raceway.web.openapi import query_parameters
from raceway.web.operations import OPERATIONS, Operation

TITLES = {
    "bus": "The bus", "topics": "Topics", "messages": "Messages", "door": "Messages over HTTP", "queues": "Queues",
    "seneca": "Seneca services", "schemas": "Schemas", "pipeline": "Pipeline",
}  # fmt: skip
# What a position or a time may be: nobody needs to be told.
UNBOUNDED = (1 << 53) - 1


def http_page() -> str:
    lines = [
        "Everything on the console port (default 8600) besides the console itself. `GET /api/openapi.json` says the",
        'same for programs, with the fields of every answer. Errors are `{"error": {"code": …, "message": …}}`,',
        "with the codes of [errors](errors.md). Where the bus has an admin token (`listen.zbus.admin_token`) or",
        "[security](../howto/security.md) is on, requests carry `Authorization: Bearer TOKEN`.",
        "",
        "Confluent's form of the schema registry (`/subjects`, …) is on [a page of its own](schemas.md).",
        "",
    ]
    for tag in dict.fromkeys(operation.tag for operation in OPERATIONS.values()):
        found = {asked: operation for asked, operation in OPERATIONS.items() if operation.tag == tag}
        rows = [_row(*asked, operation) for asked, operation in found.items()]
        lines += [f"## {TITLES.get(tag, tag.capitalize())}", "", *table(["", "address", "takes", ""], rows)]
        lines += [line for asked, operation in found.items() for line in _parameters(*asked, operation)]
    return page("HTTP interface", *lines)


def _row(method: str, path: str, operation: Operation) -> tuple[str, str, str, str]:
    return method, f"`{shown_path(path)}`", _taken(operation), cell(operation.summary)


def _taken(operation: Operation) -> str:
    """The members of the JSON document, or what the body is."""
    if inspect.isclass(operation.body) and issubclass(operation.body, msgspec.Struct):
        return ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(operation.body))
    return "the payload" if operation.takes else "JSON" if operation.body else ""


def _parameters(method: str, path: str, operation: Operation) -> Iterator[str]:
    found = query_parameters(operation)
    if found:
        yield f"In the query of `{method} {shown_path(path)}`:"
        yield ""
        yield from (f"- `{each['name']}`: {cell(each['description'])}{_bounds(each['schema'])}" for each in found)
        yield ""


def _bounds(schema: dict[str, Any]) -> str:
    said = [f"{schema['maximum']} at most"] if schema.get("maximum", UNBOUNDED) < UNBOUNDED else []
    said += [f"default {schema['default']}"] if schema.get("default") not in (None, "") else []
    return f" ({', '.join(said)})" if said else ""


def shown_path(path: str) -> str:
    return re.sub(r"{(\w+):\w+}", r"{\1}", path)
