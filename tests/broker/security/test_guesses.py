from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.broker.security.guesses import REMEMBERED, Guesses
from raceway.broker.security.security import Security
from raceway.errors import TooManyFailuresError, UnauthenticatedError
from raceway.journal.state import State
from tests.rigs.danube_tokens import ISSUER, SECRET, token


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guesses(clock: Clock, **settings: Any) -> Guesses:
    return Guesses(
        config.SecuritySettings(free_failures=3, failure_wait_s=1.0, failure_wait_max_s=8.0, **settings), clock
    )


def test_some_are_free_then_each_wait_is_twice_as_long_up_to_a_limit(clock: Clock) -> None:
    found = guesses(clock)
    waits = []
    for _ in range(8):
        clock.now += found.wait_s("a")
        found.fail(["a"])
        waits.append(found.wait_s("a"))
    assert waits == [0, 0, 1, 2, 4, 8, 8, 8]
    assert found.failed == 8


def test_who_must_wait_is_refused_and_that_makes_it_no_longer(clock: Clock) -> None:
    found = guesses(clock)
    for _ in range(3):
        found.fail(["a"])
    for _ in range(5):
        with pytest.raises(TooManyFailuresError, match="wait 1 s"):
            found.fail(["a"])
    assert (found.failed, found.refused, found.wait_s("a")) == (3, 5, 1.0)
    found.check(["b"])


def test_who_is_silent_for_long_begins_anew(clock: Clock) -> None:
    found = guesses(clock)
    for _ in range(3):
        found.fail(["a"])
    clock.now += 1 + 8 + 0.1
    found.fail(["a"])
    assert found.wait_s("a") == 0


def test_a_principal_is_guessed_from_many_addresses(clock: Clock) -> None:
    found = guesses(clock)
    for number in range(3):
        found.fail([str(number), "user:root"])
    with pytest.raises(TooManyFailuresError):
        found.fail(["another", "user:root"])


def test_it_can_be_switched_off(clock: Clock) -> None:
    found = Guesses(config.SecuritySettings(free_failures=0), clock)
    for _ in range(50):
        found.fail(["a"])
    assert found.failed == 50


def test_what_is_remembered_is_bounded(clock: Clock) -> None:
    found = guesses(clock)
    for number in range(REMEMBERED + 5):
        found.fail([str(number)])
    assert len(found._failures) == REMEMBERED


def test_a_good_token_never_waits_and_a_code_does() -> None:
    settings = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, free_failures=3)
    security = Security(settings, State(), lambda *_: None)
    for _ in range(3):
        with pytest.raises(UnauthenticatedError):
            security.identify(f"Bearer {token('root', secret='guessed ' * 8)}", "http", "10.0.0.9")
    with pytest.raises(TooManyFailuresError):
        security.identify(f"Bearer {token('root', secret='guessed ' * 8)}", "http", "10.0.0.9")
    assert security.identify(f"Bearer {token('root')}", "http", "10.0.0.9").name == "root"
    assert security.is_administrator(b"right", ("", "right"), "10.0.0.9"), "tokens are counted apart from codes"
    for _ in range(3):
        assert not security.is_administrator(b"wrong", ("right",), "10.0.0.9")
    for given in (b"right", b"wrong"):
        with pytest.raises(TooManyFailuresError):
            security.is_administrator(given, ("right",), "10.0.0.9")
    assert security.is_administrator(b"right", ("right",), "10.0.0.10")
    assert not security.is_administrator(b"", ("",), "10.0.0.9"), "where there is no code nobody has it"


def test_a_token_that_has_ended_is_no_guess() -> None:
    settings = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, free_failures=3)
    security = Security(settings, State(), lambda *_: None)
    for _ in range(5):
        with pytest.raises(UnauthenticatedError, match="expired"):
            security.identify(f"Bearer {token('root', exp=1_000_000)}", "http", "10.0.0.9")
    assert security.guesses.failed == 0
