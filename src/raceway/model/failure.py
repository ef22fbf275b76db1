"""Failures in the payload of MB answers. There are two forms, and the broker passes both on unchanged:

{"error":{"code":"…","message":"…","timestamp":"…","details":…}}      an object with a member `error`
error:{"code":"…","message":"…","timestamp":"…"}                      the literal prefix
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

PREFIX = b"error:"
# The code of a failure that has none.
UNNAMED = "ERROR"


class Failure(msgspec.Struct, frozen=True):
    """The error object of an answer."""

    code: str
    message: str
    details: Any = None


class _FailedAnswer(msgspec.Struct):
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_answer = msgspec.json.Decoder(_FailedAnswer)


def maybe_failure(payload: bytes) -> Failure | None:
    """Return the failure that an answer reports, or None."""
    error = _maybe_error(payload)
    if error is None:
        return None
    # Services are not checked: whatever follows the mark is a failure, and text without a form is its message.
    try:
        value = msgspec.json.decode(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure(UNNAMED, bytes(error).decode("utf-8", "replace"))
    if not isinstance(value, dict):
        return Failure(UNNAMED, value if isinstance(value, str) else bytes(error).decode("utf-8", "replace"))
    return Failure(str(value.get("code", UNNAMED)), str(value.get("message", "")), value.get("details"))


def maybe_failure_code(payload: bytes) -> bytes | None:
    """Return the code of the failure that an answer reports, for the journal, or None."""
    failure = maybe_failure(payload)
    return failure.code.encode("utf-8", "replace") if failure else None


def failure_codes(payloads: Sequence[bytes]) -> list[bytes | None] | None:
    """Return `maybe_failure_code` of each payload; None if no answer reports a failure."""
    # Both forms of a failure contain this word, so one search covers all payloads of a read.
    if b"error" not in b"\n".join(payloads):
        return None
    codes = [maybe_failure_code(payload) for payload in payloads]
    return codes if any(codes) else None


def _maybe_error(payload: bytes) -> msgspec.Raw | bytes | None:
    if payload.startswith(PREFIX):
        return payload[len(PREFIX) :]
    # Fast path: most answers succeed, and a search costs far less than parsing.
    if b'"error"' not in payload:
        return None
    try:
        error = _answer.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if error.error is msgspec.UNSET else error.error
