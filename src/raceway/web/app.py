"""The console port's application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from raceway import config
from raceway.broker.door import Door
from raceway.model.clusters import ClusterStatus
from raceway.web.administration import AdministrationRoutes
from raceway.web.asking import QueryPool
from raceway.web.asyncapi import AsyncApiRoutes
from raceway.web.cluster import ClusterRoutes
from raceway.web.console import Caution, ConsoleRoutes
from raceway.web.doorman import Doorman
from raceway.web.doors import DoorRoutes
from raceway.web.event_streams import EventStreams
from raceway.web.graph import GraphRoutes
from raceway.web.guard import Guard
from raceway.web.health import HealthRoutes, LiveRoutes
from raceway.web.history import HistoryRoutes, Recorder
from raceway.web.live import Live
from raceway.web.messages import MessageRoutes
from raceway.web.openapi import DocumentRoutes
from raceway.web.packing import Packing
from raceway.web.pipeline import PipelineRoutes
from raceway.web.policies import PolicyRoutes
from raceway.web.publishing import PublishRoutes
from raceway.web.queues import QueueRoutes
from raceway.web.reading import TopicReadRoutes
from raceway.web.registry import RegistryRoutes
from raceway.web.registry_form import refused_at
from raceway.web.rejected import RejectedRoutes
from raceway.web.routing import Routes, Site, WebRoute, checked, routes_of
from raceway.web.schemas import SchemaRoutes
from raceway.web.session import SessionRoutes
from raceway.web.sql import SqlRoutes
from raceway.web.subscriptions import SubscriptionRoutes
from raceway.web.topics import TopicRoutes

USUAL = config.Config()
WORDS = {
    404: ("not_found", "not found"),
    405: ("method", "method not allowed"),
}


def build_app(
    door: Door,
    hosts: tuple[str, ...],
    admin_token: str = "",
    more: Sequence[Routes] = (),
    listen: config.Listen = USUAL.listen,
    doors: Mapping[str, int] | None = None,
    data: Path | None = None,
    history: config.HistorySettings = USUAL.history,
    sql: config.SqlSettings = USUAL.sql,
    storage: config.StorageSettings | None = None,
    cluster: Callable[[], ClusterStatus] | None = None,
) -> Starlette:
    """Build the application.

    `hosts` are names, besides loopback, under which this port may be reached. Without security, `admin_token` guards
    what is private. `more` are the routes of wires. `doors` are all listening ports, for the
    AsyncAPI document. `data` is the folder of the journal and of the pipeline, `storage` leads to the journal's
    archive; `cluster` asks for the status of the cluster that the bus belongs to.

    The caller must call `app.state.live.sample` every `listen.http.live_ms`, `app.state.recorder.record` every
    `history.interval_s`, and finally `close` of `streams`, `live`, `recorder` and `desk`.
    """
    streams, live = EventStreams(door, listen.http), Live(door, listen.http.live_ms)
    desk = QueryPool(door.view, data, storage)
    recorder = Recorder(door, history, data)
    routes: list[WebRoute] = []
    site = Site(
        door, desk, live, recorder.store, streams, listen, sql, admin_token, data, doors or {}, more, routes, cluster
    )  # fmt: skip
    doorman = Doorman(site)
    # Messages come before topics, whose names may contain slashes.
    first = (
        HealthRoutes, ConsoleRoutes, SessionRoutes, DoorRoutes, LiveRoutes, HistoryRoutes, MessageRoutes, TopicRoutes,
        GraphRoutes, ClusterRoutes, PipelineRoutes, SqlRoutes, SubscriptionRoutes, PolicyRoutes, QueueRoutes,
        AdministrationRoutes,
    )  # fmt: skip
    then = (
        SchemaRoutes, RegistryRoutes, TopicReadRoutes, PublishRoutes, RejectedRoutes, AsyncApiRoutes, DocumentRoutes
    )  # fmt: skip
    groups = [*(kind(site) for kind in first), *more, *(kind(site) for kind in then)]
    routes += routes_of(groups)
    middleware = [Middleware(Caution), Middleware(Packing), Middleware(Guard, hosts=hosts)]
    app = Starlette(routes=checked(routes), middleware=middleware)
    app.router.default = doorman.not_found
    app.router.redirect_slashes = False  # an unknown path is 404, not a redirect
    app.state.streams, app.state.live, app.state.desk, app.state.doorman = streams, live, desk, doorman
    app.state.door, app.state.recorder = door, recorder
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a request that no handler matched: unknown path or method."""
    assert isinstance(error, HTTPException)
    code, sentence = WORDS.get(error.status_code, ("invalid", str(error.detail)))
    answer = refused_at(request.scope["path"], error.status_code, code, sentence)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    """Answer an unexpected exception, which is logged."""
    return refused_at(request.scope["path"], 500, "internal", "internal error; see the log of the bus")
