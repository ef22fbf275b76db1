"""Rows for requests that the bus itself refused: no responder, or too many open requests.

The requester has received the error on its wire. The row tells all other readers how the request ended: it refers to
the request like any answer and has the error code, but no payload and no hop. A timeout writes no row: the request's
own row contains the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raceway.broker.peers import Pending
from raceway.errors import BusyError, NoRouteError, RacewayError
from raceway.model.envelope import OWN_NAME, RESPONSE, Batch, agreed


def unserved_rows(batch: Batch, rows: list[int], first: int) -> Batch:
    """Build the rows for requests without a responder: these rows of a batch that was stored at `first`."""
    asked = batch if len(rows) == batch.count else batch.keep(rows)
    ids: list[bytes] = list(asked.column("message_id"))
    roots = [root or own for root, own in zip(asked.column("correlation_id"), ids, strict=True)]
    columns = {"wire": asked.wire, "topic": asked.topic, "correlation_id": roots}
    return _rows(NoRouteError, ids, answers=[first + row for row in rows], **columns)


def evicted_rows(requests: Sequence[tuple[bytes, Pending]]) -> Batch:
    """Build the rows for evicted requests, each given with its wire. The requests were stored."""
    gone = [request for _, request in requests]
    return _rows(
        BusyError,
        [request.message_id for request in gone],
        wire=agreed([wire for wire, _ in requests]),
        topic=agreed([request.topic.encoded for request in gone]),
        correlation_id=[request.correlation_id for request in gone],
        answers=[request.sequence for request in gone],
    )


def _rows(error: type[RacewayError], ids: list[bytes], **columns: Any) -> Batch:
    common = {"kind": RESPONSE, "producer": OWN_NAME, "error": error.code.encode(), "payload": [b""] * len(ids)}
    return Batch(len(ids), message_id=ids, parent_id=ids, **common, **columns)
