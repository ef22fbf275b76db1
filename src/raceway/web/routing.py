"""Routes of the console port. Each method of a route declares its access; without one it cannot be built.

    Route("/api/policies/topics/{name:path}", handler, {"GET": LOOKUP, "PUT": MANAGE_BROKER})

The doorman of the application (`app.state.doorman`) decides by the matched route, never by the text of a path: names of
topics and subjects are part of paths, and peers choose them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from starlette import routing
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raceway.errors import RacewayError, TooManyFailuresError, UnauthenticatedError
from raceway.model.security import Permission
from raceway.web.answers import Handler, refusal_of


class Access(NamedTuple):
    """Access to one method of a path.

    `everybody` needs no token; `known` needs a valid token or none. Otherwise one of `permissions` is required, on the
    whole `cluster`, or anywhere (`topic`): then the handler checks the topic itself. `is_private`: if the bus has an
    administrator's token and no other security, that token is required.
    """

    scope: Literal["everybody", "known", "cluster", "topic"]
    permissions: tuple[Permission, ...] = ()
    is_private: bool = True

    def __str__(self) -> str:
        if not self.permissions:
            return self.scope
        return f"{' or '.join(self.permissions)} on {'the cluster' if self.scope == 'cluster' else 'the topic'}"


OPEN = Access("everybody", is_private=False)
KNOWN = Access("known", is_private=False)
LOOKUP = Access("cluster", ("Lookup",), is_private=False)
LOOKUP_PRIVATE = Access("cluster", ("Lookup",))
READ_SCHEMAS = Access("cluster", ("Lookup", "ManageSchema"), is_private=False)
MANAGE_SCHEMA = Access("cluster", ("ManageSchema",))
MANAGE_BROKER = Access("cluster", ("ManageBroker",))
CONSUME_ALL = Access("cluster", ("Consume",))
CONSUME = Access("topic", ("Consume",))
MANAGE_TOPIC = Access("topic", ("ManageTopic",))
PRODUCE = Access("topic", ("Produce",), is_private=False)
# Access of unknown paths and methods: which ones exist is not revealed without it.
NOT_THERE = LOOKUP


class Route(routing.Route):
    """A path with the access of each method; a single access is that of GET. HEAD is like GET.

    `refused` builds the response if access is denied.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        access: Access | Mapping[str, Access],
        refused: Callable[[RacewayError], Response] = refusal_of,
    ) -> None:
        by_method = {"GET": access} if isinstance(access, Access) else dict(access)
        for method, each in by_method.items():
            if not isinstance(each, Access):
                raise TypeError(f"route {method} {path} has no access: pass an Access")
        if not by_method:
            raise TypeError(f"route {path} has no method: pass an Access for each")
        super().__init__(path, handler, methods=list(by_method))
        if "GET" in by_method:
            by_method.setdefault("HEAD", by_method["GET"])
        self.access = by_method
        self._refused = refused

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope["app"].state.doorman.check(Request(scope), self.access.get(scope["method"], NOT_THERE))
        except RacewayError as error:
            await refused_by(self._refused, error)(scope, receive, send)
        else:
            await super().handle(scope, receive, send)


def refused_by(refused: Callable[[RacewayError], Response], error: RacewayError) -> Response:
    """Build the response to a refused request, with `WWW-Authenticate` for 401 (RFC 9110, 11.6.1)."""
    response = refused(error)
    if isinstance(error, TooManyFailuresError):
        response.headers["retry-after"] = str(math.ceil(error.wait_s))
    elif isinstance(error, UnauthenticatedError):
        response.headers["www-authenticate"] = "Bearer"
    return response


def checked(routes: Sequence[Any]) -> Sequence[Route]:
    """Return the routes. Raises TypeError for one that is declared without access."""
    for route in routes:
        if not isinstance(route, Route):
            raise TypeError(f"route {getattr(route, 'path', route)} has no access: see web/routing.py")
    return routes
