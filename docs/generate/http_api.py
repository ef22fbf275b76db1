"""The page of the console port's addresses, from the declarations of its routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec

from docs.generate.markdown import cell, page, table
from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.door import Door
from raceway.journal.memory import MemoryJournal
from raceway.web.app import build_app
from raceway.web.openapi import query_parameters, shown_path
from raceway.web.routing import Access, Operation, checked
from raceway.wires.seneca.codec.patterns import PinTable
from raceway.wires.seneca.dial.services import ServiceTable
from raceway.wires.seneca.listen.routes import SenecaRoutes

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
    found = operations()
    for tag, title in TITLES.items():
        tagged = [each for each in found if each.tag == tag]
        rows = [
            (each.method, f"`{shown_path(each.path)}`", _taken(each), _needed(each.access), cell(each.summary))
            for each in tagged
        ]
        lines += [f"## {title}", "", *table(["", "address", "takes", "needs", ""], rows)]
        lines += [line for each in tagged for line in _parameters(each)]
    return page("HTTP interface", *lines, *_others(found))


def operations() -> list[Operation]:
    """All declared operations, from the routes of an application."""
    with closing(asyncio.new_event_loop()) as loop:
        journal = MemoryJournal(config.JournalSettings(durability="memory"), loop.call_soon, lambda: 0)
        with closing(journal):
            door = Door(Broker(config.BrokerSettings(), journal, loop, lambda: 0))
            app = build_app(door, (), more=[SenecaRoutes(NoServices())])
            app.state.desk.close()
    return [each for route in checked(app.routes) for each in route.operations.values()]


class NoServices(ServiceTable):
    """A table without services, so that its routes are there."""

    def __init__(self) -> None:
        self.pins = PinTable()


def _others(found: list[Operation]) -> Iterator[str]:
    """Addresses that the OpenAPI document leaves out."""
    yield "## The schema registry in Confluent's form, and the console's files"
    yield ""
    rows = [(each.method, f"`{shown_path(each.path)}`", _needed(each.access)) for each in found if not each.tag]
    yield from table(["", "address", "needs"], rows)


def _needed(access: Access) -> str:
    if not access.permissions:
        return "nothing" if access.scope == "everybody" else "nothing; a bad token is refused"
    permissions = " or ".join(f"`{each}`" for each in access.permissions)
    return (
        permissions + (" on the topic" if access.scope == "topic" else "") + (", private" if access.is_private else "")
    )


def _taken(operation: Operation) -> str:
    """The members of the JSON document, or what the body is."""
    if operation.body is None:
        return "the payload" if operation.takes else ""
    return ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(operation.body))


def _parameters(operation: Operation) -> Iterator[str]:
    found = query_parameters(operation)
    if found:
        yield f"In the query of `{operation.method} {shown_path(operation.path)}`:"
        yield ""
        yield from (f"- `{each['name']}`: {cell(each['description'])}{_bounds(each['schema'])}" for each in found)
        yield ""


def _bounds(schema: dict[str, Any]) -> str:
    said = [f"{schema['maximum']} at most"] if schema.get("maximum", UNBOUNDED) < UNBOUNDED else []
    said += [f"default {schema['default']}"] if schema.get("default") not in (None, "", False) else []
    return f" ({', '.join(said)})" if said else ""
