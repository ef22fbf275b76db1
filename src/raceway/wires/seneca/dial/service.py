"""The link to one Seneca service: its transport, its dialect, and whether it is up.

An unknown dialect is found out by a probe that every listener answers, if only with an error. A service that cannot be
connected to counts as down: it is skipped, and probed again after a pause that doubles each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from raceway.errors import MalformedError, RacewayError, UnreachableError
from raceway.model.document import raw_members
from raceway.net.codec.http_stream import HttpReply
from raceway.net.outgoing.courier import NotTaken, Tried
from raceway.net.outgoing.http_pool import HttpPool, PoolLimits
from raceway.net.turn import Turn
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.codec.outgoing import HttpRequest, ListenerReply, Outgoing, call_http, read_http_answer
from raceway.wires.seneca.dial.address import ServiceAddress
from raceway.wires.seneca.dial.line_link import LineLink, OnListenerReply
from raceway.wires.seneca.settings import SenecaDial

log = structlog.get_logger("raceway.dial")

LinkState = Literal["up", "down", "unknown"]
# Shortest interval between two log events about failed calls of one service.
LOG_S = 1.0

# Every npm `seneca` instance answers this action; one that does not expose it responds with an error, in its dialect.
PROBE = Outgoing("probe", "probe", "raceway", raw_members({"role": "seneca", "cmd": "ping"}))


class HttpLink(HttpPool):
    """Calls to one address over HTTP."""

    def __init__(
        self, address: ServiceAddress, settings: SenecaDial, loop: asyncio.AbstractEventLoop, turn: Turn
    ) -> None:
        limits = PoolLimits(
            connections=settings.connections,
            waiting=settings.waiting,
            waiting_bytes=settings.waiting_bytes,
            answer_bytes=settings.answer_limit,
            connect_s=settings.connect_ms / 1000,
            idle_s=settings.idle_ms / 1000,
        )
        self._address = address
        super().__init__(address.target, loop, turn, limits, address.maybe_tls())

    def call(self, dialect: Dialect, outgoing: Outgoing, timeout_s: float, answered: OnListenerReply) -> None:
        """Send a request; `answered` gets the reply."""
        request = call_http(dialect, outgoing)
        self.post(request, timeout_s, lambda response: answered(read_response(dialect, response)))

    def tell(self, dialect: Dialect, outgoing: Outgoing, timeout_s: float, tried: Tried) -> None:
        """Send a message without a reply; any 2xx accepts it."""
        self.post(call_http(dialect, outgoing), timeout_s, lambda response: tried(maybe_not_taken(response)))

    def post(self, request: HttpRequest, timeout_s: float, heard: Callable[[HttpReply | RacewayError], None]) -> None:
        """Send an HTTP request; `heard` gets the response."""
        self.send(request.to_bytes(self._address.host, self._address.path), timeout_s, heard)


def read_response(dialect: Dialect, response: HttpReply | RacewayError) -> ListenerReply | RacewayError:
    """Read an HTTP response as a reply."""
    if isinstance(response, RacewayError):
        return response
    # Following it would connect to an address that is not on the allow-list.
    if 300 <= response.status < 400:
        return MalformedError(f"the service responded with a redirect ({response.status}); redirects are not followed")
    return read_http_answer(dialect, response.status, response.headers, response.body)


def maybe_not_taken(response: HttpReply | RacewayError) -> NotTaken | None:
    """Return why a message was not accepted; None for any 2xx. A 4xx is not tried again: the receiver faults the
    message."""
    if isinstance(response, RacewayError):
        return NotTaken(str(response), reached=not isinstance(response, UnreachableError))
    if 200 <= response.status < 300:
        return None
    return NotTaken(f"answered with status {response.status}", again=response.status >= 500)


class ServiceLine:
    """The link to one service. `state` is `unknown` until the first probe; it can be called when its `dialect` is
    known."""

    def __init__(
        self, address: ServiceAddress, settings: SenecaDial, loop: asyncio.AbstractEventLoop, turn: Turn
    ) -> None:
        self.address, self.dialect = address, address.dialect
        self.state: LinkState = "unknown"
        self.reason = ""
        self.calls = self.failures = 0
        self._logged_s = float("-inf")
        self._settings, self._loop = settings, loop
        kind: type[HttpLink | LineLink] = HttpLink if address.is_http else LineLink
        self._link = kind(address, settings, loop, turn)
        self._pause_ms = settings.retry_ms
        self._retry: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._curious: list[Callable[[], None]] = []

    @property
    def open_connections(self) -> int:
        """Number of established connections."""
        return self._link.open_connections

    def after_look(self, callback: Callable[[], None]) -> None:
        """Call back after the first probe. Only for a service whose state is `unknown`."""
        self._curious.append(callback)

    def call(self, outgoing: Outgoing, timeout_s: float, answered: OnListenerReply) -> None:
        """Send a request. `answered` gets the reply, or the error (UnreachableError if nothing was sent), and passes it
        to `note`."""
        assert self.dialect is not None
        self.calls += 1
        self._link.call(self.dialect, outgoing, timeout_s, answered)

    def note(self, reply: ListenerReply | RacewayError) -> None:
        """Update the state from the result of a call."""
        if isinstance(reply, UnreachableError):
            self._went_down(str(reply))
        elif self.state != "up":
            self._is_up()
        if isinstance(reply, RacewayError):
            self.failures += 1
            # At most once a second: a service may fail thousands of calls at once.
            if self._loop.time() - self._logged_s >= LOG_S:
                self._logged_s = self._loop.time()
                log.warning("service call failed", url=self.address.url, reason=str(reply), failures=self.failures)

    def tell(self, outgoing: Outgoing, timeout_s: float, tried: Tried) -> None:
        """Send a message without a reply."""
        if self.dialect is None:
            self._loop.call_soon(tried, NotTaken(self.reason or "the service has not been reached yet", reached=False))
            return
        self.calls += 1

        def note(failure: NotTaken | None) -> None:
            if failure is not None and not failure.reached:
                self._went_down(failure.reason)
            self.failures += failure is not None
            tried(failure)

        self._link.tell(self.dialect, outgoing, timeout_s, note)

    # ---- is it there? ------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Probe the service: connect, and find out an unknown dialect. Never raises: `state` and `reason` tell the
        result."""
        try:
            async with asyncio.timeout(self._settings.connect_ms / 1000):
                if self.address.dialect is None:
                    self.dialect = await self._ask_dialect()
                else:
                    # The dialect is known, only reachability is not: connect and close again.
                    target = self.address.target
                    transport, _ = await self._loop.create_connection(asyncio.Protocol, target.host, target.port)
                    transport.close()
        except (OSError, UnicodeError, RacewayError) as error:  # UnicodeError: a host name that IDNA cannot encode
            self._went_down(str(error) or "no response in time")
        else:
            self._is_up()
        curious, self._curious = self._curious, []
        for callback in curious:
            callback()

    async def _ask_dialect(self) -> Dialect:
        """Send the probe with headers and `meta$`, and infer the dialect from the response."""
        assert isinstance(self._link, HttpLink)
        heard: asyncio.Future[HttpReply | RacewayError] = self._loop.create_future()

        def hear(response: HttpReply | RacewayError) -> None:
            if not heard.done():
                heard.set_result(response)

        self._link.post(call_http(Dialect.ANY, PROBE), self._settings.connect_ms / 1000, hear)
        response = await heard
        if isinstance(response, RacewayError):
            raise response
        return dialect_of(response)

    def _is_up(self) -> None:
        """Set the state to up and cancel the next probe."""
        if self.state != "up":
            log.info("service is up", url=self.address.url, dialect=self.dialect.value if self.dialect else None)
        self.state, self.reason, self._pause_ms = "up", "", self._settings.retry_ms
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _went_down(self, reason: str) -> None:
        """Set the state to down and schedule the next probe."""
        if self.state != "down":
            log.warning("service is down", url=self.address.url, reason=reason)
        self.state, self.reason = "down", reason
        if self._retry is None:
            self._retry = self._loop.call_later(self._pause_ms / 1000, self._look_again)
            self._pause_ms = min(2 * self._pause_ms, self._settings.retry_max_ms)

    def _look_again(self) -> None:
        """Probe the service again."""
        self._retry = None
        self._looking = self._loop.create_task(self.look())

    def close(self) -> None:
        """Cancel probes and close the connections."""
        if self._retry is not None:
            self._retry.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._link.close()


def dialect_of(response: HttpReply) -> Dialect:
    """Infer the dialect from the response to a probe that had headers and `meta$`. Raises MalformedError if it is not
    JSON."""
    try:
        document = msgspec.json.decode(response.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"not a Seneca listener: its response (status {response.status}) is not JSON") from error
    meta = document.get("meta$") if isinstance(document, dict) else None
    if isinstance(meta, dict):
        # S names `mid` and `rid`, W `id` and `instance`; an L listener responds without `meta$`.
        return Dialect.SEED if "mid" in meta or "rid" in meta else Dialect.WEB
    return Dialect.LEGACY
