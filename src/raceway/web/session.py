"""`GET /api/session`: who asks, and what the bus lets them do. The console signs people in by it.

Open to everybody: whoever has no token learns that one is wanted, and whoever has one whether it is good.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.broker import Broker
from raceway.model.security import OWNER, PERMISSIONS, Permission
from raceway.web.answers import principal_of, refusing, token_of
from raceway.web.asking import answered
from raceway.web.routing import KNOWN, Route

ADDRESS = "/api/session"
# With an administrator's token and no other security: what is there without it.
WITHOUT_TOKEN: tuple[Permission, ...] = ("Lookup", "Produce")


class Session(msgspec.Struct, frozen=True):
    """Under `security` everybody may do everything (`off`), some things want the administrator's token
    (`admin_token`), or each one's own token says what it may do (`tokens`). `is_known`: a token was shown and is good.
    `permissions` are those on the whole cluster; others may hold for a namespace or a topic."""

    security: Literal["off", "admin_token", "tokens"]
    principal: str
    is_known: bool
    permissions: list[str]


def session_routes(broker: Broker, admin_token: str) -> list[Route]:
    async def session(request: Request) -> Response:
        return answered(_of_tokens(broker, request) if broker.security.enabled else _of_one(admin_token, request))

    return [Route(ADDRESS, refusing(session), KNOWN)]


def _of_tokens(broker: Broker, request: Request) -> Session:
    principal, allows = principal_of(request), broker.security.allows
    permissions: list[str] = [each for each in PERMISSIONS if allows(principal, each, None)]
    return Session("tokens", str(principal), bool(token_of(request)), permissions)


def _of_one(admin_token: str, request: Request) -> Session:
    is_known = principal_of(request) == OWNER
    everything = is_known or not admin_token
    return Session(
        "admin_token" if admin_token else "off",
        "administrator" if is_known else str(principal_of(request)),
        is_known,
        list(PERMISSIONS if everything else WITHOUT_TOKEN),
    )
