"""Handlers that wait: outcomes, errors, and what they are told at each step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from raceway.broker.steps import Steps, run, run_here
from raceway.errors import UnavailableError


def halves(number: int) -> Callable[[], float]:
    return lambda: 12 / number


def test_a_handler_is_told_the_result_of_each_step_and_returns_the_outcome() -> None:
    def handler() -> Steps[list[float]]:
        first = yield partial(run_here, halves(2))
        second = yield partial(run_here, halves(3))
        return [first, second]

    outcomes: list[Any] = []
    run(handler(), outcomes.append)
    assert outcomes == [[6, 4]]


def test_an_error_is_raised_where_the_handler_waits_and_may_be_handled() -> None:
    def handler() -> Steps[str]:
        try:
            yield partial(run_here, halves(0))
        except ZeroDivisionError:
            yield partial(run_here, halves(1))
        return "handled"

    outcomes: list[Any] = []
    run(handler(), outcomes.append)
    assert outcomes == ["handled"]


def test_an_error_that_is_not_handled_is_the_outcome() -> None:
    def handler() -> Steps[None]:
        yield partial(run_here, halves(1))
        raise UnavailableError("no")

    outcomes: list[Any] = []
    run(handler(), outcomes.append)
    assert isinstance(outcomes[0], UnavailableError)


def test_a_step_may_end_later() -> None:
    waiting: list[Callable[[Any], None]] = []

    def handler() -> Steps[int]:
        found: int = yield waiting.append
        return found + 1

    outcomes: list[Any] = []
    run(handler(), outcomes.append)
    assert outcomes == []
    waiting[0](41)
    assert outcomes == [42]
