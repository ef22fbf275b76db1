"""Delivery of responses to the addresses that callers name (`rtn.urn`).

Callers choose these addresses, so only those on the allow-list are used, and never the bus itself. A response that is
not accepted is sent again a few times if that may help (no connection, or a 5xx), and is parked then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

import structlog
from msgspec.structs import replace

from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.errors import MalformedError
from raceway.model.envelope import RESPONSE, SENECA, Batch
from raceway.model.intents.batches import Park
from raceway.net.ids import random_id
from raceway.net.outgoing.allowed import AllowList, Target
from raceway.net.outgoing.courier import Courier, Parcel, Tried
from raceway.wires.seneca.codec.answer import JSON_LINE
from raceway.wires.seneca.codec.outgoing import HttpRequest
from raceway.wires.seneca.dial.address import parse_address
from raceway.wires.seneca.dial.service import HttpLink, maybe_not_taken
from raceway.wires.seneca.settings import SenecaDial

log = structlog.get_logger("raceway.dial")

# Connections per return path. There are many paths, each rarely used.
CONNECTIONS = 4
# Return paths whose connections are kept; the oldest are closed beyond that, since callers choose the addresses.
KEPT_LINKS = 256


class SenecaPeer(Peer):
    """A peer that receives nothing: a connection, whose requests and publishes are those of its calls; or the bus
    itself, as the sender of late answers and the keeper of services."""

    wire: ClassVar[bytes] = SENECA


class Returns:
    """Delivery to return paths. `is_own` tells whether an address is the bus itself."""

    def __init__(
        self,
        door: Door,
        settings: SenecaDial,
        loop: asyncio.AbstractEventLoop,
        allowed: AllowList,
        is_own: Callable[[Target], bool],
    ) -> None:
        self._door, self._loop = door, loop
        self._settings = replace(settings, connections=CONNECTIONS, answer_limit=settings.return_limit)
        self._peer = SenecaPeer(random_id().decode(), door.runtime.clock_us())
        self._allowed, self._is_own = allowed, is_own
        self._links: dict[str, HttpLink] = {}
        limits = (settings.observer_messages, settings.observer_bytes)
        self._courier = Courier(loop, settings.retries_ms, limits, self._hand, self._park)
        self._sent = 0

    def allows(self, urn: str) -> bool:
        """Report whether a return path may be used."""
        return self._maybe_refusal(urn) is None

    def note_refusal(self, urn: str) -> None:
        """Count and log a return path that may not be used."""
        self._door.runtime.counts["bus.return_refused"] += 1
        log.warning("return path refused", urn=urn, reason=self._maybe_refusal(urn))

    def _maybe_refusal(self, urn: str) -> str | None:
        """The reason a return path may not be used."""
        try:
            address = parse_address(urn)
        except MalformedError as error:
            return str(error)
        if not address.is_http:
            return "not an http or https address"
        if self._is_own(address.target):
            return "the address is the bus itself"
        if not self._allowed.allows(address.target):
            return "the address is not in dial.allow"
        return None

    def send(self, urn: str, document: bytes, call_id: str) -> None:
        """Queue a response for delivery; check with `allows` first. Each has its own lane: none waits for another."""
        mid, _, cid = call_id.partition("/")
        row = Batch(
            1, wire=SENECA, kind=RESPONSE, payload=[document], message_id=[mid.encode()],
            correlation_id=[cid.encode()], reply_to=[urn.encode()],
        )  # fmt: skip
        self._sent += 1
        self._courier.take(str(self._sent), Parcel(row, 0, urn.encode()))

    def _hand(self, parcel: Parcel, tried: Tried) -> None:
        """POST the response once."""
        urn = parcel.data.decode()
        link = self._links.get(urn)
        if link is None:
            link = HttpLink(parse_address(urn), self._settings, self._loop, self._door.runtime.turn)
            self._links[urn] = link
            if len(self._links) > KEPT_LINKS:
                self._links.pop(next(iter(self._links))).close()
        request = HttpRequest(JSON_LINE, parcel.batch.item("payload", parcel.row))
        link.post(request, self._settings.return_ms / 1000, lambda response: tried(maybe_not_taken(response)))

    def _park(self, parcel: Parcel, reason: str) -> None:
        """Log and park a response that was not accepted."""
        log.warning("return path delivery failed", urn=parcel.data.decode(), reason=reason)
        self._door.perform(self._peer, Park(parcel.batch, parcel.row, parcel.data.decode(), reason))

    async def drain(self, limit_s: float) -> None:
        """Wait until every response is delivered or parked, at most `limit_s` seconds."""
        await self._courier.drain(limit_s)

    def close(self) -> None:
        """Park what has not been delivered, and close all connections."""
        self._courier.give_up("the bus stops")
        for link in self._links.values():
            link.close()
