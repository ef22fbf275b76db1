"""zbus's admin commands: the monitoring page, its data, creating queues, and the two of the tracker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from raceway import config
from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.broker.view.queues import QueueSummary
from raceway.errors import QueueKindError, RacewayError, UnauthenticatedError
from raceway.model.intents.credentials import Authorization, Authorize, Credential
from raceway.model.intents.kinds import Done
from raceway.model.security import Permission, Principal
from raceway.wires.zbus.codec import receiver as zbus
from raceway.wires.zbus.codec.admin import (
    BrokerReport,
    ConsumerInfo,
    QueueInfo,
    encode_description,
    kind_mismatch,
    read_create_queue,
)
from raceway.wires.zbus.codec.encode import admin_forbidden, method_not_found
from raceway.wires.zbus.codec.receiver import Admin, ZbusRefused
from raceway.wires.zbus.listen.page import render_page, render_tracker_page
from raceway.wires.zbus.listen.tracker import Tracker
from raceway.wires.zbus.settings import ZbusWire

CREATE, REPORT = "create_mq", "track_report"
# Permissions that methods need while security is on; creating a queue needs ManageTopic on its name.
NEEDED: dict[str, Permission] = {
    "index": "Lookup", "data": "Lookup", "track_sub": "Lookup", REPORT: "ManageBroker",
}  # fmt: skip


class AdminSession(Protocol):
    """A connection that sends admin commands."""

    address: str
    open: bool

    @property
    def peer(self) -> Peer: ...

    def has_room(self) -> bool: ...
    def write(self, data: bytes) -> None: ...
    def note_asked(self) -> None: ...
    def note_answered(self) -> None: ...


class Administration:
    """Admin commands. `queue_made` is called for each new queue. Without `serves_queues` this is only a tracker."""

    def __init__(
        self, door: Door, listen: config.Listen, advertised: str, console: str, serves_queues: bool = True
    ) -> None:
        self._door = door
        self._settings = listen.of(ZbusWire)
        self._advertised = advertised
        self._console = console
        self.queue_made: Callable[[], None] = lambda: None
        self.tracker = Tracker(door.runtime.loop)
        self._methods: dict[str, Callable[[Any, Admin, Principal], bytes | None]] = {}
        if serves_queues:
            self._methods |= {"index": self._index, "data": self._data, CREATE: self._malformed_create}
        else:
            self._methods |= {"index": self._track_index, "data": self._track_data}
        if self._settings.tracker:
            self._methods |= {"track_sub": self._track_sub, REPORT: self._track_report}

    def perform(self, session: AdminSession, event: Admin) -> None:
        """Perform a command and write its reply, if it has one: to create a queue in the bus, all others here."""
        session.note_asked()
        if event.method == CREATE and CREATE in self._methods:
            wanted = read_create_queue(event)
            if not isinstance(wanted, ZbusRefused):
                wanted = msgspec.structs.replace(wanted, maker=session.address, credential=Credential(event.token))
                self._door.perform(session.peer, wanted, partial(self._created, session, event))
                return
        method = self._methods.get(event.method)
        # Brokers that report themselves may use the tracker's token.
        code = self._settings.tracker_token if event.method == REPORT else ""
        call = Authorize(Credential(event.token, code), NEEDED.get(event.method) if method is not None else None)
        self._door.perform(session.peer, call, partial(self._authorized, session, event, method))

    def _authorized(
        self,
        session: AdminSession,
        event: Admin,
        method: Callable[[Any, Admin, Principal], bytes | None] | None,
        outcome: Authorization | RacewayError,
    ) -> None:
        if not session.open:
            return
        answer: bytes | None
        if isinstance(outcome, RacewayError):
            answer = _refusal(outcome, event)
        elif method is None:
            answer = zbus.refusal_reply(method_not_found(event.method, event.msgid))
        else:
            answer = method(session, event, outcome.principal)
        if answer is not None:
            session.write(answer)
        session.note_answered()

    def _created(self, session: AdminSession, event: Admin, outcome: Done | RacewayError) -> None:
        """Reply to the creation of a queue, after the commit."""
        if isinstance(outcome, RacewayError):
            answer = _refusal(outcome, event)
        else:
            self.queue_made()
            answer = zbus.reply(200, event.msgid, b"%d" % (self._door.runtime.clock_us() // 1000))
        if session.open:
            session.write(answer)
            session.note_answered()

    def leave(self, session: AdminSession) -> None:
        """Forget a closed connection."""
        self.tracker.leave(session)

    def relieve(self, session: AdminSession) -> None:
        """Continue to push to a connection that has room again."""
        self.tracker.relieve(session)

    def encode_report(self) -> bytes:
        return encode_description(self.report())

    def report(self) -> BrokerReport:
        """Return the description of this bus for `data` and for trackers."""
        table = {row.name: self._info(row) for row in self._door.view.queues}
        return BrokerReport(self._advertised, self._door.runtime.clock_us() // 1000, table)

    def _info(self, row: QueueSummary) -> QueueInfo:
        return QueueInfo(
            broker=self._advertised,
            name=row.name,
            mode=row.mode,
            creator=row.maker,
            created_time=row.made_ms,
            unconsumed_msg_count=row.backlog,
            consumer_count=len(row.consumers),
            consumer_info_list=tuple(
                ConsumerInfo(each.address, "armed" if each.armed else "idle", each.topics) for each in row.consumers
            ),
            load_factor=row.backlog / (len(row.consumers) or 1),
        )

    def _index(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        return zbus.page(event.msgid, render_page(self.report(), self._door.view, self._console))

    def _data(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        return zbus.json_reply(event.msgid, self.encode_report())

    def _malformed_create(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        refused = read_create_queue(event)
        assert isinstance(refused, ZbusRefused)
        return zbus.refusal_reply(refused)

    def _track_sub(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        permissions = self._door.view.permissions

        def may_follow() -> bool:
            return not permissions.enabled or permissions.allows(principal, "Lookup", None)

        return zbus.json_reply(event.msgid, self.tracker.subscribe(session, may_follow))

    def _track_report(self, session: AdminSession, event: Admin, principal: Principal) -> None:
        self.tracker.take_report(event.body)

    def _track_index(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        return zbus.page(event.msgid, render_tracker_page(self._advertised, self.tracker.table))

    def _track_data(self, session: AdminSession, event: Admin, principal: Principal) -> bytes:
        return zbus.json_reply(event.msgid, self.tracker.encode())


def _refusal(error: RacewayError, event: Admin) -> bytes:
    if type(error) is UnauthenticatedError:
        return zbus.refusal_reply(admin_forbidden(event.msgid))
    if isinstance(error, QueueKindError):
        return zbus.refusal_reply(kind_mismatch(event))
    return zbus.refusal_reply(zbus.refusal_of(error, event.msgid))
