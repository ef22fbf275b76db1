"""Rows for requests that the bus itself refused: no responder, or too many open requests.

The requester has received the error on its wire. The row tells all other readers how the request ended: it refers to
the request like any answer and has the error code, but no payload and no hop. A timeout writes no row: the request's
own row contains the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence

from raceway.broker.peers import Pending
from raceway.errors import BusyError, NoRouteError, RacewayError
from raceway.model.envelope import OWN_NAME, RESPONSE, Batch, Column, agreed


def unserved_rows(batch: Batch, rows: list[int], first: int) -> Batch:
    """Build the rows for requests without a responder: these rows of a batch that was stored at `first`."""
    asked = batch if len(rows) == batch.count else batch.keep(rows)
    ids: list[bytes] = list(asked.column("message_id"))
    roots = [root or own for root, own in zip(asked.column("correlation_id"), ids, strict=True)]
    return _rows(NoRouteError, asked.wire, asked.topic, ids, roots, [first + row for row in rows])


def evicted_rows(requests: Sequence[tuple[bytes, Pending]]) -> Batch:
    """Build the rows for evicted requests, each given with its wire. The requests were stored."""
    wires, gone = [wire for wire, _ in requests], [request for _, request in requests]
    topics, ids = [request.topic.encoded for request in gone], [request.message_id for request in gone]
    roots, positions = [request.correlation_id for request in gone], [request.sequence for request in gone]
    return _rows(BusyError, agreed(wires), agreed(topics), ids, roots, positions)  # type: ignore[arg-type]  # stored


def _rows(
    error: type[RacewayError],
    wire: Column[bytes],
    topic: Column[bytes],
    ids: list[bytes],
    roots: list[bytes],
    positions: list[int],
) -> Batch:
    return Batch(
        len(ids),
        wire=wire,
        kind=RESPONSE,
        producer=OWN_NAME,
        topic=topic,
        message_id=ids,
        parent_id=ids,
        correlation_id=roots,
        answers=positions,
        error=error.code.encode(),
        payload=[b""] * len(ids),
    )
