"""How an MB answer says that the service failed. There are two spellings, and the broker passes both on untouched:

{"error":{"code":"…","message":"…","timestamp":"…","details":…}}      an object with a member `error`
error:{"code":"…","message":"…","timestamp":"…"}                      the literal prefix
"""

from __future__ import annotations

from typing import Any

import msgspec

PREFIX = b"error:"
# Stands where a failure has no code of its own.
UNNAMED = "ERROR"


class Failure(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: Any = None


class _Answer(msgspec.Struct):
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_answer = msgspec.json.Decoder(_Answer)


def maybe_failure(payload: bytes) -> Failure | None:
    """What went wrong, if the answer says that something did."""
    error = _maybe_error(payload)
    if error is None:
        return None
    try:
        value = msgspec.json.decode(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Failure(UNNAMED, bytes(error).decode("utf-8", "replace"))
    if not isinstance(value, dict):
        return Failure(UNNAMED, value if isinstance(value, str) else bytes(error).decode("utf-8", "replace"))
    return Failure(str(value.get("code", UNNAMED)), str(value.get("message", "")), value.get("details"))


def maybe_failure_code(payload: bytes) -> bytes | None:
    """The code alone, for the journal. Answers that mention no error cost one search."""
    failure = maybe_failure(payload)
    return failure.code.encode("utf-8", "replace") if failure else None


def _maybe_error(payload: bytes) -> msgspec.Raw | bytes | None:
    if payload.startswith(PREFIX):
        return payload[len(PREFIX) :]
    if b'"error"' not in payload:
        return None
    try:
        error = _answer.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if error.error is msgspec.UNSET else error.error
