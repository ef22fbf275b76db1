"""Access control of the console port's routes.

With security on, the token determines the principal and the matched route the permission it needs; the administrator's
token allows everything. For permissions on topics, the doorman checks whether the principal has them anywhere, so that
requests without any are cheap, and the handler checks each topic.

With an administrator's token and no other security, that token is required for private routes: see `Access`.
"""

from __future__ import annotations

from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raceway.broker.security.tokens import is_signed
from raceway.errors import ForbiddenError, RacewayError, UnauthenticatedError
from raceway.model.intents.security import Identify, ProveAdministrator
from raceway.model.security import OWNER, Principal
from raceway.web.answers import PRINCIPAL, address_of, status_of, token_of
from raceway.web.peer import ask
from raceway.web.registry_form import refused_at
from raceway.web.routing import NOT_THERE, Access, Site, refused_by


class Doorman:
    """Checks every request before its handler."""

    def __init__(self, site: Site) -> None:
        self._site, self._door, self._permissions = site, site.door, site.door.view.permissions

    async def check(self, request: Request, access: Access) -> None:
        """Check a request and store its principal in the scope. Raises ForbiddenError, UnauthenticatedError."""
        if access.scope == "everybody" or not self._site.is_asking:
            return
        token, address = token_of(request), address_of(request)
        if await self._is_owner(request, token, address):
            request.scope[PRINCIPAL] = OWNER
        elif self._permissions.enabled:
            await self._check_token(request, token, address, access)
        elif access.is_private:
            raise ForbiddenError("the token", "administer this bus")

    async def not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request without a matching route: 404, or a refusal."""
        try:
            await self.check(Request(scope), NOT_THERE)
        except RacewayError as error:
            await refused_by(partial(_refused, scope["path"]), error)(scope, receive, send)
        else:
            raise HTTPException(404)

    async def _is_owner(self, request: Request, token: str, address: str) -> bool:
        """Return whether this is the administrator's token. Raises TooManyFailuresError."""
        if self._permissions.enabled and is_signed(token):
            return False
        return await ask(self._door, request, ProveAdministrator(token, self._site.admin_token, address))

    async def _check_token(self, request: Request, token: str, address: str, access: Access) -> None:
        if self._site.admin_token and token and not is_signed(token):  # it was counted as a failure already
            raise UnauthenticatedError("the token is not valid")
        principal = await ask(self._door, request, Identify(f"Bearer {token}" if token else None, address))
        request.scope[PRINCIPAL] = principal
        if access.scope != "known" and not self._allows(principal, access):
            raise ForbiddenError(str(principal), f"use this address: it needs the permission {access}")

    def _allows(self, principal: Principal, access: Access) -> bool:
        if access.scope == "topic":
            return any(self._permissions.allows_somewhere(principal, each) for each in access.permissions)
        return any(self._permissions.allows(principal, each, None) for each in access.permissions)


def _refused(path: str, error: RacewayError) -> Response:
    return refused_at(path, status_of(error), error.code, str(error))
