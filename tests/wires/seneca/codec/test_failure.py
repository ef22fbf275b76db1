"""Errors: of the bus in Seneca's words, and those that services tell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raceway import errors
from raceway.model.document import raw_members, raw_of, read_members
from raceway.wires.seneca.codec.failure import (
    SENECA_CODES,
    CallFailure,
    failure_of,
    failure_payload,
    not_found,
    plain_error,
    read_failure,
    read_failure_payload,
    wrapped_error,
)
from tests.rigs.vectors.seneca import VECTORS

MEMBERS = raw_members({"role": "nobody"})

ERRORS: list[tuple[errors.RacewayError, str, int]] = [
    (errors.NoRouteError("a"), "act_not_found", 500),
    (errors.RequestTimeoutError("a", "b"), "action_timeout", 500),
    (errors.BusyError("full"), "overloaded", 500),
    (errors.ReadOnlyError("disk"), "overloaded", 500),
    (errors.DiskFullError("disk"), "overloaded", 500),
    (errors.DrainingError("stopping"), "overloaded", 500),
    (errors.ForbiddenError("me", "publish"), "forbidden", 500),
    (errors.TooLargeError("message", 5, 4), "too_large", 413),
    (errors.NameReservedError("system.x"), "invalid_message", 400),
    (errors.NameInvalidError("a b", "why"), "invalid_message", 400),
    (errors.NameTakenError("A", "a"), "invalid_message", 400),
    (errors.RemoteError("x", "y"), "act_execute", 500),
]


@pytest.mark.parametrize(("error", "code", "status"), ERRORS, ids=lambda each: getattr(each, "code", None))
def test_errors_of_the_bus_have_words_of_seneca(error: errors.RacewayError, code: str, status: int) -> None:
    failure = failure_of(error, MEMBERS)
    assert (failure.code, failure.status, failure.is_seneca) == (code, status, True)
    assert failure.message.startswith("seneca: ")


def test_what_has_no_word_tells_nothing() -> None:
    failure = failure_of(errors.FormatVersionError("/secret/file", 2, 1), MEMBERS)
    assert (failure.code, failure.status) == ("act_execute", 500)
    assert "secret" not in failure.message


def test_a_message_that_nobody_takes_is_shown() -> None:
    assert not_found(MEMBERS).message == VECTORS["V11"].answer.document["message"]


def test_a_timeout_says_so_in_the_words_that_callers_look_for() -> None:
    assert "[TIMEOUT]" in failure_of(errors.RequestTimeoutError("a", "b"), MEMBERS).message


def test_every_error_of_a_peer_or_of_being_unavailable_has_a_word() -> None:
    told = [*descendants(errors.UnavailableError), *descendants(errors.PeerError)]
    assert all(each.maybe_entry(SENECA_CODES) for each in told)


def descendants(kind: type[errors.RacewayError]) -> list[type[errors.RacewayError]]:
    return [kind, *[each for below in kind.__subclasses__() for each in descendants(below)]]


# ---- read -----------------------------------------------------------------------------------------------------------

WRAPPED = VECTORS["V27"].answer.text


def test_a_wrapped_error_is_unwrapped() -> None:
    failure = read_failure(read_members(WRAPPED))
    assert (failure.code, failure.message, failure.is_seneca) == ("div_zero", "division by zero", False)


def test_an_error_of_seneca_stays_what_it_is() -> None:
    error = VECTORS["V31"].answer.document["error"]
    failure = read_failure(raw_members(error))
    assert (failure.code, failure.is_seneca, failure.message) == ("act_not_found", True, error["message"])


@pytest.mark.parametrize(
    ("document", "code", "message"),
    [
        ({}, "act_execute", "act_execute"),
        ({"message": "boom"}, "act_execute", "boom"),
        ({"msg": "boom", "code": 5}, "act_execute", "boom"),
        ({"code": "act_execute", "seneca": True, "message": "M"}, "act_execute", "M"),
        ({"code": "act_execute", "seneca": True, "orig": {"code": "c", "message": "m"}}, "c", "m"),
        ({"code": "act_execute", "seneca": True, "details": "x", "orig": "y", "message": "M"}, "act_execute", "M"),
    ],
)
def test_of_an_error_that_says_little_something_is_made(document: dict[str, Any], code: str, message: str) -> None:
    failure = read_failure(raw_members(document))
    assert (failure.code, failure.message) == (code, message)


@pytest.mark.parametrize("details", [None, {"a": [1]}, "text", 0])
@pytest.mark.parametrize("is_seneca", [True, False])
def test_an_error_survives_the_bus_and_every_dialect(details: Any, is_seneca: bool) -> None:
    failure = CallFailure("code", "message", None if details is None else raw_of(details), is_seneca)
    for document in (failure_payload(failure), wrapped_error(failure, "a:1"), plain_error(failure)):
        again = read_failure(read_members(document))
        assert (again.code, again.message) == ("code", "message")
        assert (again.details and json.loads(bytes(again.details))) == (details if details is None else details or 0)
    assert read_failure_payload(failure_payload(failure), "x").is_seneca is is_seneca


def test_a_payload_that_is_no_error_object_is_the_message() -> None:
    failure = read_failure_payload(b"\xffplain words", "500")
    assert (failure.code, failure.message) == ("500", "\ufffdplain words")
