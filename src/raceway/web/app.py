"""The console port's application."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway import __version__, config
from raceway.broker.broker import Broker
from raceway.web.answers import refusal
from raceway.web.asking import Desk
from raceway.web.asyncapi import AsyncApi
from raceway.web.console import Caution, console_routes
from raceway.web.doorman import Doorman
from raceway.web.event_streams import EventStreams
from raceway.web.graph import graph_routes
from raceway.web.guard import Guard
from raceway.web.health import health_routes
from raceway.web.live import Live, live_routes
from raceway.web.messages import message_routes
from raceway.web.metrics import exposition
from raceway.web.openapi import document_route
from raceway.web.peers import peer_routes
from raceway.web.pipeline import pipeline_routes
from raceway.web.policies import policy_routes
from raceway.web.publishing import HttpDoor
from raceway.web.queues import queue_routes
from raceway.web.reading import TopicReading
from raceway.web.registry import registry_routes
from raceway.web.registry_form import RegistryForm, is_address, refused_elsewhere
from raceway.web.rejected import RejectedMessages
from raceway.web.replay import replay_routes
from raceway.web.routing import OPEN, Route, checked
from raceway.web.schemas import schema_routes
from raceway.web.seneca import ServiceTable, seneca_routes
from raceway.web.session import session_routes
from raceway.web.subscription_policies import subscription_policy_routes
from raceway.web.subscriptions import subscription_routes
from raceway.web.topics import topic_routes
from raceway.web.traces import Traces

USUAL = config.Listen()
WORDS = {
    404: ("not_found", "not found"),
    405: ("method", "method not allowed"),
}


def build_app(
    broker: Broker,
    hosts: tuple[str, ...],
    admin_token: str = "",
    services: ServiceTable | None = None,
    listen: config.Listen = USUAL,
    streams: EventStreams | None = None,
    doors: Mapping[str, int] | None = None,
    data: Path | None = None,
) -> Starlette:
    """Build the application.

    `hosts` are names, besides loopback, under which this port may be reached. Without security, `admin_token` guards
    what is private. `streams` lets the caller end event streams on shutdown. `doors` are all listening ports, for the
    AsyncAPI document. `data` is the folder of the journal and of the pipeline.

    The caller must call `app.state.live.sample` every `listen.http.live_ms`, and finally `close` of `live` and `desk`.
    """
    streams = streams or EventStreams(broker, listen.http)
    live, desk = Live(broker), Desk(broker.journal, data)

    async def healthz(request: Request) -> Response:
        """Report that the process and its event loop are alive."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(request: Request) -> Response:
        """Report whether traffic may be sent here: not while the journal refuses writes or the bus is stopping.
        Warnings (lost rows, a disk that is nearly full) do not change the status."""
        health = broker.journal.health()
        status = "draining" if broker.draining else health.status
        body = {"status": status, "reason": health.reason, "warnings": health.warnings}
        return JSONResponse(body, status_code=200 if status == "ok" else 503)

    async def metrics(request: Request) -> Response:
        return Response(exposition(broker, services), media_type="text/plain; version=0.0.4; charset=utf-8")

    doorman = Doorman(broker.security, admin_token)
    routes = [
        Route("/healthz", healthz, OPEN),
        Route("/readyz", readyz, OPEN),
        Route("/metrics", metrics, OPEN),
        *console_routes(desk.warm),
        *session_routes(broker, admin_token),
        *live_routes(live, broker.security),
        *message_routes(broker, desk, doorman),  # before topics, whose names may contain slashes
        *topic_routes(broker, live),
        *peer_routes(broker),
        *graph_routes(broker, data, desk),
        *pipeline_routes(data, broker.journal, desk),
        *health_routes(broker, data, desk),
        *subscription_routes(broker),
        *subscription_policy_routes(broker),
        *replay_routes(broker, doorman),
        *policy_routes(broker),
        *queue_routes(broker, doorman),
        *(seneca_routes(services) if services is not None else ()),
        *schema_routes(broker),
        *registry_routes(broker),
        *TopicReading(broker, listen.http, streams).routes(),
        *HttpDoor(broker, listen).routes(),
        *Traces(broker, listen.http, desk).routes(),
        *RejectedMessages(broker).routes(),
        *AsyncApi(broker, doors or {}).routes(),
    ]
    routes.append(document_route(routes))
    middleware = [Middleware(Caution), Middleware(RegistryForm), Middleware(Guard, hosts=hosts)]
    app = Starlette(routes=checked(routes), middleware=middleware)
    app.router.default = doorman.not_found
    app.router.redirect_slashes = False  # an unknown path is 404, not a redirect
    app.state.live, app.state.desk, app.state.doorman = live, desk, doorman
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a request that no handler matched: unknown path or method."""
    assert isinstance(error, HTTPException)
    code, sentence = WORDS.get(error.status_code, ("invalid", str(error.detail)))
    answer = refusal(error.status_code, code, sentence)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    """Answer an unexpected exception, which is logged."""
    answer = refusal(500, "internal", "internal error; see the log of the bus")
    return refused_elsewhere(500, bytes(answer.body)) if is_address(request.url.path) else answer
