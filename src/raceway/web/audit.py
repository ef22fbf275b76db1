"""Entries about changes that were made over the console port, written to `raceway.audit` through the door.

Every declared route that changes something is recorded, in one place, after its handler has succeeded: no handler can
forget it. Publishing and asking are traffic, and checks of definitions change nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.door import Door
from raceway.errors import RacewayError
from raceway.model.envelope import encode_json
from raceway.model.intents.administration import RecordChange
from raceway.web.answers import address_of
from raceway.web.inputs import maybe_body
from raceway.web.peer import ask

# Fields that are never written down, wherever they stand in a body.
SECRETS = frozenset({"token", "password", "secret"})
HIDDEN = "***"
# Larger bodies, such as edited payloads, are in the journal where they went; here their size is enough.
DETAIL_BYTES = 16 * 1024


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
        await ask(door, request, RecordChange(facts, _detail(maybe_body(request))))


def _detail(body: dict[str, Any] | None) -> bytes:
    if body is None:
        return b"{}"
    detail = encode_json(_without_secrets(body))
    return detail if len(detail) <= DETAIL_BYTES else encode_json({"bytes": len(detail)})


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN if name.lower() in SECRETS and each else _without_secrets(each) for name, each in value.items()
        }
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value
