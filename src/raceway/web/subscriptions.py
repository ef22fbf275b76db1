"""Subscriptions by name: cursors, lag, who consumes, what became of messages."""

from __future__ import annotations

from heapq import nsmallest

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.web.answers import number_of, refusing
from raceway.web.routing import LOOKUP, Route

PAGE = 1000


def subscription_routes(broker: Broker) -> list[Route]:
    async def named(request: Request) -> Response:
        """A page at a time; `after` is the topic and the name of the last one before, parted by a colon."""
        limit = max(min(number_of("limit", request.query_params.get("limit", str(PAGE))), PAGE), 1)
        topic, _, name = request.query_params.get("after", "").partition(":")
        found = {(each.topic.name, each.name): each for each in broker.subscriptions}
        keys = nsmallest(limit, (key for key in found if key > (topic, name)))
        rows = [msgspec.to_builtins(found[key].status()) for key in keys]
        return JSONResponse({"subscriptions": rows, "after": ":".join(keys[-1]) if len(keys) == limit else None})

    return [Route("/api/subscriptions/named", refusing(named), LOOKUP)]
