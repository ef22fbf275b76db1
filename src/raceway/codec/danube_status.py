"""How the errors of the bus are answered on the Danube wire; the sentence is the error's own.

`UNAVAILABLE`, `DEADLINE_EXCEEDED` and `RESOURCE_EXHAUSTED` make a client try again, everything else is raised to its
application at once. So a code is also a decision: what may succeed later is one of the three.
"""

from __future__ import annotations

from raceway.codec.grpc_head import Status
from raceway.errors import RacewayError

STATUSES = {
    "malformed": Status.INVALID_ARGUMENT,
    "name_invalid": Status.INVALID_ARGUMENT,
    "name_reserved": Status.INVALID_ARGUMENT,
    "invalid": Status.INVALID_ARGUMENT,
    "invalid_value": Status.INVALID_ARGUMENT,
    "too_large": Status.INVALID_ARGUMENT,
    "schema_invalid": Status.INVALID_ARGUMENT,
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
    "mismatch": Status.FAILED_PRECONDITION,
    "in_use": Status.FAILED_PRECONDITION,
    "schema_incompatible": Status.FAILED_PRECONDITION,
    "schema_reference": Status.FAILED_PRECONDITION,
    "schema_in_use": Status.FAILED_PRECONDITION,
    "schema_deletion": Status.FAILED_PRECONDITION,
    "schema_read_only": Status.FAILED_PRECONDITION,
    "limit": Status.RESOURCE_EXHAUSTED,
    "busy": Status.RESOURCE_EXHAUSTED,
    "disk_full": Status.RESOURCE_EXHAUSTED,
    "read_only": Status.RESOURCE_EXHAUSTED,
    "unavailable": Status.UNAVAILABLE,
    "draining": Status.UNAVAILABLE,
}


def status_of(error: RacewayError) -> Status:
    """Of a refusal: nothing was done."""
    return STATUSES.get(error.code, Status.INTERNAL)
