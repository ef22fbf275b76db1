"""Limits of namespaces and topics over the console port; also available in Danube's administration."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.errors import InvalidValueError
from raceway.model.subscriptions import Policies
from raceway.web.answers import committed, read_json, refusing
from raceway.web.routing import LOOKUP, MANAGE_BROKER, Route

BODY_LIMIT = 64 * 1024


def policy_routes(broker: Broker) -> list[Route]:
    admin = broker.danube_admin

    async def change(request: Request, scope: Literal["namespace", "topic"], name: str) -> None:
        broker.journal.check_writable()
        admin.set_policies(scope, name, _policies(await read_json(request, BODY_LIMIT)))
        await committed(broker)

    async def namespace(request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "PUT":
            await change(request, "namespace", name)
        return JSONResponse(_shown(admin.policies(name)))

    async def topic(request: Request) -> Response:
        name = request.path_params["name"]
        if request.method == "PUT":
            await change(request, "topic", name)
        return JSONResponse(_shown(admin.topic_policies(name)))

    return [
        Route("/api/policies/namespaces/{name}", refusing(namespace), {"GET": LOOKUP, "PUT": MANAGE_BROKER}),
        Route("/api/policies/topics/{name:path}", refusing(topic), {"GET": LOOKUP, "PUT": MANAGE_BROKER}),
    ]


def _policies(sent: dict[str, Any]) -> Policies:
    """Decode limits. Absent ones are those of the namespace, or of the bus. Raises InvalidValueError."""
    unknown = sorted(sent.keys() - set(Policies.__struct_fields__))
    if unknown:
        raise InvalidValueError(unknown[0], f"unknown limit; known limits: {', '.join(Policies.__struct_fields__)}")
    try:
        return msgspec.convert(sent, Policies)
    except msgspec.ValidationError as error:
        raise InvalidValueError("a limit", str(error)) from error


def _shown(policies: Policies) -> dict[str, int | None]:
    return msgspec.structs.asdict(policies)
