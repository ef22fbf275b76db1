"""Unary calls of the Danube services: decode the request, run its handler, encode the answer or the error.

A handler returns the answer, or is a coroutine that awaits outcomes of the bus:

    async def _create_producer(self, caller: Caller, request: ProducerRequest) -> ProducerResponse:
        row = await ask(CreateProducer(...))
        return ProducerResponse(producer_id=row.id)

No task runs it: it goes on when the outcome comes, at once or later. Outcomes of changes come after their commit.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from types import coroutine
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from raceway import config
from raceway.broker.door import Door
from raceway.errors import InvalidValueError, RacewayError, UnauthenticatedError
from raceway.model.addresses import host_port
from raceway.model.envelope import DANUBE
from raceway.model.intents.kinds import IntentFor
from raceway.model.security import ANONYMOUS, Permission, Principal
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.grpc import Call, Methods
from raceway.wires.danube.codec.status import status_of
from raceway.wires.danube.listen.session import DanubeSession
from raceway.wires.danube.settings import DanubeWire

WIRE = DANUBE.decode()
NOBODY = Principal(ANONYMOUS, WIRE)

R = TypeVar("R")
CallHandler = Callable[["Caller", Any], "Message | Coroutine[IntentFor[Any], Any, Message]"]
# Method name to the class of its requests and its handler.
Handlers = Mapping[str, tuple[type[Message], CallHandler]]


@coroutine
def ask(intent: IntentFor[R]) -> Generator[IntentFor[R], R, R]:
    """Perform an intent of the caller and return its outcome. Raises RacewayError."""
    return (yield intent)


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

    def __init__(self, door: Door, listen: config.Listen, port: int) -> None:
        self.door, self.permissions = door, door.view.permissions
        self.settings = listen.of(DanubeWire)
        self._scheme = "https" if listen.tls_certificate else "http"
        self._advertised = self.settings.advertised or _maybe_reachable(listen.host, port)
        door.advertise(f"{self._scheme}://{self._advertised or host_port(listen.host, port)}")

    # ---- callers -----------------------------------------------------------------------------------------------------

    def principal(self, head: CallHead) -> Principal:
        """Return the principal of a call; the token's expiry is checked each time. Raises UnauthenticatedError."""
        if not self.permissions.enabled:
            return NOBODY
        assert isinstance(head.memo, ShownToken), "`maybe_refusal` must run first"
        return self.permissions.identify(head.memo.authorization, WIRE, head.memo.host)

    def maybe_refusal(self, session: DanubeSession, head: CallHead) -> tuple[Status, str] | None:
        """Return the refusal of a call with an invalid token, or None. Runs before any service."""
        try:
            if self.permissions.enabled:
                head.memo = ShownToken(head.get("authorization") or "", session.host)
                self.principal(head)
        except UnauthenticatedError as error:
            return status_of(error), str(error)
        return None

    def check(self, caller: Caller, permission: Permission, topic: str | None = None) -> None:
        """Check that the caller has a permission. Raises ForbiddenError."""
        self.permissions.check(caller.principal, permission, topic)

    def by_principal(self, calls: list[Call]) -> Mapping[Principal, list[Call]]:
        """Group the calls of one read by principal; almost always there is one."""
        if not self.permissions.enabled:
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

    def serve(self, methods: Methods, service: str, handlers: Handlers) -> None:
        """Register a service's methods."""
        for name, (kind, handler) in handlers.items():
            methods.unary(f"/{service}/{name}", partial(self._take, kind, handler))

    def _take(self, kind: type[Message], handler: CallHandler, session: DanubeSession, calls: list[Call]) -> None:
        for stream, data, head in calls:
            try:
                caller = Caller(session, self.principal(head))
                answer = handler(caller, kind.FromString(data))
            except DecodeError:
                session.refuse(stream, Status.INVALID_ARGUMENT, f"malformed {kind.DESCRIPTOR.name}")
            except RacewayError as error:
                self.refuse(session, stream, error)
            else:
                if isinstance(answer, Message):
                    session.answer_many([(stream, answer.SerializeToString())])
                else:
                    self._go_on(caller, stream, answer, None)

    def _go_on(self, caller: Caller, stream: int, handler: Coroutine[IntentFor[Any], Any, Message], told: Any) -> None:
        """Run a handler until it asks for an outcome or ends. `told` is the previous outcome, or its error."""
        session = caller.session
        try:
            intent = handler.throw(told) if isinstance(told, Exception) else handler.send(told)
        except StopIteration as end:
            session.answer_many([(stream, end.value.SerializeToString())])
        except RacewayError as error:
            self.refuse(session, stream, error)
        else:
            session.peer.principal = caller.principal
            self.door.perform(session.peer, intent, partial(self._told, caller, stream, handler))

    def _told(self, caller: Caller, stream: int, handler: Coroutine[IntentFor[Any], Any, Message], told: Any) -> None:
        caller.session.guard(partial(self._go_on, caller, stream, handler, told), stream)

    def refuse(self, session: DanubeSession, stream: int, error: RacewayError, *, after_s: float = 0.0) -> None:
        session.refuse(stream, status_of(error), str(error), after_s=after_s)


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
