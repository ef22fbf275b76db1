"""Intents that prove who a caller is. Failures are counted, and too many make the caller wait."""

from __future__ import annotations

from raceway.model.intents.kinds import IntentFor
from raceway.model.security import Principal


class Identify(IntentFor[Principal], frozen=True):
    """Find the principal of an `Authorization`; without one, or with security off, it is anonymous."""

    authorization: str | None
    address: str


class ProveAdministrator(IntentFor[bool], frozen=True):
    """Compare a token with the administrator's `code`. An empty code matches nothing."""

    token: str
    code: str
    address: str
