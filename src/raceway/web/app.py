"""The console port's application."""

from __future__ import annotations

from heapq import nsmallest

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from raceway import __version__
from raceway.broker.broker import Broker
from raceway.broker.routing import patterns
from raceway.web.answers import refusal
from raceway.web.doorman import Doorman
from raceway.web.guard import Guard
from raceway.web.metrics import exposition
from raceway.web.policies import policy_routes
from raceway.web.queues import queue_routes
from raceway.web.registry import registry_routes
from raceway.web.schemas import schema_routes
from raceway.web.seneca import ServiceTable, seneca_routes
from raceway.web.subscriptions import subscription_routes

# Topics on a page: what a browser and the loop both take in their stride.
PAGE = 1000


def build_app(
    broker: Broker, hosts: tuple[str, ...], admin_token: str = "", services: ServiceTable | None = None
) -> Starlette:
    """`hosts` are names, beside loopback, under which this port may be reached; `admin_token` guards what waits in
    queues and what services are attached."""

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

    async def topics(request: Request) -> Response:
        """Topics with their offsets, a page at a time; `after` is the last topic of the page before."""
        try:
            limit = min(int(request.query_params.get("limit", PAGE)), PAGE)
        except ValueError:
            return refusal(400, "invalid", "limit must be a number")
        after = request.query_params.get("after", "")
        names = nsmallest(max(limit, 1), (topic.name for topic in broker.topics if topic.name > after))
        rows = [
            dict(zip(("topic", "first", "next"), (name, *broker.journal.offsets(name)), strict=True)) for name in names
        ]
        return JSONResponse({"topics": rows, "after": names[-1] if len(names) == max(limit, 1) else None})

    async def subscriptions(request: Request) -> Response:
        rows = [
            {"kind": row.kind, "pattern": row.pattern,
             "subscribers": [{"peer": s.peer, "priority": s.priority} for s in row.subscribers]}
            for row in patterns(broker.peers)
        ]  # fmt: skip
        return JSONResponse({"subscriptions": rows})

    async def peers(request: Request) -> Response:
        rows = [
            {"id": row.id, "wire": row.wire, "name": row.name, "description": row.description,
             "connected_us": row.connected_us, "heard_us": row.heard_us}
            for row in (peer.row() for peer in broker.peers)
        ]  # fmt: skip
        return JSONResponse({"peers": rows})

    # With security on the doorman has looked at who asks, and the administrator's token is one of many.
    asked_again = "" if broker.security.enabled else admin_token
    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/api/topics", topics),
        Route("/api/subscriptions", subscriptions),
        Route("/api/peers", peers),
        *subscription_routes(broker),
        *policy_routes(broker, admin_token),
        *queue_routes(broker, admin_token),
        *(seneca_routes(services, admin_token) if services is not None else ()),
        *schema_routes(broker, asked_again),
        *registry_routes(broker, asked_again),
    ]
    doorman = Middleware(Doorman, security=broker.security, admin_token=admin_token)
    app = Starlette(routes=routes, middleware=[Middleware(Guard, hosts=hosts), doorman])
    app.add_exception_handler(404, _not_found)
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    return refusal(404, "not_found", "there is nothing at this address")
