"""Who may do what on the console port while security is on.

Whether the bus lives, is ready, and how it does may be asked by everybody: those who watch over it have no token. The
console's own files are open too, and ask for one; who a token is for may be asked with any that is good. Everything
else needs one, of somebody who may: look around the cluster to read, manage schemas to change them, consume to see
messages or drop what waits in a queue, manage the broker for the rest. The administrator's own token opens everything.

Messages of one topic are another matter: who may publish to it or read it is asked at the bus's own door, topic by
topic. For those addresses the doorman only finds out who it is.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from raceway.broker.security import Security
from raceway.errors import UnauthenticatedError
from raceway.model.envelope import HTTP
from raceway.model.security import OWNER, Permission
from raceway.web.answers import PRINCIPAL, is_admin, refusal, refusal_of, token_of
from raceway.web.session import ADDRESS as SESSION

OPEN = {"/healthz", "/readyz", "/metrics", "/"}
OPEN_FILES = "/console/"
READS = {"GET", "HEAD"}
OF_SCHEMAS = ("/subjects", "/schemas", "/config", "/mode", "/compatibility", "/api/schemas", "/api/topic-schemas")
# Where messages are published, read, traced, taken up again and replayed.
OF_MESSAGES = ("/topics/", "/requests/", "/api/traces/", "/api/rejected", "/api/replay")
# Messages of whatever topic: for those who may consume from all of them.
OF_ALL_MESSAGES = ("/api/messages", "/api/tables/")
# Questions whose answer depends on a schema that is sent along.
QUESTIONS = ("/compatibility/",)


class Doorman:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, security: Security, admin_token: str) -> None:
        self._app = app
        self._security = security
        self._admin_token = admin_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._security.enabled and not _is_open(scope["path"]):
            refused = self._maybe_refusal(Request(scope))
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _maybe_refusal(self, request: Request) -> Response | None:
        if is_admin(request, self._admin_token):
            request.scope[PRINCIPAL] = OWNER
            return None
        token = token_of(request)
        try:
            principal = self._security.identify(f"Bearer {token}" if token else None, HTTP.decode())
        except UnauthenticatedError as error:
            refused = refusal_of(error)
            refused.headers["www-authenticate"] = "Bearer"
            return refused
        request.scope[PRINCIPAL] = principal
        if request.url.path == SESSION or request.url.path.startswith(OF_MESSAGES):
            return None
        wanted = permissions_for(request.method, request.url.path)
        if any(self._security.allows(principal, permission, None) for permission in wanted):
            return None
        return refusal(403, "forbidden", f"{principal} needs the permission {' or '.join(wanted)} on the cluster")


def permissions_for(method: str, path: str) -> tuple[Permission, ...]:
    """Any one of these is enough."""
    if path.endswith("/messages") or (method in READS and path.startswith(OF_ALL_MESSAGES)):
        return ("Consume",)
    of_schemas = path.startswith(OF_SCHEMAS)
    if method in READS or path.startswith(QUESTIONS) or _looks_up_a_schema(method, path):
        return ("Lookup", "ManageSchema") if of_schemas else ("Lookup",)
    return ("ManageSchema",) if of_schemas else ("ManageBroker",)


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_FILES)


def _looks_up_a_schema(method: str, path: str) -> bool:
    """`POST /subjects/S` asks whether a schema is registered; `POST /subjects/S/versions` registers it."""
    return method == "POST" and path.startswith("/subjects/") and not path.rstrip("/").endswith("/versions")
