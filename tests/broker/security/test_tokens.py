from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from hmac import digest
from typing import Any

import jwt
import pytest

from raceway import config
from raceway.broker.security.tokens import REMEMBERED, TokenReader
from raceway.errors import UnauthenticatedError
from raceway.model.security import Principal
from tests.rigs.danube_tokens import ISSUER, SECRET, token


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
    return made(clock, token_life_s=10_000_000_000)  # the clock stands in 1970, most tokens do not


def made(clock: Clock, **settings: Any) -> TokenReader:
    return TokenReader(config.SecuritySettings(token_secret=SECRET, token_issuer=ISSUER, **settings), clock)


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


def signed(claims: str) -> str:
    """A token with claims as they are: libraries do not write such numbers."""
    parts = [urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"HS256","typ":"JWT"}', claims.encode())]
    signature = digest(SECRET.encode(), b".".join(parts), sha256)
    return b".".join([*parts, urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize("expires", ["NaN", "Infinity", "-Infinity", "1e400", "1e30", "9" * 400])
def test_an_end_that_never_comes_is_refused(clock: Clock, expires: str) -> None:
    claims = {"iss": ISSUER, "principal_type": "user", "principal_name": "x"}
    token_without_end = signed(json.dumps(claims)[:-1] + f', "exp": {expires}}}')
    with pytest.raises(UnauthenticatedError):
        made(clock).principal(f"Bearer {token_without_end}")


def test_a_token_lives_no_longer_than_it_may(clock: Clock) -> None:
    reader = made(clock, token_life_s=3600)
    assert reader.principal(f"Bearer {token('x', exp=1_003_600)}").name == "x"
    assert reader.principal(f"Bearer {token('x', exp=1_003_601, iat=1_000_001)}").name == "x"
    too_long: list[dict[str, Any]] = [{"exp": 1_003_601}, {"exp": 1_003_600, "iat": 999_999}]
    for claims in too_long:
        with pytest.raises(UnauthenticatedError, match="valid for more than 3600 s"):
            reader.principal(f"Bearer {token('x', **claims)}")


@pytest.mark.parametrize("leeway", [0, 30])
def test_clocks_may_be_apart_by_the_leeway_and_no_more(clock: Clock, leeway: int) -> None:
    reader, authorization = made(clock, token_leeway_s=leeway), f"Bearer {token('x', exp=1_000_010)}"
    clock.now = 1_000_009.9 + leeway
    assert reader.principal(authorization).name == "x"
    clock.now = 1_000_010 + leeway
    with pytest.raises(UnauthenticatedError, match="expired"):
        reader.principal(authorization)


@pytest.mark.parametrize(
    ("ours", "theirs", "is_good"),
    [
        ("", None, True),
        ("", "another service", False),
        ("", ["another service"], False),
        ("bus", None, False),
        ("bus", "another service", False),
        ("bus", "bus", True),
        ("bus", ["another service", "bus"], True),
        ("bus", ["another service"], False),
        ("bus", 7, False),
    ],
)
def test_a_token_for_another_service_is_not_for_us(clock: Clock, ours: str, theirs: object, is_good: bool) -> None:
    reader, authorization = made(clock, token_audience=ours), f"Bearer {token('x', exp=1_000_010, aud=theirs)}"
    if is_good:
        assert reader.principal(authorization).name == "x"
    else:
        with pytest.raises(UnauthenticatedError, match="not valid"):
            reader.principal(authorization)
