"""Tokens: from the metadata `authorization` of a call to who is calling.

A token is a JWT signed with HS256 and the shared secret of the configuration. `iss`, `exp`, `principal_type` and
`principal_name` must be there; the issuer must be ours, and a token is good until `exp` and no longer, also when it was
seen before. `exp` is a finite time, not too far from `iat`, or from now where there is none. `aud` must name us where
we have a name; where we have none, a token that is for somebody else in particular is not for us (RFC 7519, 4.1.3).
Everything else in a token or beside it, such as a header that claims to be another broker, is not looked at.
"""

from __future__ import annotations

import math
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from raceway import config
from raceway.errors import UnauthenticatedError
from raceway.model.security import Principal

ALGORITHM = "HS256"
SCHEME = "bearer "
# Types a token may name; nobody becomes anonymous by a token.
TOKEN_TYPES = ("service_account", "user", "broker_internal")
# Tokens come from peers, so what is remembered of them is bounded.
REMEMBERED = 4096
# Between the parts of a JSON Web Token.
JWT_DOTS = 2
# Characters of a claimed principal that are kept: anybody may claim anything.
CLAIMED = 300


class Proof(NamedTuple):
    """Who a token names, and until when (Unix seconds)."""

    principal: Principal
    expires: float


class TokenReader:
    def __init__(self, settings: config.Security, clock_s: Callable[[], float]) -> None:
        self._settings, self._clock_s = settings, clock_s
        self._known: dict[str, Proof] = {}

    def principal(self, authorization: str) -> Principal:
        """Raises UnauthenticatedError."""
        return self.unexpired(authorization, self.proof(authorization))

    def proof(self, authorization: str) -> Proof:
        """What the token proves, whether it has ended or not. Raises UnauthenticatedError."""
        return self._known.get(authorization) or self._verify(authorization)

    def unexpired(self, authorization: str, proof: Proof) -> Principal:
        """Raises UnauthenticatedError."""
        if proof.expires + self._settings.token_leeway_s <= self._clock_s():
            self._known.pop(authorization, None)
            raise UnauthenticatedError("the token has expired")
        return proof.principal

    def _verify(self, authorization: str) -> Proof:
        if not authorization.lower().startswith(SCHEME):
            raise UnauthenticatedError("authorization must be a bearer token")
        proof = self._read(authorization[len(SCHEME) :].strip())
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[authorization] = proof
        return proof

    def _read(self, token: str) -> Proof:
        import jwt  # loaded when the first token comes: 70 ms that a start need not spend

        settings = self._settings
        required = ["iss", "exp", "aud"] if settings.token_audience else ["iss", "exp"]
        try:
            # Whether it has expired is looked at here too, each time, by the clock we were given.
            claims = jwt.decode(
                token, settings.token_secret, algorithms=[ALGORITHM], issuer=settings.token_issuer,
                audience=settings.token_audience or None, leeway=settings.token_leeway_s,
                options={"require": required, "verify_exp": False},
            )  # fmt: skip
        except jwt.InvalidTokenError as error:
            raise UnauthenticatedError(f"the token is not valid: {error}") from error
        except (ValueError, OverflowError) as error:  # a time that no calendar has
            raise UnauthenticatedError("the token is not valid: a claim is no time") from error
        kind, name = claims.get("principal_type"), claims.get("principal_name")
        if kind not in TOKEN_TYPES or not isinstance(name, str) or not name:
            raise UnauthenticatedError("the token does not say who it is for: principal_type and principal_name")
        return Proof(Principal(kind, name), self._end(claims))

    def _end(self, claims: dict[str, Any]) -> float:
        """`exp`, if it is a time that may be. Raises UnauthenticatedError."""
        expires, begins = _maybe_time(claims["exp"]), _maybe_time(claims.get("iat", self._clock_s()))
        if expires is None or begins is None:
            raise UnauthenticatedError("the token is not valid: exp or iat is no time")
        if expires - begins > self._settings.token_life_s:
            raise UnauthenticatedError(f"the token lives longer than {self._settings.token_life_s} s")
        return expires


def _maybe_time(value: Any) -> float | None:
    """A NumericDate (RFC 7519, 2). JSON of Python knows NaN and Infinity, and numbers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def is_signed(token: str) -> bool:
    """Does this look like a JSON Web Token? Anything else is a code, or nonsense."""
    return token.count(".") == JWT_DOTS


def claimed(authorization: str) -> tuple[str, ...]:
    """The principal that a token claims to be for, unproven; nothing if it does not say."""
    try:
        part = authorization.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claimed)
    except (IndexError, ValueError, msgspec.DecodeError):
        return ()
    return (f"{claims.principal_type}:{claims.principal_name}"[:CLAIMED],)


class _Claimed(msgspec.Struct):
    principal_type: str
    principal_name: str
