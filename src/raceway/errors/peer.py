"""Errors of peers: protocol errors, and requests that cannot be fulfilled. The package docstring has the whole tree."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from raceway.errors.root import FactsError, RacewayError

__all__ = [
    "ForbiddenError", "InUseError", "InvalidValueError", "LimitError", "MalformedError", "MismatchError",
    "NameInvalidError", "NameReservedError", "NameTakenError", "NoRouteError", "PatternTextError", "PeerError",
    "PinTakenError", "QueueKindError", "RemoteError", "RequestTimeoutError", "SchemaDeletionError",
    "SchemaInUseError", "SchemaIncompatibleError", "SchemaInvalidError", "SchemaReadOnlyError",
    "SchemaReferenceError", "SchemaRefusedError", "TooLargeError", "TooManyFailuresError", "TopicKindError",
    "UnauthenticatedError", "UnknownBindingError", "UnknownConsumerError", "UnknownError", "UnknownMessageError",
    "UnknownNamespaceError", "UnknownPeerError", "UnknownProducerError", "UnknownQueueError", "UnknownRoleError",
    "UnknownSchemaError", "UnknownSubscriptionError", "UnknownTableError", "UnknownTopicError",
    "UnmatchedAnswerError",
]  # fmt: skip


class PeerError(RacewayError, code="invalid"):
    """An error of the peer."""


class MalformedError(FactsError, PeerError, code="malformed"):
    """Bytes that break the rules of the wire; `reason` is the whole text."""

    reason: str


class NameInvalidError(FactsError, PeerError, code="name_invalid"):
    """An invalid `name` of a topic or pattern, because of `reason`."""

    sentence = "{name!r} is not a valid name: {reason}"
    name: str
    reason: str


class NameReservedError(FactsError, PeerError, code="name_reserved"):
    """A `name` that begins with a reserved word."""

    sentence = "{name!r} is reserved: names under 'system.' and 'raceway.' belong to the broker"
    name: str


class NameTakenError(FactsError, PeerError, code="name_taken"):
    """A `name` that differs only in case from `existing`."""

    sentence = "{name!r} differs only in case from the existing topic {existing!r}"
    name: str
    existing: str


class PatternTextError(FactsError, PeerError, code="pattern_text"):
    """An invalid Seneca pattern `text`, because of `reason`."""

    sentence = "{text!r} is not a pattern: {reason}"
    text: str
    reason: str


class PinTakenError(FactsError, PeerError, code="pin_taken"):
    """The topic `name` of the pin `text` conflicts with the pin `holder`, whose topic is `holder_name`."""

    sentence = (
        "the pin {text!r} would be the topic {name!r}, but the pin {holder!r} is attached as {holder_name!r}; "
        "give one of them another name (--name, or seneca.names)"
    )
    text: str
    name: str
    holder: str
    holder_name: str


class NoRouteError(FactsError, PeerError, code="no_route"):
    """No subscriber or responder for `topic` on any wire."""

    sentence = "No subscribers for topic {topic}"
    topic: str


class RequestTimeoutError(FactsError, PeerError, code="timeout", retriable=True):
    """The responder (`responder` is its service id) did not answer within the timeout."""

    sentence = "Request timed out"
    topic: str
    responder: str


class UnmatchedAnswerError(FactsError, PeerError, code="unmatched_answer"):
    """An answer whose id matches no open request of the responder."""

    message_id: str | None

    def __str__(self) -> str:
        return (
            "answer without the id of its request" if self.message_id is None else f"no open request {self.message_id}"
        )


class UnknownPeerError(FactsError, PeerError, code="unknown_peer"):
    """No connected service has the id `peer`."""

    sentence = "Service {peer} not found"
    peer: str


class UnknownQueueError(FactsError, PeerError, code="unknown_queue"):
    """The queue `name` does not exist."""

    sentence = "MQ({name}) Not Found"
    name: str


class QueueKindError(FactsError, PeerError, code="queue_kind"):
    """The queue `name` exists with another kind."""

    sentence = "the queue {name!r} already exists with another kind"
    name: str


class UnknownError(FactsError, PeerError, code="unknown"):
    """The object `name` does not exist; `kind`, of the class, says what it is."""

    kind: ClassVar[str] = "thing"
    name: str

    def __init_subclass__(cls, code: str, kind: str) -> None:
        super().__init_subclass__(code=code)
        cls.kind = kind

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} not found"


class UnknownTopicError(UnknownError, code="unknown_topic", kind="topic"):
    """The topic `name` does not exist."""


class UnknownNamespaceError(UnknownError, code="unknown_namespace", kind="namespace"):
    """The namespace `name` does not exist."""


class UnknownMessageError(UnknownError, code="unknown_message", kind="message"):
    """No message is at the position `name`: not yet, or no longer."""

    def __init__(self, position: int) -> None:
        super().__init__(str(position))


class UnknownTableError(UnknownError, code="unknown_table", kind="table"):
    """The table `name` does not exist: the pipeline has not created it."""


class UnknownProducerError(UnknownError, code="unknown_producer", kind="producer"):
    """No producer has the id `name`."""


class UnknownConsumerError(UnknownError, code="unknown_consumer", kind="consumer"):
    """No consumer has the id `name`."""


class UnknownSubscriptionError(UnknownError, code="unknown_subscription", kind="subscription"):
    """The topic has no subscription `name`."""


class UnknownRoleError(UnknownError, code="unknown_role", kind="role"):
    """The role `name` does not exist."""


class UnknownBindingError(UnknownError, code="unknown_binding", kind="binding"):
    """No binding has the id `name`."""


class TopicKindError(FactsError, PeerError, code="topic_kind"):
    """The topic `name` cannot be created because of `existing`: a name is a topic or has partitions, never both."""

    sentence = "{name!r} cannot be created: {existing!r} exists"
    name: str
    existing: str


class MismatchError(FactsError, PeerError, code="mismatch"):
    """A property, `what`, is `existing`, and the request needs `wanted`."""

    sentence = "{what} is {existing}, not {wanted}"
    what: str
    existing: str
    wanted: str


class InUseError(FactsError, PeerError, code="in_use"):
    """An object, `what`, cannot be removed because `user` still uses it."""

    sentence = "{what} is in use: {user}"
    what: str
    user: str


class InvalidValueError(FactsError, PeerError, code="invalid_value"):
    """An invalid value of `what`, because of `reason`."""

    sentence = "{what}: {reason}"
    what: str
    reason: str


class LimitError(FactsError, PeerError, code="limit", retriable=True):
    """The number of `what` has reached `limit`, a policy of the topic, its namespace or the broker."""

    sentence = "{what}: the limit is {limit}"
    what: str
    limit: int


class SchemaInvalidError(FactsError, PeerError, code="schema_invalid"):
    """An invalid definition, type, mode, policy or subject (`what`), because of `reason`."""

    sentence = "{what}: {reason}"
    what: str
    reason: str


class SchemaIncompatibleError(FactsError, PeerError, code="schema_incompatible"):
    """A definition that is not compatible with `version` of `subject` under the compatibility `mode`."""

    subject: str
    version: int
    mode: str
    reasons: list[str]

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return f"not {self.mode} compatible with version {self.version} of subject {self.subject!r}: {reasons}"


class UnknownSchemaError(FactsError, PeerError, code="unknown_schema"):
    """The subject, version or schema id `what` is not registered; `part` says which of them it is."""

    sentence = "{what} not found"
    part: str
    what: str


class SchemaReferenceError(FactsError, PeerError, code="schema_reference"):
    """A wrong reference to a topic's schema, from a producer or an administrator."""

    reason: str


