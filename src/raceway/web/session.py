"""`GET /api/session`: the caller's principal and permissions. The console uses it for signing in.

Open to everyone: without a token it tells whether one is required, with one whether it is valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from starlette.requests import Request

from raceway.model.security import OWNER, PERMISSIONS, Permission
from raceway.web.answers import principal_of, token_of
from raceway.web.routing import KNOWN, SiteRoutes, get

# Permissions without the administrator's token, if there is no other security.
WITHOUT_TOKEN: tuple[Permission, ...] = ("Lookup", "Produce")


class CallerSession(msgspec.Struct, frozen=True):
    """The caller. `security`: everything is allowed (`off`), private routes need the administrator's token
    (`admin_token`), or each token has its own permissions (`tokens`). `is_known`: a valid token was sent.
    `permissions` are those on the whole cluster; there may be others on namespaces or topics."""

    security: Literal["off", "admin_token", "tokens"]
    principal: str
    is_known: bool
    permissions: Sequence[str]


class SessionRoutes(SiteRoutes):
    @get("/api/session", KNOWN, "bus")
    async def session(self, request: Request) -> CallerSession:
        """The caller's principal and permissions."""
        principal, permissions, admin_token = principal_of(request), self._view.permissions, self._site.admin_token
        if permissions.enabled:
            allowed = [each for each in PERMISSIONS if permissions.allows(principal, each, None)]
            return CallerSession("tokens", str(principal), bool(token_of(request)), allowed)
        is_known = principal == OWNER
        return CallerSession(
            "admin_token" if admin_token else "off",
            "administrator" if is_known else str(principal),
            is_known,
            PERMISSIONS if is_known or not admin_token else WITHOUT_TOKEN,
        )
