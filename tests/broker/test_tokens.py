from __future__ import annotations

import jwt
import pytest

from raceway.broker.tokens import REMEMBERED, TokenReader
from raceway.errors import UnauthenticatedError
from raceway.model.security import Principal
from tests.danube_tokens import ISSUER, SECRET, token


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(clock: Clock) -> TokenReader:
    return TokenReader(SECRET, ISSUER, clock)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_good_token_names_its_principal(reader: TokenReader, scheme: str) -> None:
    found = reader.principal(f"{scheme} {token('till-4', exp=1_000_001)}")
    assert found == Principal("service_account", "till-4")
    assert str(found) == "service_account:till-4"


def test_a_token_is_good_until_it_ends_and_not_a_moment_longer(reader: TokenReader, clock: Clock) -> None:
    authorization = f"Bearer {token('x', exp=1_000_010)}"
    reader.principal(authorization)
    clock.now = 1_000_009.9
    reader.principal(authorization)
    clock.now = 1_000_010
    with pytest.raises(UnauthenticatedError, match="expired"):
        reader.principal(authorization)


def test_a_token_seen_before_is_not_verified_again(reader: TokenReader, monkeypatch: pytest.MonkeyPatch) -> None:
    authorization = f"Bearer {token('x')}"
    reader.principal(authorization)
    monkeypatch.setattr(jwt, "decode", lambda *_, **__: pytest.fail("verified twice"))
    assert reader.principal(authorization).name == "x"


def test_more_tokens_than_are_remembered_are_served(reader: TokenReader) -> None:
    for number in range(REMEMBERED + 2):
        assert reader.principal(f"Bearer {token(str(number))}").name == str(number)


@pytest.mark.parametrize("expires", ["soon", True, [1]])
def test_an_end_that_is_no_time_is_refused(reader: TokenReader, expires: object) -> None:
    claims = {"iss": ISSUER, "principal_type": "user", "principal_name": "x", "exp": expires}
    with pytest.raises(UnauthenticatedError):
        reader.principal("Bearer " + jwt.encode(claims, SECRET, algorithm="HS256"))


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Bearer a.b.c", "token x", "Bearer \u00e9\u0000"])
def test_what_is_no_token_is_refused(reader: TokenReader, authorization: str) -> None:
    with pytest.raises(UnauthenticatedError):
        reader.principal(authorization)


def test_the_key_of_another_algorithm_family_is_no_secret(reader: TokenReader) -> None:
    with pytest.raises(UnauthenticatedError):
        reader.principal("Bearer " + jwt.encode({"iss": ISSUER, "exp": 2_000_000}, SECRET, algorithm="HS384"))