class SchemaInUseError(FactsError, PeerError, code="schema_in_use"):
    """The subject or version `what` cannot be deleted because the definitions `users` refer to it."""

    what: str
    users: list[str]

    def __str__(self) -> str:
        return f"{self.what} is referenced by {', '.join(self.users)}"


class SchemaDeletionError(FactsError, PeerError, code="schema_deletion"):
    """A deletion out of order: `what` is `already` deleted, or it is to be deleted permanently and is not deleted yet.

    `part` says whether it is a subject or a version.
    """

    part: str
    what: str
    already: bool

    def __str__(self) -> str:
        if self.already:
            return f"{self.what} is already deleted; it can only be deleted permanently (permanent=true)"
        return f"{self.what} must be deleted before it can be deleted permanently"


class SchemaReadOnlyError(FactsError, PeerError, code="schema_read_only"):
    """The subject or registry, `what`, is in read-only mode."""

    sentence = "{what} is in read-only mode"
    what: str


class SchemaRefusedError(FactsError, PeerError, code="schema_refused"):
    """A message that violates the schema policy of its topic.

    `violation` is the rule; for payloads, `path` and `rule` say where and why validation failed.
    """

    sentence = "{violation} {reason}"
    violation: str
    reason: str
    subject: str | None
    version: int | None
    path: str = ""
    rule: str = ""

    @property
    def details(self) -> dict[str, Any]:
        """The attributes, for wires that can carry them besides the text."""
        return {"reason": self.violation, "subject": self.subject, "version": self.version, "path": self.path,
                "rule": self.rule}  # fmt: skip


class TooLargeError(FactsError, PeerError, code="too_large"):
    """The `size` of `what` exceeds `limit`."""

    sentence = "{what} of {size} {unit} is over the limit of {limit}"
    what: str
    size: int
    limit: int
    unit: str = "bytes"


class UnauthenticatedError(FactsError, PeerError, code="unauthenticated"):
    """The peer is not authenticated, because of `reason`."""

    reason: str


class TooManyFailuresError(UnauthenticatedError, code="too_many_failures"):
    """Too many invalid tokens from one address or principal; the next is checked after `wait_s` seconds."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many invalid tokens: wait {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class ForbiddenError(FactsError, PeerError, code="forbidden"):
    """The `principal` has no permission for `action`."""

    sentence = "{principal} may not {action}"
    principal: str
    action: str


class RemoteError(FactsError, PeerError, code="remote"):
    """An error answer of the bus or of a service; `reported` is its code.

    Raised in clients. A handler may raise it too, to answer with this code, text and details.
    """

    sentence = "{reported}: {text}"
    reported: str
    text: str
    details: Any = None
