"""Events of the zbus codec in a form that does not show how messages were gathered; receivers that learn as told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from raceway.model.envelope import Batch
from raceway.wires.zbus.codec.head import ZbusHead, ZbusLimits
from raceway.wires.zbus.codec.receiver import Ask, Produce, ZbusEvent, ZbusReceiver
from raceway.wires.zbus.codec.shapes import Shape, Shapes
from raceway.wires.zbus.codec.stream import Continue100, ZbusStream

ROW = (
    "kind", "topic", "message_id", "reply_to", "parent_id", "encoding", "routing_key", "schema_id", "schema_version",
    "attributes", "payload",
)  # fmt: skip
BESIDE = ("ack", "token", "topic", "status", "browser")


class Forgetful(Shapes):
    """Learns nothing, so that every head is read line by line."""

    def maybe_learn(self, head: ZbusHead, may_make: bool) -> tuple[Shape | None, bool]:
        return None, False


class Curious(Shapes):
    """Knows nothing of other tests, and learns on the first appearance."""

    def maybe_learn(self, head: ZbusHead, may_make: bool) -> tuple[Shape | None, bool]:
        super().maybe_learn(head, may_make)
        return super().maybe_learn(head, may_make)


def receiver(limits: ZbusLimits, shapes: Shapes) -> ZbusReceiver:
    made = ZbusReceiver(limits)
    made._stream = ZbusStream(limits, shapes)
    return made


def strict(limits: ZbusLimits | None = None) -> ZbusReceiver:
    return receiver(limits or ZbusLimits(), Forgetful())


def curious(limits: ZbusLimits | None = None) -> ZbusReceiver:
    return receiver(limits or ZbusLimits(), Curious())


def flat(events: Iterable[ZbusEvent]) -> list[Any]:
    """Batches written out row by row; without `Continue100`, which depends on how much of a body is there already."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, Produce | Ask):
            found += rows(event)
        elif not isinstance(event, Continue100):
            found.append(event)
    return found


def rows(event: Produce | Ask) -> list[dict[str, Any]]:
    batch = event.batch
    assert batch.wire == b"zbus"
    _check_lengths(batch, event)
    found = []
    for row in range(batch.count):
        one = {name: batch.item(name, row) for name in ROW}
        one |= {f"zbus {name}": _item(getattr(event, name), row) for name in BESIDE}
        found.append(one)
    return found


def _item(column: Any, row: int) -> Any:
    return column[row] if type(column) is list else column


def _check_lengths(batch: Batch, event: Produce | Ask) -> None:
    columns = [*vars(batch).values(), *(getattr(event, name) for name in BESIDE)]
    assert all(len(column) == batch.count for column in columns if type(column) is list)


def received_bytewise(made: ZbusReceiver, data: bytes) -> list[Any]:
    return [event for at in range(len(data)) for event in flat(made.receive_data(data[at : at + 1]))]
