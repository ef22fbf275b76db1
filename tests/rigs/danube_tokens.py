"""Tokens for tests of security: the issuer's side of what the bus checks."""

from __future__ import annotations

import time
from typing import Any

import jwt

SECRET = "a secret that is long enough for any of the algorithms, HS512 among them"
ISSUER = "tests"


def token(name: str, *, secret: str = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    """Of a service account, good for an hour, unless `claims` say otherwise; a claim of None is left out."""
    given: dict[str, Any] = {
        "iss": ISSUER, "exp": int(time.time()) + 3600, "sub": name, "principal_type": "service_account",
        "principal_name": name,
    }  # fmt: skip
    given |= claims
    return jwt.encode({key: value for key, value in given.items() if value is not None}, secret, algorithm=algorithm)
