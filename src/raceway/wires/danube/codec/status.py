"""gRPC statuses for the errors of the bus, on the Danube wire; the text is the error's own.

Danube's clients retry on `UNAVAILABLE`, `DEADLINE_EXCEEDED` and `RESOURCE_EXHAUSTED` and raise everything else to the
application at once. So an error that may succeed later must have one of these three.
"""

from __future__ import annotations

from raceway.errors import RacewayError
from raceway.net.codec.grpc_head import Status

STATUSES = {
    # The request itself is wrong: sending it again cannot help.
    "malformed": Status.INVALID_ARGUMENT,
    "name_invalid": Status.INVALID_ARGUMENT,
    "name_reserved": Status.INVALID_ARGUMENT,
    "invalid": Status.INVALID_ARGUMENT,
    "invalid_value": Status.INVALID_ARGUMENT,
    "too_large": Status.INVALID_ARGUMENT,
    "schema_invalid": Status.INVALID_ARGUMENT,
    # gRPC's statuscodes: PERMISSION_DENIED is only for callers whose identity is known.
    "unauthenticated": Status.UNAUTHENTICATED,
    "too_many_failures": Status.UNAUTHENTICATED,
    "forbidden": Status.PERMISSION_DENIED,
    "schema_refused": Status.PERMISSION_DENIED,
    "unknown": Status.NOT_FOUND,
    "unknown_topic": Status.NOT_FOUND,
    "unknown_table": Status.NOT_FOUND,
    "unknown_message": Status.NOT_FOUND,
    "unknown_namespace": Status.NOT_FOUND,
    "unknown_producer": Status.NOT_FOUND,
    "unknown_consumer": Status.NOT_FOUND,
    "unknown_subscription": Status.NOT_FOUND,
    "unknown_role": Status.NOT_FOUND,
    "unknown_binding": Status.NOT_FOUND,
    "unknown_schema": Status.NOT_FOUND,
    "name_taken": Status.ALREADY_EXISTS,
    "pattern_text": Status.INVALID_ARGUMENT,
    "pin_taken": Status.ALREADY_EXISTS,
    "unreachable": Status.UNAVAILABLE,
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
    "draining": Status.UNAVAILABLE,
}


def status_of(error: RacewayError) -> Status:
    """Return the status for an error that refused a call."""
    # Errors without an entry are our own fault, and say nothing to a client.
    return STATUSES.get(error.code, Status.INTERNAL)
