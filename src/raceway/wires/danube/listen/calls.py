"""Unary calls of the Danube services: decode the request, run its handler, encode the answer or the error.

The handler of a call is the method of a `DanubeService` that has the call's name, in snake case. It returns the answer,
or an intent (the answer is then `success` when its outcome has come), or is a coroutine that awaits outcomes of the
bus:

    async def create_producer(self, caller: Caller, request: pb.ProducerRequest) -> pb.ProducerResponse:
        row = await ask(CreateProducer(...))
        return pb.ProducerResponse(producer_id=row.id)

No task runs it: it goes on when the outcome comes, at once or later. Outcomes of changes come after their commit.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from functools import partial
from types import coroutine
from typing import Any, ClassVar, NamedTuple, TypeVar

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from raceway import config
from raceway.broker.door import Door
from raceway.errors import InvalidValueError, RacewayError, UnauthenticatedError, UnknownTopicError
from raceway.model.addresses import host_port
from raceway.model.envelope import DANUBE
from raceway.model.intents.administration import RecordChange
from raceway.model.intents.kinds import IntentFor
from raceway.model.security import ANONYMOUS, Permission, Principal
from raceway.model.topics import parse_namespaced_topic
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.grpc import ArrivedCall, Methods
from raceway.wires.danube.codec.pb import POOL
from raceway.wires.danube.codec.status import status_of
from raceway.wires.danube.listen.session import DanubeSession
from raceway.wires.danube.settings import DanubeWire

WIRE = DANUBE.decode()
NOBODY = Principal(ANONYMOUS, WIRE)

R = TypeVar("R")
RunningCall = Coroutine[IntentFor[Any], Any, Message]


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


class _Method(NamedTuple):
    """A method of a service: its path, the types of its requests and answers, its handler, the permission it needs if
    any; and what it changes, in words, if anything."""

    path: str
    request: type[Message]
    answer: type[Message]
    handler: Callable[[Caller, Any], Message | IntentFor[Any] | RunningCall]
    needs: Permission | None
    change: str


async def _confirmed(intent: IntentFor[Any], answer: type[Message]) -> Message:
    await ask(intent)
    return answer(success=True)


async def _recorded(running: RunningCall, change: RecordChange) -> Message:
    """Return the answer to a change after its entry was stored. The change is made, whatever becomes of the entry."""
    answer = await running
    with suppress(RacewayError):
        await ask(change)
    return answer


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

    def by_principal(self, calls: list[ArrivedCall]) -> Mapping[Principal, list[ArrivedCall]]:
        """Group the calls of one read by principal; almost always there is one."""
        if not self.permissions.enabled:
            return {NOBODY: calls}
        found: dict[Principal, list[ArrivedCall]] = {}
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

    def serve(self, methods: Methods, service: DanubeService) -> None:
        """Register the methods that a service has handlers for."""
        for name in service.services:
            for found in POOL.FindServiceByName(name).methods:
                handler = getattr(service, re.sub(r"\B(?=[A-Z])", "_", found.name).lower(), None)
                if handler is not None:
                    request, answer = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
                    records = service.records_changes and found.name not in service.questions
                    change = re.sub(r"\B(?=[A-Z])", " ", found.name).capitalize() if records else ""
                    path = f"/{name}/{found.name}"
                    methods.unary(
                        path, partial(self._take, _Method(path, request, answer, handler, service.needs, change))
                    )

    def _take(self, method: _Method, session: DanubeSession, calls: list[ArrivedCall]) -> None:
        for stream, data, head in calls:
            try:
                caller = Caller(session, self.principal(head))
                request = method.request.FromString(data)
                if method.needs is not None:
                    self.check(caller, method.needs)
                if (over := session.maybe_refuse_list()) is not None:
                    raise over
                answer = method.handler(caller, request)
            except DecodeError:
                session.refuse(stream, Status.INVALID_ARGUMENT, f"malformed {method.request.DESCRIPTOR.name}")
            except RacewayError as error:
                self.refuse(session, stream, error)
            else:
                if isinstance(answer, Message):
                    data = answer.SerializeToString()
                    session.note_listed(len(data))
                    session.answer_many([(stream, data)])
                else:
                    running = _confirmed(answer, method.answer) if isinstance(answer, IntentFor) else answer
                    if method.change:
                        running = _recorded(running, _entry(method, session, request))
                    self._go_on(caller, stream, running, None)

    def _go_on(self, caller: Caller, stream: int, handler: RunningCall, told: Any) -> None:
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
            session.note_asked()
            self.door.perform(session.peer, intent, partial(self._told, caller, stream, handler))

    def _told(self, caller: Caller, stream: int, handler: RunningCall, told: Any) -> None:
        caller.session.guard(partial(self._go_on, caller, stream, handler, told), stream)
        caller.session.note_answered()

    def refuse(self, session: DanubeSession, stream: int, error: RacewayError, *, after_s: float = 0.0) -> None:
        session.refuse(stream, status_of(error), str(error), after_s=after_s)


class DanubeService:
    """Handlers of the calls of one or more gRPC services; see the module."""

    services: ClassVar[tuple[str, ...]]
    # The permission that all its calls need, if it is the same.
    needs: ClassVar[Permission | None] = None
    # Whether what its calls ask of the bus are changes, to be recorded; but for these, which change nothing.
    records_changes: ClassVar[bool] = False
    questions: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, calls: DanubeCalls) -> None:
        self._calls, self._check = calls, calls.check
        self._topics, self._schemas = calls.door.view.administration, calls.door.view.schemas

    def _topic(self, caller: Caller, name: str, permission: Permission) -> str:
        """Return the canonical name of a topic. Raises NameInvalidError, ForbiddenError."""
        topic = parse_namespaced_topic(name)
        self._check(caller, permission, topic)
        return topic

    def _known(self, caller: Caller, name: str, permission: Permission) -> str:
        """Return the canonical name of a topic that exists. Raises as `_topic`, UnknownTopicError."""
        topic = self._topic(caller, name, permission)
        if not self._topics.partitions(topic):
            raise UnknownTopicError(name)
        return topic


def _entry(method: _Method, session: DanubeSession, request: Message) -> RecordChange:
    facts = {
        "action": method.change, "method": "POST", "path": method.path, "address": session.address,
        "status": str(int(Status.OK)),
    }  # fmt: skip
    return RecordChange(facts, MessageToDict(request, preserving_proto_field_name=True))


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
