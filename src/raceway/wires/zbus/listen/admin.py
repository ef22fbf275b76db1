"""zbus's admin commands: the monitoring page, its data, creating queues, and the two of the tracker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.peers import Peer
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import Queue
from raceway.broker.queues.table import QueueRecord
from raceway.errors import QueueKindError, RacewayError
from raceway.model.security import OWNER, Permission
from raceway.model.subscriptions import parse_start
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

# Permissions that methods need while security is on; creating a queue needs ManageTopic on its name.
NEEDED: dict[str, Permission] = {
    "index": "Lookup", "data": "Lookup", "track_sub": "Lookup", "track_report": "ManageBroker",
}  # fmt: skip


class AdminSession(Protocol):
    """A connection that sends admin commands."""

    address: str
    host: str
    # Whether the principal of the peer came from a valid token.
    identified: bool

    @property
    def peer(self) -> Peer: ...

    def has_room(self) -> bool: ...
    def write(self, data: bytes) -> None: ...


class Administration:
    """Admin commands. `queue_made` is called for each new queue. Without `serves_queues` this is only a tracker."""

    def __init__(
        self, broker: Broker, listen: config.Listen, advertised: str, console: str, serves_queues: bool = True
    ) -> None:
        self._broker = broker
        self._settings = listen.of(ZbusWire)
        self._advertised = advertised
        self._console = console
        self.queue_made: Callable[[], None] = lambda: None
        self.tracker = Tracker(broker.loop)
        self._methods: dict[str, Callable[[Any, Admin], bytes | None]] = {}
        if serves_queues:
            self._methods |= {"index": self._index, "data": self._data, "create_mq": self._create_mq}
        else:
            self._methods |= {"index": self._track_index, "data": self._track_data}
        if self._settings.tracker:
            self._methods |= {"track_sub": self._track_sub, "track_report": self._track_report}

    def perform(self, session: AdminSession, event: Admin) -> bytes | None:
        """Perform a command and return its reply, or None if there is none or it comes later."""
        method = self._methods.get(event.method)
        try:
            if not self._may_administrate(session, event):
                return zbus.refusal_reply(admin_forbidden(event.msgid))
            if method is None:
                return zbus.refusal_reply(method_not_found(event.method, event.msgid))
            if event.method in NEEDED:
                self._broker.security.check(session.peer.principal, NEEDED[event.method])
        except RacewayError as error:
            return zbus.refusal_reply(zbus.refusal_of(error, event.msgid))
        return method(session, event)

    def _may_administrate(self, session: AdminSession, event: Admin) -> bool:
        """Return whether the peer may send admin commands. Raises TooManyFailuresError.

        A peer with the administrator's token may. Without a configured token everyone may; with security on, the
        permissions of the principal are checked as well. Brokers that report themselves may use the tracker's token.
        """
        security = self._broker.security
        codes = [security.admin_token]
        if event.method == "track_report" and security.enabled:
            codes.append(self._settings.tracker_token)
        if session.identified or not any(codes):
            return True
        if not security.is_administrator(event.token or b"", codes, session.host):
            return not security.admin_token
        if security.enabled:
            session.peer.principal = OWNER
        return True

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
        table = {name: self._info(name, record, queue) for name, record, queue in self._broker.queues}
        return BrokerReport(self._advertised, self._broker.clock_us() // 1000, table)

    def _info(self, name: str, record: QueueRecord, queue: Queue | PubSubQueue) -> QueueInfo:
        consumers = list(queue.consumers)
        backlog = queue.backlog if isinstance(queue, Queue) else 0
        return QueueInfo(
            broker=self._advertised,
            name=name,
            mode=record.mode,
            creator=record.maker,
            created_time=record.made_ms,
            unconsumed_msg_count=backlog,
            consumer_count=len(consumers),
            consumer_info_list=tuple(_consumer_info(queue, consumer) for consumer in consumers),
            load_factor=backlog / (len(consumers) or 1),
        )

    def _index(self, session: AdminSession, event: Admin) -> bytes:
        return zbus.page(event.msgid, render_page(self.report(), self._broker, self._console))

    def _data(self, session: AdminSession, event: Admin) -> bytes:
        return zbus.json_reply(event.msgid, self.encode_report())

    def _create_mq(self, session: AdminSession, event: Admin) -> bytes | None:
        """Create a queue. The reply is sent after the commit."""
        wanted = read_create_queue(event)
        if isinstance(wanted, ZbusRefused):
            return zbus.refusal_reply(wanted)
        try:
            self._broker.security.check(session.peer.principal, "ManageTopic", wanted.name)
            start = parse_start(wanted.start)
            self._broker.queues.create(session.peer, session.address, wanted.name, wanted.mode, wanted.token, start)
        except QueueKindError:
            return zbus.refusal_reply(kind_mismatch(event))
        except RacewayError as error:
            return zbus.refusal_reply(zbus.refusal_of(error, event.msgid))
        self.queue_made()
        self._broker.journal.after_commit(lambda error: session.write(self._time_reply(event.msgid, error)))
        return None

    def _time_reply(self, msgid: bytes | None, error: RacewayError | None) -> bytes:
        if error is not None:
            return zbus.refusal_reply(zbus.refusal_of(error, msgid))
        return zbus.reply(200, msgid, b"%d" % (self._broker.clock_us() // 1000))

    def _track_sub(self, session: AdminSession, event: Admin) -> bytes:
        security, principal = self._broker.security, session.peer.principal

        def may_follow() -> bool:
            return not security.enabled or security.allows(principal, "Lookup", None)

        return zbus.json_reply(event.msgid, self.tracker.subscribe(session, may_follow))

    def _track_report(self, session: AdminSession, event: Admin) -> None:
        self.tracker.take_report(event.body)

    def _track_index(self, session: AdminSession, event: Admin) -> bytes:
        return zbus.page(event.msgid, render_tracker_page(self._advertised, self.tracker.table))

    def _track_data(self, session: AdminSession, event: Admin) -> bytes:
        return zbus.json_reply(event.msgid, self.tracker.encode())


def _consumer_info(queue: Queue | PubSubQueue, consumer: Any) -> ConsumerInfo:
    status = "armed" if queue.is_armed(consumer) else "idle"
    topics = tuple(queue.topics_of(consumer)) if isinstance(queue, PubSubQueue) else None
    return ConsumerInfo(consumer.address, status, topics)
