"""zbus's admin commands: the monitoring page, its data, creating queues, and the two of the tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

import msgspec

from raceway import config
from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.errors import QueueKindError, RacewayError, UnauthenticatedError
from raceway.model.intents.administration import RecordChange
from raceway.model.intents.credentials import Authorization, Authorize, Credential
from raceway.model.intents.kinds import Done
from raceway.model.intents.queues import CreateQueue, ListQueues, QueueList, QueueSummary
from raceway.model.security import Permission, Principal
from raceway.net.connection import Connection
from raceway.wires.zbus.codec import admin, encode
from raceway.wires.zbus.codec.admin import TEMPORARY, BrokerReport, ConsumerInfo, QueueInfo
from raceway.wires.zbus.codec.head import ZbusRefused
from raceway.wires.zbus.codec.receiver import Admin
from raceway.wires.zbus.listen.page import render_page, render_tracker_page
from raceway.wires.zbus.listen.tracker import Tracker
from raceway.wires.zbus.settings import ZbusWire

Method: TypeAlias = Callable[[Connection, Admin, Principal], bytes | None]
# The answer of a method that shows the queues.
Shown: TypeAlias = Callable[[Admin, BrokerReport], bytes]

CREATE, REPORT = "create_mq", "track_report"
# Permissions that methods need while security is on; creating a queue needs ManageTopic on its name.
NEEDED: dict[str, Permission] = {
    "index": "Lookup", "data": "Lookup", "track_sub": "Lookup", REPORT: "ManageBroker",
}  # fmt: skip


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
        # Methods that show the queues, for which the bus is asked.
        self._listing: dict[Method, Shown] = {}
        self._methods: dict[str, Method] = {
            "index": lambda session, event, principal: encode.page(event.msgid, self._tracker_page()),
            "data": lambda session, event, principal: encode.json_reply(event.msgid, self.tracker.encode()),
        }
        if serves_queues:
            self._listing = {
                self._methods["index"]: lambda event, report: encode.page(event.msgid, self._page(report)),
                self._methods["data"]: lambda event, report: encode.json_reply(
                    event.msgid, admin.encode_description(report)
                ),
            }
            self._methods[CREATE] = self._malformed_create
        if self._settings.tracker:
            self._methods |= {"track_sub": self._track_sub, REPORT: self._track_report}

    def perform(self, session: Connection, peer: Peer, event: Admin) -> None:
        """Perform a command and write its reply, if it has one: to create a queue in the bus, all others here."""
        session.note_asked()
        if event.method == CREATE and CREATE in self._methods:
            wanted = admin.read_create_queue(event)
            if not isinstance(wanted, ZbusRefused):
                wanted = msgspec.structs.replace(wanted, maker=session.address, credential=Credential(event.token))
                self._door.perform(peer, wanted, partial(self._created, session, peer, event, wanted))
                return
        method = self._methods.get(event.method)
        # Brokers that report themselves may use the tracker's token.
        code = self._settings.tracker_token if event.method == REPORT else ""
        call = Authorize(Credential(event.token, code), NEEDED.get(event.method) if method is not None else None)
        self._door.perform(peer, call, partial(self._authorized, session, peer, event, method))

    def _authorized(
        self,
        session: Connection,
        peer: Peer,
        event: Admin,
        method: Method | None,
        outcome: Authorization | RacewayError,
    ) -> None:
        if not session.open:
            return
        answer: bytes | None
        if isinstance(outcome, RacewayError):
            answer = _refusal(outcome, event)
        elif method is None:
            answer = encode.refusal_reply(encode.method_not_found(event.method, event.msgid))
        elif (shown := self._listing.get(method)) is not None:
            # Before the bus is asked: the list itself is what costs.
            over = session.maybe_refuse_list()
            if over is None:
                self._door.perform(peer, ListQueues(), partial(self._listed, session, event, shown))
                return
            answer = _refusal(over, event)
        else:
            answer = self._answer(method, session, event, outcome.principal)
        if answer is not None:
            session.write(answer)
        session.note_answered()

    def _listed(self, session: Connection, event: Admin, shown: Shown, outcome: QueueList | RacewayError) -> None:
        if not session.open:
            return
        if isinstance(outcome, RacewayError):
            answer = _refusal(outcome, event)
        else:
            answer = shown(event, self._report(outcome.rows))
            session.note_listed(len(answer))
        session.write(answer)
        session.note_answered()

    def _answer(self, method: Method, session: Connection, event: Admin, principal: Principal) -> bytes | None:
        if (over := session.maybe_refuse_list()) is not None:
            return _refusal(over, event)
        answer = method(session, event, principal)
        session.note_listed(len(answer or b""))
        return answer

    def _created(
        self, session: Connection, peer: Peer, event: Admin, made: CreateQueue, outcome: Done | RacewayError
    ) -> None:
        """Reply to the creation of a queue after the commit, and after that of its entry in the record of changes."""
        if isinstance(outcome, RacewayError):
            _reply(session, _refusal(outcome, event))
            return
        self.queue_made()
        answer = encode.reply(200, event.msgid, b"%d" % (self._door.runtime.clock_us() // 1000))
        if not outcome.changed or made.mode & TEMPORARY:
            _reply(session, answer)
            return
        facts = {
            "action": "Create a queue", "method": "admin", "path": CREATE, "address": session.address, "status": "200",
        }  # fmt: skip
        entry = RecordChange(facts, {"name": made.name, "mode": made.mode})
        # The change is made, whatever becomes of the entry.
        self._door.perform(peer, entry, lambda recorded: _reply(session, answer))

    def encode_report(self) -> bytes:
        """Return the description of this bus for trackers."""
        return admin.encode_description(self._report(self._door.view.queues))

    def _report(self, rows: Iterable[QueueSummary]) -> BrokerReport:
        table = {row.name: self._info(row) for row in rows}
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

    def _page(self, report: BrokerReport) -> bytes:
        return render_page(report, self._door.view, self._console)

    def _tracker_page(self) -> bytes:
        return render_tracker_page(self._advertised, self.tracker.table)

    def _malformed_create(self, session: Connection, event: Admin, principal: Principal) -> bytes:
        refused = admin.read_create_queue(event)
        assert isinstance(refused, ZbusRefused)
        return encode.refusal_reply(refused)

    def _track_sub(self, session: Connection, event: Admin, principal: Principal) -> bytes:
        permissions = self._door.view.permissions

        def may_follow() -> bool:
            return not permissions.enabled or permissions.allows(principal, "Lookup", None)

        return encode.json_reply(event.msgid, self.tracker.subscribe(session, may_follow))

    def _track_report(self, session: Connection, event: Admin, principal: Principal) -> None:
        self.tracker.take_report(event.body)


def _reply(session: Connection, answer: bytes) -> None:
    if session.open:
        session.write(answer)
        session.note_answered()


def _refusal(error: RacewayError, event: Admin) -> bytes:
    if type(error) is UnauthenticatedError:
        return encode.refusal_reply(encode.admin_forbidden(event.msgid))
    if isinstance(error, QueueKindError):
        return encode.refusal_reply(admin.bad_format(event, "kind mismatch"))
    return encode.refusal_reply(encode.refusal_of(error, event.msgid))
