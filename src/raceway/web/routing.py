"""Routes of the console port. Each is declared once, on the method that handles it:

    class PeerRoutes(SiteRoutes):
        @get("/api/peers", LOOKUP, "bus")
        async def peers(self, query: PeerQuery) -> PeerPage:
            \"\"\"Connected peers.\"\"\"

The access check, the OpenAPI document and the manual's page derive from it: the query's type and the answer's are those
of the signature, the summary is the docstring. A handler takes any of `request`, `query` and the parts of its path, and
returns a record, which is encoded as JSON; `Answered` adds a status or headers to it. What is not JSON is a Response.

The doorman of the application (`app.state.doorman`) decides by the matched route, never by the text of a path: names of
topics and subjects are part of paths, and peers choose them.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from prometheus_client.core import Metric
from starlette import routing
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raceway import config
from raceway.broker.door import Door
from raceway.errors import RacewayError, TooManyFailuresError, UnauthenticatedError
from raceway.model.clusters import ClusterStatus
from raceway.model.envelope import encode_json
from raceway.model.intents.kinds import IntentFor
from raceway.model.security import PERMISSIONS, Permission
from raceway.web.answers import ASKING, refusal_of, token_of
from raceway.web.asking import QueryPool
from raceway.web.audit import record
from raceway.web.event_streams import EventStreams
from raceway.web.inputs import read_query
from raceway.web.live import Live
from raceway.web.moments import MomentStore
from raceway.web.peer import ask

R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

# Status for an asker that has disconnected, which nobody receives; as nginx logs it.
GONE = 499
JSON, TEXT, EVENTS, BYTES = "application/json", "text/plain", "text/event-stream", "application/octet-stream"


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
        if self.permissions in ((), PERMISSIONS):
            return "any permission" if self.permissions else self.scope
        return f"{' or '.join(self.permissions)} on {'the cluster' if self.scope == 'cluster' else 'the topic'}"


OPEN = Access("everybody", is_private=False)
KNOWN = Access("known", is_private=False)
# Whoever has any permission on this bus.
ANY = Access("topic", PERMISSIONS, is_private=False)
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


# ---- declarations ----------------------------------------------------------------------------------------------------


class Answered(msgspec.Struct, Generic[T], frozen=True):
    """A record to encode as JSON, with the status and headers of the response."""

    record: T
    status: int = 200
    headers: Mapping[str, str] = {}


class Operation(NamedTuple):
    """A declared method of a path. Those without a `tag` are not in the OpenAPI document. `answer` is None if it is not
    JSON; `body` is None if `takes` names the media type of the body."""

    method: str
    path: str
    access: Access
    tag: str
    summary: str
    parameters: tuple[str, ...]
    query: type[msgspec.Struct] | None
    answer: Any
    body: type[msgspec.Struct] | None = None
    takes: str = ""
    media_type: str = JSON
    statuses: tuple[int, ...] = (200,)

    @property
    def is_change(self) -> bool:
        """Whether the route changes the bus: it neither reads nor checks, nor sends messages. Changes are recorded."""
        return self.method != "GET" and self.access not in (READ_SCHEMAS, PRODUCE)

    @property
    def action(self) -> str:
        """The first sentence of the summary, or the path if there is none."""
        return self.summary.partition(". ")[0].removesuffix(".") or self.path

    def arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments of the handler. Raises MalformedError."""
        given = {"request": request, **request.path_params}
        if self.query is not None:
            given["query"] = read_query(request, self.query)
        return {name: given[name] for name in self.parameters}


def _declare(method: str, path: str, access: Access, tag: str = "", **more: Any) -> Callable[[H], H]:
    """Declare that the decorated method handles a route; `more` are fields of `Operation`. Raises TypeError."""
    if not isinstance(access, Access):
        raise TypeError(f"route {method} {path} has no access: pass an Access")

    def declared(handler: H) -> H:
        hints = get_type_hints(handler)
        answer, query = _record_of(hints.pop("return")), hints.get("query")
        unknown = hints.keys() - {"request", "query", *re.findall(r"{(\w+)", path)}
        if unknown:
            raise TypeError(f"handler of {method} {path} takes {', '.join(unknown)}, which is not in the path")
        summary = " ".join((inspect.getdoc(handler) or "").split())
        operation = Operation(method, path, access, tag, summary, tuple(hints), query, answer, **more)
        handler.__dict__["operations"] = (operation, *handler.__dict__.get("operations", ()))
        return handler

    return declared


get = partial(_declare, "GET")
post = partial(_declare, "POST")
put = partial(_declare, "PUT")
delete = partial(_declare, "DELETE")


def _record_of(returned: Any) -> Any:
    """Return the record of a handler's return type, None if it is not JSON."""
    if get_origin(returned) in (Union, UnionType):
        returned = get_args(returned)[0]
    if get_origin(returned) is Answered:
        return get_args(returned)[0]
    return None if returned is Response else returned


# ---- answers ---------------------------------------------------------------------------------------------------------


class ResponseForm(NamedTuple):
    """ResponseForm of responses: of what a handler returns, and of the errors that it may raise."""

    answer: Callable[[Any], Response]
    refused: Callable[[Any], Response]
    errors: tuple[type[Exception], ...] = (RacewayError,)


def answer(found: Any) -> Response:
    """Encode what a handler returns."""
    if isinstance(found, Response):
        return found
    if isinstance(found, Answered):
        return Response(encode_json(found.record), found.status, found.headers, JSON)
    return Response(encode_json(found), media_type=JSON)


