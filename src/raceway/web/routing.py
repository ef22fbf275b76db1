"""Routes of the console port. Each method of each of them says who may use it; one that does not cannot be built.

    Route("/api/policies/topics/{name:path}", handler, {"GET": LOOKUP, "PUT": MANAGE_BROKER})

The doorman of the application (`app.state.doorman`) decides on the route that was matched, never on the text of an
address: names of topics and subjects are part of addresses, and peers choose them.
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
    """Who may use one method of an address.

    `everybody` is not asked for a token, and `known` is anybody whose token, if any, is good. Otherwise one of
    `permissions` is needed, on the whole `cluster`, or somewhere (`topic`): then the handler asks again about the topic
    at hand. `is_private`: where the bus has an administrator's token and no other security, that one is needed.
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
# An address or a method that is not there: strangers do not learn which are.
NOT_THERE = LOOKUP


class Route(routing.Route):
    """An address with the access to each of its methods; one access alone is that of GET. HEAD is as GET.

    `refused` makes the answer to those who may not use it.
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
                raise TypeError(f"route {method} {path} does not say who may use it: give it an Access")
        if not by_method:
            raise TypeError(f"route {path} has no method: give it an Access for each")
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
    """The answer to those who may not pass. RFC 9110, 11.6.1: a 401 says how to authenticate."""
    response = refused(error)
    if isinstance(error, TooManyFailuresError):
        response.headers["retry-after"] = str(math.ceil(error.wait_s))
    elif isinstance(error, UnauthenticatedError):
        response.headers["www-authenticate"] = "Bearer"
    return response


def checked(routes: Sequence[Any]) -> Sequence[Route]:
    """The routes. Raises TypeError for one that is declared without access."""
    for route in routes:
        if not isinstance(route, Route):
            raise TypeError(f"route {getattr(route, 'path', route)} does not say who may use it: see web/routing.py")
    return routes
