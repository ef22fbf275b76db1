"""Intents and outcomes on the link: the name of the intent's class, then the intent or its outcome.

The link carries intents whose outcomes are values, and `OpenStream`, whose stream has frames of its own. Not carried
are `Follow`, services, and requests that name their responder or their askers as objects.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple, get_args

from msgspec.structs import replace

from raceway.errors import MalformedError, RacewayError, UnsupportedError
from raceway.link.codec.parts import BodyDecoder, encode_body, sendable
from raceway.model.intents import (
    administration,
    batches,
    credentials,
    peers,
    producers,
    queues,
    reading,
    roles,
    schemas,
    security,
    services,
    subscriptions,
    topics,
)
from raceway.model.intents.batches import AskAll, Asked, Intent, Request, Respond, Sent, Taken
from raceway.model.intents.kinds import Done, IntentFor, Outcome

_CALLS: tuple[ModuleType, ...] = (
    administration, credentials, peers, producers, queues, reading, roles, schemas, security, services, subscriptions,
    topics,
)  # fmt: skip
# Their peers are objects of the process that performs them.
_NOT_CARRIED = {reading.Follow, reading.Unfollow, services.AttachService, services.DetachService}
_BATCHES: dict[type, Any] = {
    batches.Publish: Taken, Request: Taken, AskAll: Asked, Respond: Taken, batches.Send: Sent,
    batches.Acknowledge: Taken, batches.Return: Taken, batches.Park: Done, queues.Enqueue: Taken,
    queues.EnqueueRequests: Taken,
}  # fmt: skip


class StreamOutcome(Outcome, frozen=True):
    """The outcome of `OpenStream` on the link: see `OpenedStream`."""

    is_live: bool


class _Carried(NamedTuple):
    """Decoders of an intent and of its outcome."""

    intent: BodyDecoder
    outcome: BodyDecoder


def _outcomes() -> dict[type, Any]:
    """Return the carried intents, with the types of their outcomes."""
    found = dict(_BATCHES)
    for module in _CALLS:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, IntentFor) and kind is not IntentFor:
                (base,) = (each for each in vars(kind)["__orig_bases__"] if get_args(each))
                found[kind] = get_args(base)[0]
    found[subscriptions.OpenStream] = StreamOutcome
    return {kind: outcome for kind, outcome in found.items() if kind not in _NOT_CARRIED}


CARRIED = {kind.__name__: _Carried(BodyDecoder(kind), BodyDecoder(outcome)) for kind, outcome in _outcomes().items()}


def encode_intent(intent: Intent) -> bytes:
    """Return the bytes of an intent. Raises UnsupportedError for one that the link does not carry."""
    name = type(intent).__name__
    by_object = isinstance(intent, Request | AskAll) and intent.responder is not None
    if name not in CARRIED or by_object or (isinstance(intent, Request) and intent.askers is not None):
        raise UnsupportedError("link", name)
    if isinstance(intent, Respond) and intent.refusal is not None:
        intent = replace(intent, refusal=sendable(intent.refusal))
    return encode_body(intent)


def decode_intent(name: str, body: bytes) -> Intent:
    """Return an intent. Raises MalformedError."""
    intent: Intent = _carried(name).intent(body)
    return intent


def decode_outcome(name: str, body: bytes) -> Any:
    """Return the outcome of an intent of this name. Raises MalformedError."""
    return _carried(name).outcome(body)


def encode_outcome(outcome: Any) -> bytes:
    """Return the bytes of an outcome. Raises RacewayError if it has parts that cannot be sent."""
    if isinstance(outcome, Taken | Sent) and outcome.refused:
        refused = tuple((start, stop, sendable(error)) for start, stop, error in outcome.refused)
        outcome = replace(outcome, refused=refused)
    try:
        return encode_body(outcome)
    except (TypeError, ValueError, OverflowError) as error:
        raise RacewayError(f"outcome {type(outcome).__name__} cannot be sent: {error}") from error


def _carried(name: str) -> _Carried:
    found = CARRIED.get(name)
    if found is None:
        raise MalformedError(f"unknown intent {name}")
    return found
