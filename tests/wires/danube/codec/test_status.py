from __future__ import annotations

from raceway import errors
from raceway.net.codec.grpc_head import Status
from raceway.wires.danube.codec.status import STATUSES, status_of

# Faults that never reach a Danube client as such, or whose status is INTERNAL on purpose.
OURS = {
    "pipeline",
    "missing_rows",
    "internal",
    "config",
    "journal",
    "locked",
    "format_version",
    "damaged",
    "trimmed",
    "connection_lost",
    "unsupported",
}
OTHER_WIRES = {"no_route", "timeout", "unmatched_answer", "unknown_peer", "unknown_queue", "queue_kind", "remote"}
RETRIED = {Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED}


def every_error() -> list[type[errors.RacewayError]]:
    found, waiting = [], [errors.RacewayError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith(f"{errors.__name__}.")]


def test_every_error_has_a_status() -> None:
    told = {kind.code for kind in every_error() if kind.maybe_entry(STATUSES) not in (None, Status.INTERNAL)}
    assert {kind.code for kind in every_error()} - OURS - OTHER_WIRES == told


def test_what_may_succeed_later_makes_clients_try_again() -> None:
    for kind in every_error():
        status = kind.maybe_entry(STATUSES)
        if kind.retriable and status not in (None, Status.INTERNAL):
            assert status in RETRIED, kind


def test_what_cannot_succeed_later_is_raised_at_once() -> None:
    for kind in every_error():
        # Read-only ends with a restart, which clients do not notice: they go on when it is over.
        if not kind.retriable and kind.code != "read_only":
            assert kind.maybe_entry(STATUSES) not in RETRIED, kind


def test_our_own_faults_are_internal() -> None:
    assert status_of(errors.JournalError("x")) is Status.INTERNAL
