"""Tokens: the principal of a call from its `authorization` header.

A token is a JWT signed with HS256 and the shared secret of the configuration. `iss`, `exp`, `principal_type` and
`principal_name` are required; the issuer must be ours, and a token is valid until `exp`, which is checked on every use.
`exp` must be a finite time within `token_life_s` of `iat`, or of now without one. `aud` must name the configured
audience; without one, a token with an audience is refused (RFC 7519, 4.1.3). All other claims and headers are ignored,
such as one that claims to be another broker.
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
# Principal types that a token may have: not anonymous.
TOKEN_TYPES = ("service_account", "user", "broker_internal")
# Tokens come from peers, so the cache is bounded.
REMEMBERED = 4096
# RFC 7515, 7.1: header, payload and signature are separated by dots.
JWT_DOTS = 2
# Length of a claimed principal that is kept: claims are not verified.
CLAIMED = 300


class Proof(NamedTuple):
    """The principal of a token, and when it expires (Unix seconds)."""

    principal: Principal
    expires: float


class TokenReader:
    def __init__(self, settings: config.SecuritySettings, clock_s: Callable[[], float]) -> None:
        self._settings, self._clock_s = settings, clock_s
        self._known: dict[str, Proof] = {}

    def principal(self, authorization: str) -> Principal:
        """Return the principal of a valid token. Raises UnauthenticatedError."""
        return self.unexpired(authorization, self.proof(authorization))

    def proof(self, authorization: str) -> Proof:
        """Verify a token, but not its expiry. Raises UnauthenticatedError."""
        return self._known.get(authorization) or self._verify(authorization)

    def unexpired(self, authorization: str, proof: Proof) -> Principal:
        """Return the principal if the token has not expired. Raises UnauthenticatedError."""
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
        import jwt  # imported with the first token, because it takes 70 ms

        settings = self._settings
        required = ["iss", "exp", "aud"] if settings.token_audience else ["iss", "exp"]
        try:
            # Expiry is checked in `unexpired`, on every use and by our own clock.
            claims = jwt.decode(
                token, settings.token_secret, algorithms=[ALGORITHM], issuer=settings.token_issuer,
                audience=settings.token_audience or None, leeway=settings.token_leeway_s,
                options={"require": required, "verify_exp": False},
            )  # fmt: skip
        except jwt.InvalidTokenError as error:
            raise UnauthenticatedError(f"the token is not valid: {error}") from error
        except (ValueError, OverflowError) as error:  # a number that is out of range for a date
            raise UnauthenticatedError("the token is not valid: a claim is not a valid time") from error
        kind, name = claims.get("principal_type"), claims.get("principal_name")
        if kind not in TOKEN_TYPES or not isinstance(name, str) or not name:
            raise UnauthenticatedError("the token needs the claims principal_type and principal_name")
        return Proof(Principal(kind, name), self._end(claims))

    def _end(self, claims: dict[str, Any]) -> float:
        """Return `exp` if it is valid and not too far away. Raises UnauthenticatedError."""
        expires, begins = _maybe_time(claims["exp"]), _maybe_time(claims.get("iat", self._clock_s()))
        if expires is None or begins is None:
            raise UnauthenticatedError("the token is not valid: exp or iat is not a valid time")
        if expires - begins > self._settings.token_life_s:
            raise UnauthenticatedError(f"the token is valid for more than {self._settings.token_life_s} s")
        return expires


def _maybe_time(value: Any) -> float | None:
    """Return a finite NumericDate (RFC 7519, 2). Python's JSON accepts NaN, Infinity and numbers of any length."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def is_signed(token: str) -> bool:
    """Return whether this looks like a JSON Web Token, as opposed to a shared secret."""
    return token.count(".") == JWT_DOTS


def claimed(authorization: str) -> tuple[str, ...]:
    """Return the principal that a token claims, unverified; empty if it names none."""
    try:
        part = authorization.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=_Claimed)
    except (IndexError, ValueError, msgspec.DecodeError):
        return ()
    return (f"{claims.principal_type}:{claims.principal_name}"[:CLAIMED],)


class _Claimed(msgspec.Struct):
    principal_type: str
    principal_name: str
