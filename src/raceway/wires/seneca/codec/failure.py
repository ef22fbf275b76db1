"""Failures of a Seneca call, and their form in each dialect.

    W, S, bare   {"message", "code", "details"?}, in W and S beside `meta$` with `error: true`
    L, T         an error object; one that the action made itself is wrapped as `act_execute`, with its code in `orig`

`stack` and `callpoint`, which npm's `seneca` sends, are never written: they would expose file paths of this machine.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from raceway.errors import MalformedError, RacewayError
from raceway.model.document import Members, is_true, maybe_members, maybe_text, raw_of, read_members
from raceway.model.envelope import encode_json
from raceway.wires.seneca.codec.trk import Hops

ACT_EXECUTE, ACT_NOT_FOUND = "act_execute", "act_not_found"
RESULT_NOT_OBJARR = "result_not_objarr"

# Code of this wire to the codes of the bus that it stands for (manual: understand/errors). Where npm's `seneca` has a
# code (`act_*`, `action_timeout`) it is used, since clients compare it; the others are ours.
_BUS_CODES = {
    "invalid_message": ("invalid",),
    "too_large": ("too_large",),
    ACT_NOT_FOUND: ("no_route", "unknown", "unknown_queue", "unknown_peer"),
    "action_timeout": ("timeout",),
    ACT_EXECUTE: ("remote", "unreachable", "connection_lost"),
    "overloaded": ("limit", "unavailable"),
    "forbidden": ("forbidden", "unauthenticated"),
    "act_invalid_msg": (
        "schema_refused", "schema_invalid", "schema_incompatible", "schema_reference", "schema_in_use",
        "schema_deletion", "schema_read_only", "unknown_schema",
    ),
}  # fmt: skip
# Code of the bus to code of this wire, for an error and the classes below it.
SENECA_CODES = {code: ours for ours, codes in _BUS_CODES.items() for code in codes}
# 500 for everything else: an L client reports any status of 400 and above the same way, a W client ignores it.
_STATUSES = {"invalid_message": 400, "invalid_json": 400, "too_large": 413}


class CallFailure(msgspec.Struct):
    """A failed call. `is_seneca` marks Seneca's own errors, whose code is never wrapped. `custom` and `hops` as in
    Result."""

    code: str
    message: str
    details: Raw | None = None
    is_seneca: bool = False
    custom: Members | None = None
    hops: Hops | Raw | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return _STATUSES.get(self.code, 500) if self.is_seneca else 500


def not_found(members: Members) -> CallFailure:
    """No pattern matches the message."""
    # Verbatim the sentence of npm's `seneca`, which shows the message.
    shown = encode_json(members).decode()
    return CallFailure(
        ACT_NOT_FOUND,
        f"seneca: No matching action pattern found for {shown}, and no default result provided "
        "(using a default$ property).",
        is_seneca=True,
    )


def failure_of(error: RacewayError, members: Members) -> CallFailure:
    """Translate an error of the bus. One without a code on this wire is reported as unexpected, without its text."""
    code = error.maybe_entry(SENECA_CODES)
    # An internal fault: its text may name files or settings, which is for the log and not for a peer.
    if code is None:
        return CallFailure(ACT_EXECUTE, "seneca: An unexpected error", is_seneca=True)
    # One sentence for every kind of unknown receiver, as npm's `seneca` knows patterns only.
    if code == ACT_NOT_FOUND:
        return not_found(members)
    details = getattr(error, "details", None)
    # As npm's `seneca` marks its own timeouts.
    text = f"[TIMEOUT] {error}" if code == "action_timeout" else str(error)
    return CallFailure(code, f"seneca: {text}", None if details is None else raw_of(details), is_seneca=True)


# ---- written --------------------------------------------------------------------------------------------------------


def plain_error(failure: CallFailure) -> bytes:
    """Encode the error document of W, S and bare, without `meta$`."""
    return encode_json(_told(failure))


def failure_payload(failure: CallFailure) -> bytes:
    """Encode the payload of a failed response on the bus."""
    # The flag survives the journal, so that a reader in another dialect knows whether to wrap the code.
    return encode_json(_told(failure) | {"seneca": True} if failure.is_seneca else _told(failure))


def _told(failure: CallFailure) -> dict[str, Any]:
    """The members that every form of an error has."""
    told: dict[str, Any] = {"message": failure.message, "code": failure.code}
    return told if failure.details is None else told | {"details": failure.details}


def wrapped_error(failure: CallFailure, pattern: str | None) -> bytes:
    """Encode the error object of L and T."""
    # Seneca's own errors keep their code at the top level; only an action's error is wrapped.
    if failure.is_seneca:
        told = {"code": failure.code, "seneca": True, "message": failure.message, "name": "Error"}
        return encode_json(told if failure.details is None else told | {"details": failure.details})
    original: dict[str, Any] = {"code": failure.code}
    if failure.details is not None:
        original["details"] = failure.details
    message = f"seneca: Action {pattern or ''} failed: {failure.message}."
    return encode_json(
        {
            "eraro": True,
            "orig": original,
            "code": ACT_EXECUTE,
            "seneca": True,
            "package": "seneca",
            "msg": message,
            "message": message,
            "name": "Error",
            # As in npm's `seneca`: the action's own details are merged into those of the wrapper.
            "details": {
                **(maybe_members(failure.details) or {}),
                "message": failure.message,
                "pattern": pattern,
                "orig$": original,
            },
        }
    )


# ---- read -----------------------------------------------------------------------------------------------------------


def read_failure(document: Members) -> CallFailure:
    """Read an error object of any dialect. A wrapped one is unwrapped to the action's own code and message."""
    code = maybe_text(document.get("code")) or ACT_EXECUTE
    # `msg` is eraro's older name for `message`; npm's `seneca` writes both.
    message = maybe_text(document.get("message")) or maybe_text(document.get("msg")) or code
    details = document.get("details")
    if code != ACT_EXECUTE or not is_true(document.get("seneca")):
        return CallFailure(code, message, _maybe_told(details), is_true(document.get("seneca")))
    inner = maybe_members(details) or {}
    # The action's own error stands in `details.orig$` and in `orig`; either may be missing.
    original = maybe_members(inner.get("orig$")) or maybe_members(document.get("orig")) or {}
    return CallFailure(
        maybe_text(original.get("code")) or ACT_EXECUTE,
        maybe_text(inner.get("message")) or maybe_text(original.get("message")) or message,
        _maybe_told(original.get("details")),
    )


def _maybe_told(details: Raw | None) -> Raw | None:
    """None for details that are absent or null."""
    return None if details is None or bytes(details) == b"null" else details


def read_failure_payload(payload: bytes, code: str) -> CallFailure:
    """Read what `failure_payload` wrote; any other payload becomes the message."""
    try:
        return read_failure(read_members(payload))
    except MalformedError:
        return CallFailure(code, payload.decode("utf-8", "replace"))
