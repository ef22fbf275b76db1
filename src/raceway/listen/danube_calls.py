"""Calls one at a time: bytes to a request, the request to whoever serves it, its answer or its error back.

An answer that promises something lasting leaves after the commit of what it promises. While the disk is full nothing
can be promised: such calls are refused at once, because clients wait without end. Producers and consumers that are
known already may come back.
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
from raceway.codec.danube_status import status_of
from raceway.codec.grpc_head import CallHead, Status
from raceway.errors import InvalidValueError, RacewayError, UnauthenticatedError
from raceway.listen.grpc import Call, GrpcSession, Methods
from raceway.model.addresses import host_port
from raceway.model.envelope import DANUBE
from raceway.model.security import ANONYMOUS, Permission, Principal

WIRE = DANUBE.decode()
NOBODY = Principal(ANONYMOUS, WIRE)

# Calls that make nothing new if what they want is known; the broker refuses them if it is not.
RENEWING = {"CreateProducer", "Subscribe"}
# A method's name to the class of its requests and whoever serves them.
Handlers = Mapping[str, tuple[type[Message], Callable[["Caller", Any], Message]]]
# A method's name to what must be done before it is served, if anything, for whoever calls it.
Prepare = Callable[[Principal, Any], "Future[None] | None"]
Preparations = Mapping[str, Prepare]
NOTHING: Preparations = {}
Take = Callable[[GrpcSession, list[Call]], None]


class Shown(NamedTuple):
    """The token of a call, and where the call comes from."""

    authorization: str
    host: str


class Caller(NamedTuple):
    """Who asks, and over which connection."""

    session: GrpcSession
    principal: Principal


class Calls:
    """What the services share."""

    def __init__(self, broker: Broker, listen: config.Listen, port: int) -> None:
        self.broker = broker
        self.settings = listen.danube
        self._scheme = "https" if listen.tls_certificate else "http"
        self._advertised = listen.danube.advertised or _maybe_reachable(listen.host, port)
        broker.danube.advertise(f"{self._scheme}://{self._advertised or host_port(listen.host, port)}")

    # ---- who calls ---------------------------------------------------------------------------------------------------

    def principal(self, head: CallHead) -> Principal:
        """Raises UnauthenticatedError. A token's end is looked at anew each time."""
        if not self.broker.security.enabled:
            return NOBODY
        assert isinstance(head.memo, Shown), "every call passes `maybe_refusal` first"
        return self.broker.security.identify(head.memo.authorization, WIRE, head.memo.host)

    def maybe_refusal(self, session: GrpcSession, head: CallHead) -> tuple[Status, str] | None:
        """Before any service: is the token good?"""
        try:
            if self.broker.security.enabled:
                head.memo = Shown(head.get("authorization") or "", session.host)
                self.principal(head)
        except UnauthenticatedError as error:
            return status_of(error), str(error)
        return None

    def check(self, caller: Caller, permission: Permission, topic: str | None = None) -> None:
        """Raises ForbiddenError."""
        self.broker.security.check(caller.principal, permission, topic)

    def by_principal(self, calls: list[Call]) -> Mapping[Principal, list[Call]]:
        """Calls of one read, by who made them: almost always one."""
        if not self.broker.security.enabled:
            return {NOBODY: calls}
        found: dict[Principal, list[Call]] = {}
        for call in calls:
            found.setdefault(self.principal(call[2]), []).append(call)
        return found

    def address(self, session: GrpcSession) -> str:
        """The broker's own, as this connection should know it: never one that cannot be dialled."""
        if self._advertised:
            return f"{self._scheme}://{self._advertised}"
        host, port = session.transport.get_extra_info("sockname")[:2]
        return f"{self._scheme}://{host_port(host, port)}"

    # ---- serving -----------------------------------------------------------------------------------------------------

    def serve(
        self, methods: Methods, service: str, handlers: Handlers, lasting: set[str], prepared: Preparations = NOTHING
    ) -> None:
        """Join a service's methods to the door; answers of the `lasting` ones wait for the commit, calls of the
        `prepared` ones for work that another thread does first."""
        for name, (kind, handler) in handlers.items():
            guarded = partial(self._change, handler) if name in lasting - RENEWING else handler
            take = partial(self._take, kind, guarded, name in lasting)
            if name in prepared:
                take = partial(self._take_prepared, prepared[name], kind, take)
            methods.unary(f"/{service}/{name}", take)

    def _take_prepared(
        self, prepare: Prepare, kind: type[Message], take: Take, session: GrpcSession, calls: list[Call]
    ) -> None:
        loop = asyncio.get_running_loop()
        for call in calls:
            work = self._maybe_work(prepare, kind, call)
            if work is None:
                take(session, [call])
            else:
                work.add_done_callback(partial(_serve_prepared, loop, partial(take, session, [call])))

    def _maybe_work(self, prepare: Prepare, kind: type[Message], call: Call) -> Future[None] | None:
        """Whoever may not, or sends what cannot be read, is refused by `take`."""
        try:
            return prepare(self.principal(call[2]), kind.FromString(call[1]))
        except (DecodeError, UnauthenticatedError):
            return None

    def _change(self, handler: Callable[[Caller, Any], Message], caller: Caller, request: Any) -> Message:
        self.broker.journal.check_writable()
        return handler(caller, request)

    def _take(
        self, kind: type[Message], handler: Callable[[Caller, Any], Message], lasts: bool, session: GrpcSession,
        calls: list[Call],
    ) -> None:  # fmt: skip
        for stream, data, head in calls:
            try:
                session.principal = self.principal(head)
                answer = handler(Caller(session, session.principal), kind.FromString(data)).SerializeToString()
            except DecodeError:
                session.refuse(stream, Status.INVALID_ARGUMENT, f"the bytes are no {kind.DESCRIPTOR.name}")
            except RacewayError as error:
                self.refuse(session, stream, error)
            else:
                reply = partial(self._reply, session, stream, answer)
                waits = lasts and self.broker.journal.health().status != "disk_full"
                self.broker.after_commit(reply) if waits else reply(None)

    def _reply(self, session: GrpcSession, stream: int, answer: bytes, error: RacewayError | None) -> None:
        if error is None:
            session.answer_many([(stream, answer)])
        else:
            self.refuse(session, stream, error)

    def refuse(self, session: GrpcSession, stream: int, error: RacewayError, *, after_s: float = 0.0) -> None:
        session.refuse(stream, status_of(error), str(error), after_s=after_s)


def _serve_prepared(loop: asyncio.AbstractEventLoop, serve: Callable[[], None], work: Future[None]) -> None:
    """Called by the other thread when its work is done."""
    loop.call_soon_threadsafe(serve)


def _maybe_reachable(host: str, port: int) -> str:
    """`host:port`, unless the host stands for all addresses of the machine."""
    try:
        if ipaddress.ip_address(host).is_unspecified:
            return ""
    except ValueError:
        pass
    return host_port(host, port)


def is_reliable(strategy: int) -> bool:
    """What a dispatch strategy says. Raises InvalidValueError."""
    if strategy not in (0, 1):
        raise InvalidValueError("dispatch_strategy", f"there is no strategy {strategy}")
    return strategy == 1
