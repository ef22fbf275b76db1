"""gRPC statuses for the errors of the bus, on the Danube wire; the text is the error's own.

Danube's clients retry on `UNAVAILABLE`, `DEADLINE_EXCEEDED` and `RESOURCE_EXHAUSTED` and raise everything else to the
application at once. So an error that may succeed later must have one of these three.
"""

from __future__ import annotations

from raceway.errors import RacewayError
from raceway.net.codec.grpc_head import Status

# Code of the bus to status, for an error and the classes below it.
STATUSES = {
    # The request itself is wrong: sending it again cannot help.
    "invalid": Status.INVALID_ARGUMENT,
    # gRPC's statuscodes: PERMISSION_DENIED is only for callers whose identity is known.
    "unauthenticated": Status.UNAUTHENTICATED,
    "forbidden": Status.PERMISSION_DENIED,
    "schema_refused": Status.PERMISSION_DENIED,
    "unknown": Status.NOT_FOUND,
    "unknown_schema": Status.NOT_FOUND,
    "name_taken": Status.ALREADY_EXISTS,
    "pin_taken": Status.ALREADY_EXISTS,
    "topic_kind": Status.ALREADY_EXISTS,
    # The request is well-formed, but the state of the bus does not allow it.
    "mismatch": Status.FAILED_PRECONDITION,
    "in_use": Status.FAILED_PRECONDITION,
    "schema_incompatible": Status.FAILED_PRECONDITION,
    "schema_reference": Status.FAILED_PRECONDITION,
    "schema_in_use": Status.FAILED_PRECONDITION,
    "schema_deletion": Status.FAILED_PRECONDITION,
    "schema_read_only": Status.FAILED_PRECONDITION,
    # May succeed later: clients retry these.
    "limit": Status.RESOURCE_EXHAUSTED,
    "busy": Status.RESOURCE_EXHAUSTED,
    "disk_full": Status.RESOURCE_EXHAUSTED,
    "read_only": Status.RESOURCE_EXHAUSTED,
    "unavailable": Status.UNAVAILABLE,
    # Of requests, queues and clients, which this wire does not have.
    "no_route": Status.INTERNAL,
    "timeout": Status.INTERNAL,
    "unmatched_answer": Status.INTERNAL,
    "unknown_peer": Status.INTERNAL,
    "unknown_queue": Status.INTERNAL,
    "queue_kind": Status.INTERNAL,
    "remote": Status.INTERNAL,
}


def status_of(error: RacewayError) -> Status:
    """Return the status for an error that refused a call."""
    # Errors without an entry are our own fault, and say nothing to a client.
    status = error.maybe_entry(STATUSES)
    return Status.INTERNAL if status is None else status
