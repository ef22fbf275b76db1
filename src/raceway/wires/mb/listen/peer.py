"""The client of an MB connection, as the broker sees it: everything that is written to it, and the audit of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.door import Door
from raceway.broker.peers import Encoder, Pending, RowEncoder
from raceway.broker.runs import Run
from raceway.errors import RacewayError
from raceway.model.envelope import MB, Batch
from raceway.model.failure import maybe_failure_code
from raceway.model.intents.peers import Audit
from raceway.net.connection import Connection
from raceway.net.ids import random_id
from raceway.wires.mb.codec import audit, system
from raceway.wires.mb.codec import encode as mb
from raceway.wires.mb.codec.encode import FrameMaker
from raceway.wires.mb.codec.header import MbHeader, MbRefused
from raceway.wires.mb.codec.topics import is_mb_topic

FOREIGN_VERSION = b"1.0.0"


class PublishEncoder(RowEncoder):
    """Encodes publishes in this kind of frame."""

    def __init__(self, frame: FrameMaker) -> None:
        self._frame = frame

    def rows(self, batch: Batch, ids: list[bytes]) -> list[bytes]:
        topics, version, payloads = batch.topic, batch.version, batch.payload
        assert type(topics) is list
        assert type(payloads) is list
        if type(version) is list:
            version = [each or FOREIGN_VERSION for each in version]
        return mb.mixed_deliveries(topics, version or FOREIGN_VERSION, ids, payloads, self._frame)  # type: ignore[arg-type]  # every row has one

    def __call__(self, run: Run) -> bytes:
        frame, batch, (_, sent, start, stop) = self._frame, run.batch, run.span
        version, payloads = batch.version, batch.payload
        assert type(payloads) is list
        ids = run.ids
        if stop - start < batch.count:
            ids, payloads = ids[start:stop], payloads[start:stop]
        if type(version) is not list:
            return mb.deliveries(sent, version or FOREIGN_VERSION, ids, payloads, frame)  # type: ignore[arg-type]  # every row has an id
        return b"".join(
            mb.deliveries(sent, version[start + row] or FOREIGN_VERSION, [ids[row]], [payloads[row]], frame)  # type: ignore[list-item]  # every row has an id
            for row in range(stop - start)
        )


def bare(length: int) -> bytes:
    """Frame nothing: messages in audit records have no frame."""
    return b""


_bare_encoder = PublishEncoder(bare)


class MbPeer(LivePeer):
    """Writes to its connection with `frame`, which differs between TCP and WebSocket."""

    wire: ClassVar[bytes] = MB
    folds_case: ClassVar[bool] = True

    def __init__(self, door: Door, connection: Connection, frame: FrameMaker, encoder: Encoder) -> None:
        super().__init__(connection.id, connection.connected_us, encoder)
        self.network, self.last_heard = connection.network, connection.heard_us
        self.address, self.hang_up = connection.address, connection.hang_up
        self._door, self._connection, self.frame = door, connection, frame
        self._runtime = door.runtime

    def spells(self, name: str) -> bool:
        return is_mb_topic(name)

    # ---- copies ------------------------------------------------------------------------------------------------------

    def write_run(self, run: Run, data: bytes) -> None:
        self._connection.write(data)
        if self._runtime.audited:
            for row in range(run.span.start, run.span.stop):
                one = run.span._replace(start=row, stop=row + 1)
                self.audit_sent(_bare_encoder(Run(one, run.batch, run.ids)))

    def write_rows(self, data: bytes) -> None:
        self._connection.write(data)

    def has_room(self) -> bool:
        return self.open and not self._connection.is_full

    def taken(self) -> int:
        return self._connection.taken()

    def detach(self) -> bool:
        if not super().detach():
            return False
        self._connection.lower_mark()
        return True

    def emit(self, run: Run) -> None:
        super().emit(run)
        self._connection.flush()

    def overrun(self) -> None:
        self._connection.cut("too many subscription changes during catch-up", "bus.slow_closed")

    # ---- requests and answers ----------------------------------------------------------------------------------------

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        told = (request.sent, request.version or FOREIGN_VERSION, request.forwarded_id, batch.item("payload", row))
        self._connection.write(mb.forwarded(*told, self.frame))
        if self._runtime.audited:
            self.audit_sent(mb.forwarded(*told, bare))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        payload = batch.item("payload", row)
        failure = batch.item("error", row)
        if failure is not None and batch.item("wire", row) != MB and maybe_failure_code(payload) is None:
            payload = mb.failure_payload(failure, payload, self._runtime.clock_us())
        told = (request.sent, request.version or FOREIGN_VERSION, request.message_id, payload)
        self._connection.write(mb.answer(*told, self.frame))
        if self._runtime.audited:
            self.audit_sent(mb.answer(*told, bare))

    def forward_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        alike = None if self._runtime.audited else _maybe_alike(requests)
        if alike is None:
            super().forward_all(requests, batch, rows)
        else:
            ids = [request.forwarded_id for request in requests]
            self._connection.write(mb.requests(*alike, ids, _payloads(batch, rows), self.frame))

    def answer_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        # Failures of other wires are told in the form of this one, each by itself.
        alike = None if self._runtime.audited or batch.error is not None else _maybe_alike(requests)
        if alike is None:
            super().answer_all(requests, batch, rows)
        else:
            ids = [request.message_id for request in requests]
            self._connection.write(mb.answers(*alike, ids, _payloads(batch, rows), self.frame))

    def fail(self, request: Pending, error: RacewayError) -> None:
        head = MbHeader(b"request", request.sent, request.version or FOREIGN_VERSION, request.message_id)
        self.reply(mb.refusal_of(error, head), "warn")

    # ---- messages of the broker --------------------------------------------------------------------------------------

    def announce(self, topic: str, payload: bytes) -> None:
        if self._may_add():
            self._connection.write(audit.system_message(payload, self.frame))

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        if self._may_add():
            self.say(lambda frame: system.log_record(level, message, time_us, extra, frame))

    def _may_add(self) -> bool:
        """Return whether a system message may be written. A full peer misses it, which is counted."""
        if self._connection.is_full:
            self._runtime.counts["bus.answers_dropped"] += 1
            return False
        return True

    def reply(self, refused: MbRefused, level: str | None) -> None:
        """Write an error reply, and a log record of this level."""
        fresh_id, now = random_id(), self._runtime.clock_us()
        self.say(lambda frame: mb.error_reply(refused, fresh_id, now, frame))
        if level is not None:
            self._runtime.emit(level, f"[{refused.code}] {refused.text}", module="mb")

    def say(self, encode: Callable[[FrameMaker], bytes]) -> int:
        """Write one message of the broker, and its audit record if the audit has subscribers. Return its size."""
        said = encode(self.frame)
        self._connection.write(said)
        if self._runtime.audited:
            self.audit_sent(encode(bare))
        return len(said)

    # ---- audit -------------------------------------------------------------------------------------------------------

    def audit_received(self, batch: Batch) -> None:
        now = self._runtime.clock_us()
        for row in range(batch.count):
            head = MbHeader(
                *(batch.item(n, row) for n in ("kind", "topic", "version", "message_id", "parent_id", "timeout_ms"))
            )
            self.audit(audit.audit_received(head, batch.item("payload", row), self.id, now))

    def audit_sent(self, message: bytes) -> None:
        """Write the audit record of an unframed message that was sent to this peer."""
        header, _, payload = message.partition(b"\n")
        action, topic, version, message_id = (*header.split(b":"), None)[:4]
        head = MbHeader(action or b"", topic or b"", version or b"", message_id)
        original = self._door.view.unmasked(head.message_id) if head.message_id is not None else None
        masked = original if original != head.message_id and head.action != b"response" else None
        self.audit(audit.audit_sent(head, payload, self.id, self._runtime.clock_us(), masked))

    def audit(self, record: bytes) -> None:
        self._door.perform(self, Audit(record))


def _maybe_alike(requests: list[Pending]) -> tuple[bytes, bytes] | None:
    """Return topic and version of requests that have the same; None if they differ, or if there is only one."""
    alike = {(request.sent, request.version) for request in requests}
    if len(alike) > 1 or len(requests) == 1:
        return None
    ((sent, version),) = alike
    return sent, version or FOREIGN_VERSION


def _payloads(batch: Batch, rows: list[int]) -> list[bytes]:
    payloads = batch.payload
    assert type(payloads) is list
    return payloads if len(rows) == batch.count else [payloads[row] for row in rows]  # type: ignore[return-value, misc]  # every row has one
