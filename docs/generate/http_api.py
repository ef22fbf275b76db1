"""The page of the console port's addresses, from the table that its OpenAPI document is made of."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from docs.generate.markdown import cell, page, table
from raceway import config
from raceway.broker.broker import Broker
from raceway.journal.memory import MemoryJournal
from raceway.web.app import build_app
from raceway.web.openapi import query_parameters
from raceway.web.operations import OPERATIONS, Operation
from raceway.web.routing import Access, checked

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
        "with the codes of [errors](errors.md). Where the bus has an admin token (`security.admin_token`) or",
        "[security](../howto/security.md) is on, requests carry `Authorization: Bearer TOKEN`.",
        "",
        "With security on, the column *needs* is the permission that this takes: on the whole cluster, unless it",
        "says `on the topic`. Where there is no security but an administrator's token, that token is needed for what",
        "is *private* and for nothing else. `HEAD` needs what `GET` needs; that an address or a method is not there",
        "is told to those who have `Lookup`.",
        "",
        "Confluent's form of the schema registry (`/subjects`, …) is on [a page of its own](schemas.md).",
        "",
    ]
    access = accesses()
    for tag in dict.fromkeys(operation.tag for operation in OPERATIONS.values()):
        found = {asked: operation for asked, operation in OPERATIONS.items() if operation.tag == tag}
        rows = [_row(*asked, operation, access.pop(asked)) for asked, operation in found.items()]
        lines += [f"## {TITLES.get(tag, tag.capitalize())}", "", *table(["", "address", "takes", "needs", ""], rows)]
        lines += [line for asked, operation in found.items() for line in _parameters(*asked, operation)]
    return page("HTTP interface", *lines, *_others(access))


def accesses() -> dict[tuple[str, str], Access]:
    """Who may use each method of each address, from the routes of an application."""
    with closing(asyncio.new_event_loop()) as loop:
        journal = MemoryJournal(config.Journal(durability="memory"), loop.call_soon, lambda: 0)
        with closing(journal):
            app = build_app(Broker(config.Broker(), journal, loop, lambda: 0), (), services=_NoServices())
            routes = checked(app.routes)
            app.state.desk.close()
    return {(method, route.path): access for route in routes for method, access in route.access.items()}


class _NoServices:
    """A table without services, so that its routes are there."""

    def rows(self) -> list[Any]:
        return []

    async def attach(self, *_: object) -> list[Any]:
        return []

    async def detach(self, *_: object) -> int:
        return 0


def _others(access: dict[tuple[str, str], Access]) -> Iterator[str]:
    """Addresses that the OpenAPI document leaves out."""
    rows = [(method, f"`{shown_path(path)}`", _needed(each)) for (method, path), each in access.items()]
    yield "## The schema registry in Confluent's form, and the console's files"
    yield ""
    yield from table(["", "address", "needs"], [row for row in rows if row[0] != "HEAD"])


def _needed(access: Access) -> str:
    if not access.permissions:
        return "nothing" if access.scope == "everybody" else "nothing; a bad token is refused"
    permissions = " or ".join(f"`{each}`" for each in access.permissions)
    return (
        permissions + (" on the topic" if access.scope == "topic" else "") + (", private" if access.is_private else "")
    )


def _row(method: str, path: str, operation: Operation, access: Access) -> tuple[str, ...]:
    return method, f"`{shown_path(path)}`", _taken(operation), _needed(access), cell(operation.summary)


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
