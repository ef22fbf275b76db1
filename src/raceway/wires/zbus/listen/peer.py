"""The client of a zbus connection, as the broker sees it: everything that is delivered to it."""

from __future__ import annotations

from typing import ClassVar
from weakref import ref

import msgspec

from raceway.broker.door import Door
from raceway.broker.peers import Pending
from raceway.broker.queues.consumer import Copy, Entry, QueueConsumer, RowAnswer
from raceway.errors import ForbiddenError, RacewayError
from raceway.model.envelope import ZBUS, Batch
from raceway.model.intents.queues import ConfirmDeliveries
from raceway.net.connection import Connection
from raceway.wires.zbus.codec import encode
from raceway.wires.zbus.codec.encode import DeliveryHead
from raceway.wires.zbus.codec.head import ZbusRefused
from raceway.wires.zbus.settings import ZbusWire

# Columns that the head of a delivery depends on, besides the reply queue.
_OF_HEAD = (
    "wire", "kind", "producer", "topic", "encoding", "routing_key", "schema_id", "schema_version", "attributes"
)  # fmt: skip
# First delay before checking again whether output was written; the loop reports only large amounts. Doubled each time,
# up to the sweep interval.
LOOK_AGAIN_S = 0.001


class ZbusPeer(QueueConsumer):
    """Peer of a zbus connection. Publish/subscribe queues subscribe for it.

    Messages of queues count as delivered when their bytes were written to the socket; if the connection breaks before
    that, they return to the front of their queue.
    """

    wire: ClassVar[bytes] = ZBUS

    def __init__(self, door: Door, connection: Connection, settings: ZbusWire, advertised: bytes) -> None:
        super().__init__(connection.id, connection.connected_us)
        self.host, self.network, self.last_heard = connection.host, connection.network, connection.heard_us
        self.address, self.producer = connection.address, connection.address.encode()
        self.hang_up = connection.hang_up
        self._door, self._connection, self._advertised = door, connection, advertised
        self.request_timeout_ms = settings.request_timeout_ms
        # Head of the last delivery, with the batch and what else it depends on: messages of one batch mostly share it.
        self._known: tuple[ref[Batch], tuple[bytes | None, str, bool], DeliveryHead] | None = None
        # Queue and offset of the deliveries in the transport's buffer.
        self._unsent: list[tuple[str, int]] = []
        self._looks_again, self._look_s, self._longest_look_s = False, LOOK_AGAIN_S, settings.sweep_ms / 1000
        # Whether a browser shows what is sent: then headers of producers must not make it act.
        self.is_browser = False
        # Its requests that want no answer.
        self.silent: set[bytes] = set()

    @property
    def is_behind(self) -> bool:
        return self._door.view.queues.is_behind(self)

    def has_room(self) -> bool:
        return not self._connection.is_full

    def refuse(self, refused: ZbusRefused) -> None:
        self._door.count_error(self)
        self._connection.write(encode.refusal_reply(refused))

    # ---- requests ----------------------------------------------------------------------------------------------------

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        if request.message_id in self.silent:
            self.silent.discard(request.message_id)
            return
        head = encode.delivery_head(encode.sent_of(batch, row, self._advertised), self.is_browser)
        status = None if batch.item("wire", row) == ZBUS or batch.item("error", row) is None else 500
        self._connection.write(encode.answer(request.message_id, head, batch.item("payload", row), status))

    def fail(self, request: Pending, error: RacewayError) -> None:
        if request.message_id in self.silent:
            self.silent.discard(request.message_id)
            return
        self.refuse(encode.refusal_of(error, request.message_id))

    # ---- queues ------------------------------------------------------------------------------------------------------

    def hand_out(self, queue: str, ticket: bytes, entry: Entry) -> None:
        batch, row, request = entry.batch, entry.row, entry.request
        if request is None or request.name is None:
            reply_to, raw_id = batch.item("reply_to", row), batch.item("message_id", row)
        else:
            reply_to, raw_id = request.name
        self._write_delivery(ticket, batch, row, raw_id, reply_to, queue)
        self._unsent.append((queue, entry.offset))

    def hand_copy(self, queue: str, ticket: bytes, copy: Copy) -> None:
        batch, row = copy
        self._write_delivery(ticket, batch, row, batch.item("message_id", row), batch.item("reply_to", row), queue)

    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None:
        head = encode.delivery_head(encode.sent_of(answer.batch, 0, self._advertised), self.is_browser)
        self._connection.write(encode.answer(ticket, head, answer.batch.item("payload", 0)))

    def dismiss(self, queue: str, ticket: bytes, error: ForbiddenError) -> None:
        self.refuse(encode.queue_forbidden(queue.encode(), ticket))

    def _write_delivery(
        self, ticket: bytes, batch: Batch, row: int, raw_id: bytes | None, reply_to: bytes | None, mq: str
    ) -> None:
        head = self._head(batch, row, reply_to, mq)
        tail = encode.delivery_tail(raw_id, head, batch.item("payload", row))
        self._connection.write(encode.delivery(ticket, head.status, tail))

    def _head(self, batch: Batch, row: int, reply_to: bytes | None, queue: str) -> DeliveryHead:
        """Return the head for one row."""
        known, depends = self._known, (reply_to, queue, self.is_browser)
        if known is not None and known[0]() is batch and known[1] == depends:
            return known[2]
        cmd = b"request" if batch.item("kind", row) == b"request" else b"produce"
        mq = queue.encode()
        topic = None if batch.item("wire", row) == ZBUS else mq
        sent = msgspec.structs.replace(
            encode.sent_of(batch, row, self._advertised), mq=mq, cmd=cmd, reply_to=reply_to, topic=topic
        )
        head = encode.delivery_head(sent, self.is_browser)
        if not any(type(getattr(batch, name)) is list for name in _OF_HEAD):
            self._known = (ref(batch), depends, head)
        return head

    def _look_again(self) -> None:
        self._looks_again = False
        self._look_s = min(2 * self._look_s, self._longest_look_s)
        self.note_flushed()

    # ---- called by the session ---------------------------------------------------------------------------------------

    def note_flushed(self) -> None:
        """Confirm deliveries that were written to the socket: if the buffer is empty; otherwise check again soon.

        The buffer of a broken transport is empty too, before `connection_lost` is called: deliveries do not count as
        taken then.
        """
        if not self._unsent or self._connection.transport.is_closing():
            return
        if self._connection.idle():
            taken, self._unsent = self._unsent, []
            self._look_s = LOOK_AGAIN_S
            self._door.perform(self, ConfirmDeliveries(taken))
        elif not self._looks_again:
            self._looks_again = True
            self._door.runtime.loop.call_later(self._look_s, self._look_again)

    def lose(self) -> None:
        """Confirm no more deliveries: the connection is closed."""
        self._unsent.clear()
