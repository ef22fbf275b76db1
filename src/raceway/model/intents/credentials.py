"""Intents of peers that prove who they are with each message, and their outcomes."""

from __future__ import annotations

import msgspec

from raceway.model.intents.kinds import IntentFor, Outcome
from raceway.model.security import Permission, Principal


class Credential(msgspec.Struct, frozen=True, gc=False):
    """The token of one message. `code`: a further token that is accepted for this message while security is on."""

    token: bytes | None
    code: str = ""


class Authorization(Outcome, frozen=True):
    """The principal of an administrator's message."""

    principal: Principal


class Authorize(IntentFor[Authorization], frozen=True):
    """Check that a message comes from an administrator and, if one is named, that it has this permission.

    Fails with UnauthenticatedError for a wrong token and with ForbiddenError without the permission.
    """

    credential: Credential
    permission: Permission | None = None
