"""Who may do what on the console port while security is on.

Whether the bus lives, is ready, and how it does may be asked by everybody: those who watch over it have no token.
Everything else needs one, of somebody who may: look around the cluster to read, manage schemas to change them, consume
to see or drop what waits in a queue, manage the broker for the rest. The administrator's own token opens everything.
"""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from raceway.broker.security import Security
from raceway.errors import UnauthenticatedError
from raceway.model.envelope import HTTP
from raceway.model.security import Permission
from raceway.web.answers import token_of

OPEN = {"/healthz", "/readyz", "/metrics"}
READS = {"GET", "HEAD"}
OF_SCHEMAS = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/api/schemas", "/api/topic-schemas")
# Questions whose answer depends on a schema that is sent along.
QUESTIONS = ("/compatibility/",)


class Doorman:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, security: Security, admin_token: str) -> None:
        self._app = app
        self._security = security
        self._admin_token = admin_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._security.enabled and scope["path"] not in OPEN:
            refusal = self._maybe_refusal(Request(scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _maybe_refusal(self, request: Request) -> JSONResponse | None:
        token = token_of(request)
        if self._admin_token and hmac.compare_digest(token.encode(), self._admin_token):
            return None
        try:
            principal = self._security.identify(f"Bearer {token}" if token else None, HTTP.decode())
        except UnauthenticatedError as error:
            return _refusal(401, "unauthenticated", str(error))
        wanted = permissions_for(request.method, request.url.path)
        if any(self._security.allows(principal, permission, None) for permission in wanted):
            return None
        return _refusal(403, "forbidden", f"{principal} needs the permission {' or '.join(wanted)} on the cluster")


def permissions_for(method: str, path: str) -> tuple[Permission, ...]:
    """Any one of these is enough."""
    if path.endswith("/messages"):
        return ("Consume",)
    of_schemas = path.startswith(OF_SCHEMAS)
    if method in READS or path.startswith(QUESTIONS) or _looks_up_a_schema(method, path):
        return ("Lookup", "ManageSchema") if of_schemas else ("Lookup",)
    return ("ManageSchema",) if of_schemas else ("ManageBroker",)


def _looks_up_a_schema(method: str, path: str) -> bool:
    """`POST /subjects/S` asks whether a schema is registered; `POST /subjects/S/versions` registers it."""
    return method == "POST" and path.startswith("/subjects/") and not path.rstrip("/").endswith("/versions")


def _refusal(status: int, code: str, message: str) -> JSONResponse:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status, headers=headers)
