"""The console port's application."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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
from raceway.web.rejected import RejectedMessages
from raceway.web.replay import replay_routes
from raceway.web.schemas import schema_routes
from raceway.web.seneca import ServiceTable, seneca_routes
from raceway.web.session import session_routes
from raceway.web.subscriptions import subscription_routes
from raceway.web.topics import topic_routes
from raceway.web.traces import Traces

USUAL = config.Listen()
WORDS = {
    404: ("not_found", "there is nothing at this address"),
    405: ("method", "this address does not take that method"),
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
    """`hosts` are names, beside loopback, under which this port may be reached; `admin_token` guards what waits in
    queues and what services are attached. Whoever stops the port gives `streams`, to end them.
    `doors` are the ports of all doors, for those who ask where to go. `data` is the folder of the journal, and of the
    pipeline beside it.

    Somebody calls `app.state.live.sample` every `listen.http.live_ms`, and `close` of `live` and `desk` in the end.
    """
    streams = streams or EventStreams(broker, listen.http)
    live, desk = Live(broker), Desk(broker.journal, data)

    async def healthz(request: Request) -> Response:
        """The process lives and its loop turns."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def readyz(request: Request) -> Response:
        """May traffic be sent here? Not while the journal refuses writes or the bus is stopping."""
        health = broker.journal.health()
        status = "draining" if broker.draining else health.status
        body = {"status": status, "reason": health.reason}
        return JSONResponse(body, status_code=200 if status == "ok" else 503)

    async def metrics(request: Request) -> Response:
        return Response(exposition(broker, services), media_type="text/plain; version=0.0.4; charset=utf-8")

    # With security on the doorman has looked at who asks, and the administrator's token is one of many.
    asked_again = "" if broker.security.enabled else admin_token
    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        *console_routes(desk.warm),
        *session_routes(broker, admin_token),
        *live_routes(live, broker.security),
        *message_routes(broker, asked_again, desk),  # before those of topics, whose names may have slashes
        *topic_routes(broker, live),
        *peer_routes(broker),
        *graph_routes(broker, data, desk),
        *pipeline_routes(data, broker.journal, asked_again, desk),
        *health_routes(broker, data, desk),
        *subscription_routes(broker, asked_again),
        *replay_routes(broker, asked_again),
        *policy_routes(broker, asked_again),
        *queue_routes(broker, asked_again),
        *(seneca_routes(services, asked_again) if services is not None else ()),
        *schema_routes(broker, asked_again),
        *registry_routes(broker, asked_again),
        *TopicReading(broker, listen.http, streams).routes(),
        *HttpDoor(broker, listen).routes(),
        *Traces(broker, listen.http, desk).routes(),
        *RejectedMessages(broker, asked_again).routes(),
        *AsyncApi(broker, doors or {}).routes(),
    ]
    routes.append(document_route(routes))
    doorman = Middleware(Doorman, security=broker.security, admin_token=admin_token)
    app = Starlette(routes=routes, middleware=[Middleware(Caution), Middleware(Guard, hosts=hosts), doorman])
    app.router.redirect_slashes = False  # an address that is not there is not there
    app.state.live, app.state.desk = live, desk
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """What no handler was asked: an address or a method that is not there."""
    assert isinstance(error, HTTPException)
    code, sentence = WORDS.get(error.status_code, ("invalid", str(error.detail)))
    answer = refusal(error.status_code, code, sentence)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of ours; the log has it."""
    return refusal(500, "internal", "the bus failed to answer this; its log says why")