CONSOLE = ResponseForm(answer, refusal_of)


def refused_by(refused: Callable[[Any], Response], error: RacewayError) -> Response:
    """Build the response to a refused request, with `WWW-Authenticate` for 401 (RFC 9110, 11.6.1)."""
    response = refused(error)
    if isinstance(error, TooManyFailuresError):
        response.headers["retry-after"] = str(math.ceil(error.wait_s))
    elif isinstance(error, UnauthenticatedError):
        response.headers["www-authenticate"] = "Bearer"
    return response


# ---- routes ----------------------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """An operation with the handler of an application."""

    operation: Operation
    handler: Callable[..., Awaitable[Any]]
    form: ResponseForm


class ServiceBehind(msgspec.Struct, frozen=True):
    """A service to which a wire connects: what it answers (`serves`), where it is, whether it is `up`, `down` or
    `unknown` and why, and how it is spoken to."""

    wire: str
    serves: str
    topic: str
    url: str
    state: str
    reason: str
    dialect: str
    calls: int
    failures: int


class Routes:
    """A group of handlers, whose routes are declared on its methods."""

    form: ClassVar[ResponseForm] = CONSOLE

    def collect(self) -> Iterable[Metric]:
        """Return metrics of what these routes are about, for `/metrics`."""
        return ()

    def attached(self) -> Iterable[ServiceBehind]:
        """Return the services behind the bus that these routes are about."""
        return ()

    def bound(self) -> Iterator[Bound]:
        for name, member in vars(type(self)).items():
            for operation in getattr(member, "operations", ()):
                yield Bound(operation, getattr(self, name), self.form)


class Site(NamedTuple):
    """Parts of the application that groups of routes share. `admin_token` is empty if the bus has none. `more` are the
    groups of wires, `routes` those of all groups, `ports` all listening ports by name; `data` is the folder of the
    journal and of the pipeline. `cluster` asks Kafka for the status of the cluster; None if the bus is in none."""

    door: Door
    desk: QueryPool
    live: Live
    history: MomentStore
    streams: EventStreams
    listen: config.Listen
    sql: config.SqlSettings
    admin_token: str
    data: Path | None
    ports: Mapping[str, int]
    more: Sequence[Routes]
    routes: Sequence[WebRoute]
    cluster: Callable[[], ClusterStatus] | None = None

    @property
    def is_asking(self) -> bool:
        """Whether private routes are protected; then a queue's own token is not needed in addition."""
        return self.door.view.permissions.enabled or bool(self.admin_token)

    def maybe_queue_token(self, request: Request) -> str | None:
        """Return the token that a queue's own is compared with; None if private routes are protected anyway."""
        return None if self.is_asking else token_of(request)


class SiteRoutes(Routes):
    """A group of the port's own routes."""

    def __init__(self, site: Site) -> None:
        self._site, self._door, self._view = site, site.door, site.door.view

    async def _ask(self, request: Request, intent: IntentFor[R]) -> R:
        """Perform an intent for the caller of a request, and wait for its outcome. Raises the error of a refusal."""
        return await ask(self._door, request, intent)


class WebRoute(routing.Route):
    """A path with the handlers of its methods. HEAD is like GET."""

    def __init__(self, path: str, bound: Sequence[Bound]) -> None:
        self.operations = {each.operation.method: each.operation for each in bound}
        if len(self.operations) < len(bound):
            raise TypeError(f"a method of {path} is declared twice")
        super().__init__(path, self._answer, methods=list(self.operations))
        self._bound = {each.operation.method: each for each in bound}
        if "GET" in self._bound:
            self._bound["HEAD"] = self._bound["GET"]
        self.access = {method: each.operation.access for method, each in self._bound.items()}
        self._form = bound[0].form

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await scope["app"].state.doorman.check(Request(scope), self.access.get(scope["method"], NOT_THERE))
        except RacewayError as error:
            await refused_by(self._form.refused, error)(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        operation, handler, form = self._bound[request.method]
        try:
            found = handler(**operation.arguments(request))
            response = form.answer(await (_asked(request, found) if operation.method == "GET" else found))
            if operation.is_change:
                await record(request.app.state.door, request, operation.action, response)
        except form.errors as error:
            return form.refused(error)
        return response


async def _asked(request: Request, answering: Awaitable[Any]) -> Any:
    """Wait for what a handler finds out, unless its asker disconnects: then cancel it."""
    asking: set[asyncio.Task[Any]] = request.scope.get(ASKING, set())
    task = asyncio.current_task()
    assert task is not None
    asking.add(task)
    try:
        return await answering
    except asyncio.CancelledError:
        if task in asking:  # not cancelled by the connection: the bus stops
            raise
        task.uncancel()
        return Response(status_code=GONE)
    finally:
        asking.discard(task)


def routes_of(groups: Iterable[Routes]) -> list[WebRoute]:
    """Return the routes that groups declare, in the order in which their paths are matched."""
    by_path: dict[str, list[Bound]] = {}
    for group in groups:
        for bound in group.bound():
            by_path.setdefault(bound.operation.path, []).append(bound)
    return [WebRoute(path, bound) for path, bound in by_path.items()]


def checked(routes: Sequence[Any]) -> Sequence[WebRoute]:
    """Return the routes. Raises TypeError for one that is declared without access."""
    for route in routes:
        if not isinstance(route, WebRoute):
            raise TypeError(f"route {getattr(route, 'path', route)} has no access: see web/routing.py")
    return routes
