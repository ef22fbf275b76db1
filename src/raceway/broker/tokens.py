"""Tokens: from the metadata `authorization` of a call to who is calling.

A token is a JWT signed with HS256 and the shared secret of the configuration. `iss`, `exp`, `principal_type` and
`principal_name` must be there; the issuer must be ours, and a token is good until `exp` and no longer, also when it was
seen before. Everything else in a token or beside it, such as a header that claims to be another broker, is not looked
at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raceway.errors import UnauthenticatedError
from raceway.model.security import Principal

ALGORITHM = "HS256"
SCHEME = "bearer "
# Types a token may name; nobody becomes anonymous by a token.
TOKEN_TYPES = ("service_account", "user", "broker_internal")
# Tokens come from peers, so what is remembered of them is bounded.
REMEMBERED = 4096


class Proof(NamedTuple):
    """Who a token names, and until when (Unix seconds)."""

    principal: Principal
    expires: float


class TokenReader:
    def __init__(self, secret: str, issuer: str, clock_s: Callable[[], float]) -> None:
        self._secret, self._issuer, self._clock_s = secret, issuer, clock_s
        self._known: dict[str, Proof] = {}

    def principal(self, authorization: str) -> Principal:
        """Raises UnauthenticatedError."""
        proof = self._known.get(authorization) or self._verify(authorization)
        if proof.expires <= self._clock_s():
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

        try:
            # Whether it has expired is looked at here too, each time, by the clock we were given.
            claims = jwt.decode(
                token, self._secret, algorithms=[ALGORITHM], issuer=self._issuer,
                options={"require": ["iss", "exp"], "verify_exp": False, "verify_aud": False},
            )  # fmt: skip
        except jwt.InvalidTokenError as error:
            raise UnauthenticatedError(f"the token is not valid: {error}") from error
        kind, name, expires = claims.get("principal_type"), claims.get("principal_name"), claims["exp"]
        if kind not in TOKEN_TYPES or not isinstance(name, str) or not name:
            raise UnauthenticatedError("the token does not say who it is for: principal_type and principal_name")
        if isinstance(expires, bool) or not isinstance(expires, int | float):
            raise UnauthenticatedError("the token is not valid: exp is no time")
        return Proof(Principal(kind, name), expires)
