"""Unary calls of the Danube services: decode the request, call the handler, encode its answer or error.

Answers of calls that change durable state are sent after the commit. While the disk is full such calls are refused
immediately, because clients would wait for ever; only producers and consumers that exist already may reconnect.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError, Message

from raceway import config
from raceway.broker.broker import Broker
from raceway.errors import InvalidValueError, RacewayError, UnauthenticatedError
from raceway.model.addresses import host_port
from raceway.model.envelope import DANUBE
from raceway.model.security import ANONYMOUS, Permission, Principal
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.grpc import Call, Methods
from raceway.wires.danube.codec.status import status_of
from raceway.wires.danube.listen.session import DanubeSession
from raceway.wires.danube.settings import DanubeWire

WIRE = DANUBE.decode()
NOBODY = Principal(ANONYMOUS, WIRE)

# Calls that create nothing if the producer or consumer exists; otherwise the broker itself refuses them on a full disk.
RENEWING = {"CreateProducer", "Subscribe"}
# Method name to the class of its requests and its handler.
Handlers = Mapping[str, tuple[type[Message], Callable[["Caller", Any], Message]]]
# Work that another thread does before a call is handled; None if there is none.
Prepare = Callable[[Principal, Any], "Future[None] | None"]
Preparations = Mapping[str, Prepare]
NOTHING: Preparations = {}
Take = Callable[[DanubeSession, list[Call]], None]


class ShownToken(NamedTuple):
    """The authorization header of a call, and the host it comes from."""

    authorization: str
    host: str


class Caller(NamedTuple):
    """The principal of a call and its connection."""

    session: DanubeSession
    principal: Principal


class DanubeCalls:
    """Authentication, dispatch and error answers, shared by all Danube services."""

    def __init__(self, broker: Broker, listen: config.Listen, port: int) -> None:
        self.broker = broker
        self.settings = listen.of(DanubeWire)
        self._scheme = "https" if listen.tls_certificate else "http"
        self._advertised = self.settings.advertised or _maybe_reachable(listen.host, port)
        broker.danube.advertise(f"{self._scheme}://{self._advertised or host_port(listen.host, port)}")

    # ---- callers -----------------------------------------------------------------------------------------------------

    def principal(self, head: CallHead) -> Principal:
        """Return the principal of a call; the token's expiry is checked each time. Raises UnauthenticatedError."""
        if not self.broker.security.enabled:
            return NOBODY
        assert isinstance(head.memo, ShownToken), "`maybe_refusal` must run first"
        return self.broker.security.identify(head.memo.authorization, WIRE, head.memo.host)

    def maybe_refusal(self, session: DanubeSession, head: CallHead) -> tuple[Status, str] | None:
        """Return the refusal of a call with an invalid token, or None. Runs before any service."""
        try:
            if self.broker.security.enabled:
                head.memo = ShownToken(head.get("authorization") or "", session.host)
                self.principal(head)
        except UnauthenticatedError as error:
            return status_of(error), str(error)
        return None

    def check(self, caller: Caller, permission: Permission, topic: str | None = None) -> None:
        """Check that the caller has a permission. Raises ForbiddenError."""
        self.broker.security.check(caller.principal, permission, topic)

    def by_principal(self, calls: list[Call]) -> Mapping[Principal, list[Call]]:
        """Group the calls of one read by principal; almost always there is one."""
        if not self.broker.security.enabled:
            return {NOBODY: calls}
        found: dict[Principal, list[Call]] = {}
        for call in calls:
            found.setdefault(self.principal(call[2]), []).append(call)
        return found

    def address(self, session: DanubeSession) -> str:
        """Return the broker's address as this client can reach it: never a wildcard address."""
        if self._advertised:
            return f"{self._scheme}://{self._advertised}"
        host, port = session.transport.get_extra_info("sockname")[:2]
        return f"{self._scheme}://{host_port(host, port)}"

    # ---- serving -----------------------------------------------------------------------------------------------------

    def serve(
        self, methods: Methods, service: str, handlers: Handlers, lasting: set[str], prepared: Preparations = NOTHING
    ) -> None:
        """Register a service's methods. Answers of `lasting` methods wait for the commit, calls of `prepared` methods
        for work that another thread does first."""
        for name, (kind, handler) in handlers.items():
            guarded = partial(self._change, handler) if name in lasting - RENEWING else handler
            take = partial(self._take, kind, guarded, name in lasting)
            if name in prepared:
                take = partial(self._take_prepared, prepared[name], kind, take)
            methods.unary(f"/{service}/{name}", take)

    def _take_prepared(
        self, prepare: Prepare, kind: type[Message], take: Take, session: DanubeSession, calls: list[Call]
    ) -> None:
        loop = asyncio.get_running_loop()
        for call in calls:
            work = self._maybe_work(prepare, kind, call)
            if work is None:
                take(session, [call])
            else:
                work.add_done_callback(partial(_serve_prepared, loop, partial(take, session, [call])))

    def _maybe_work(self, prepare: Prepare, kind: type[Message], call: Call) -> Future[None] | None:
        """Start the preparation of a call. None for malformed or unauthenticated calls, which `take` refuses."""
        try:
            return prepare(self.principal(call[2]), kind.FromString(call[1]))
        except (DecodeError, UnauthenticatedError):
            return None

    def _change(self, handler: Callable[[Caller, Any], Message], caller: Caller, request: Any) -> Message:
        self.broker.journal.check_writable()
        return handler(caller, request)

    def _take(
        self, kind: type[Message], handler: Callable[[Caller, Any], Message], lasts: bool, session: DanubeSession,
        calls: list[Call],
    ) -> None:  # fmt: skip
        for stream, data, head in calls:
            try:
                session.peer.principal = self.principal(head)
                answer = handler(Caller(session, session.peer.principal), kind.FromString(data)).SerializeToString()
            except DecodeError:
                session.refuse(stream, Status.INVALID_ARGUMENT, f"malformed {kind.DESCRIPTOR.name}")
            except RacewayError as error:
                self.refuse(session, stream, error)
            else:
                reply = partial(self._reply, session, stream, answer)
                waits = lasts and self.broker.journal.health().status != "disk_full"
                self.broker.after_commit(reply) if waits else reply(None)

    def _reply(self, session: DanubeSession, stream: int, answer: bytes, error: RacewayError | None) -> None:
        if error is None:
            session.answer_many([(stream, answer)])
        else:
            self.refuse(session, stream, error)

    def refuse(self, session: DanubeSession, stream: int, error: RacewayError, *, after_s: float = 0.0) -> None:
        session.refuse(stream, status_of(error), str(error), after_s=after_s)


def _serve_prepared(loop: asyncio.AbstractEventLoop, serve: Callable[[], None], work: Future[None]) -> None:
    """Continue a prepared call in the event loop. Runs in the thread that did the work."""
    loop.call_soon_threadsafe(serve)


def _maybe_reachable(host: str, port: int) -> str:
    """Return `host:port`, or "" if the host is a wildcard address."""
    try:
        if ipaddress.ip_address(host).is_unspecified:
            return ""
    except ValueError:
        pass
    return host_port(host, port)


def is_reliable(strategy: int) -> bool:
    """Return whether a dispatch strategy is reliable. Raises InvalidValueError."""
    if strategy not in (0, 1):
        raise InvalidValueError("dispatch_strategy", f"unknown strategy {strategy}")
    return strategy == 1
