"""How an MB answer says that the service failed. Both spellings pass through untouched; this only tells them."""

from __future__ import annotations

import msgspec

# What the row's `error` says when the service gave no code of its own.
FAILED = b"failed"
PREFIX = b"error:"


def maybe_failure_code(payload: bytes) -> bytes | None:
    """None for success. Failure is a JSON object with a member `error`, or an error object behind `error:`."""
    if payload.startswith(PREFIX):
        return _code(_maybe_object(payload[len(PREFIX) :]))
    # Almost every answer is a success: look for the word before parsing.
    if b'"error"' not in payload:
        return None
    answer = _maybe_object(payload)
    return _code(answer["error"]) if answer is not None and "error" in answer else None


def _maybe_object(text: bytes) -> dict[str, object] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _code(error: object) -> bytes:
    code = error.get("code") if isinstance(error, dict) else None
    return code.encode() if isinstance(code, str) and code else FAILED
