"""Entries about changes that were made over the console port, written to `raceway.audit` through the door.

Every declared route that changes something is recorded, in one place, after its handler has succeeded: no handler can
forget it. Publishing and asking are traffic, and checks of definitions change nothing.
"""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.door import Door
from raceway.errors import RacewayError
from raceway.model.intents.administration import RecordChange
from raceway.web.answers import address_of
from raceway.web.inputs import maybe_body
from raceway.web.peer import ask


async def record(door: Door, request: Request, action: str, response: Response) -> None:
    """Record a change, unless it was refused."""
    if response.status_code >= 400:
        return
    facts = {
        "action": action, "method": request.method, "path": request.url.path, "address": address_of(request),
        "status": str(response.status_code),
    }  # fmt: skip
    if request.url.query:
        facts["query"] = request.url.query
    with suppress(RacewayError):  # the change is made, whatever becomes of the entry
        await ask(door, request, RecordChange(facts, maybe_body(request)))
