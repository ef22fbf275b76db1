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


class PeerError(RacewayError):
    """An error of the peer."""

    code = "invalid"


class MalformedError(FactsError, PeerError):
    """Bytes that break the rules of the wire; `reason` is the whole text."""

    code = "malformed"
    reason: str


class NameInvalidError(FactsError, PeerError):
    """An invalid `name` of a topic or pattern, because of `reason`."""

    code = "name_invalid"
    sentence = "{name!r} is not a valid name: {reason}"
    name: str
    reason: str


class NameReservedError(FactsError, PeerError):
    """A `name` that begins with a reserved word."""

    code = "name_reserved"
    sentence = "{name!r} is reserved: names under 'system.' and 'raceway.' belong to the broker"
    name: str


class NameTakenError(FactsError, PeerError):
    """A `name` that differs only in case from `existing`."""

    code = "name_taken"
    sentence = "{name!r} differs only in case from the existing topic {existing!r}"
    name: str
    existing: str


class PatternTextError(FactsError, PeerError):
    """An invalid Seneca pattern `text`, because of `reason`."""

    code = "pattern_text"
    sentence = "{text!r} is not a pattern: {reason}"
    text: str
    reason: str


class PinTakenError(FactsError, PeerError):
    """The topic `name` of the pin `text` conflicts with the pin `holder`, whose topic is `holder_name`."""

    code = "pin_taken"
    sentence = (
        "the pin {text!r} would be the topic {name!r}, but the pin {holder!r} is attached as {holder_name!r}; "
        "give one of them another name (--name, or seneca.names)"
    )
    text: str
    name: str
    holder: str
    holder_name: str


class NoRouteError(FactsError, PeerError):
    """No subscriber or responder for `topic` on any wire."""

    code = "no_route"
    sentence = "No subscribers for topic {topic}"
    topic: str


class RequestTimeoutError(FactsError, PeerError):
    """The responder (`responder` is its service id) did not answer within the timeout."""

    code = "timeout"
    retriable = True
    sentence = "Request timed out"
    topic: str
    responder: str


class UnmatchedAnswerError(FactsError, PeerError):
    """An answer whose id matches no open request of the responder."""

    code = "unmatched_answer"
    message_id: str | None

    def __str__(self) -> str:
        return (
            "answer without the id of its request" if self.message_id is None else f"no open request {self.message_id}"
        )


class UnknownPeerError(FactsError, PeerError):
    """No connected service has the id `peer`."""

    code = "unknown_peer"
    sentence = "Service {peer} not found"
    peer: str


class UnknownQueueError(FactsError, PeerError):
    """The queue `name` does not exist."""

    code = "unknown_queue"
    sentence = "MQ({name}) Not Found"
    name: str


class QueueKindError(FactsError, PeerError):
    """The queue `name` exists with another kind."""

    code = "queue_kind"
    sentence = "the queue {name!r} already exists with another kind"
    name: str


class UnknownError(FactsError, PeerError):
    """The object `name` does not exist; `kind`, of the class, says what it is."""

    code = "unknown"
    kind: ClassVar[str] = "thing"
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} not found"


class UnknownTopicError(UnknownError):
    """The topic `name` does not exist."""

    code, kind = "unknown_topic", "topic"


class UnknownNamespaceError(UnknownError):
    """The namespace `name` does not exist."""

    code, kind = "unknown_namespace", "namespace"


class UnknownMessageError(UnknownError):
    """No message is at the position `name`: not yet, or no longer."""

    code, kind = "unknown_message", "message"

    def __init__(self, position: int) -> None:
        super().__init__(str(position))


class UnknownTableError(UnknownError):
    """The table `name` does not exist: the pipeline has not created it."""

    code, kind = "unknown_table", "table"


class UnknownProducerError(UnknownError):
    """No producer has the id `name`."""

    code, kind = "unknown_producer", "producer"


class UnknownConsumerError(UnknownError):
    """No consumer has the id `name`."""

    code, kind = "unknown_consumer", "consumer"


class UnknownSubscriptionError(UnknownError):
    """The topic has no subscription `name`."""

    code, kind = "unknown_subscription", "subscription"


class UnknownRoleError(UnknownError):
    """The role `name` does not exist."""

    code, kind = "unknown_role", "role"


class UnknownBindingError(UnknownError):
    """No binding has the id `name`."""

    code, kind = "unknown_binding", "binding"


class TopicKindError(FactsError, PeerError):
    """The topic `name` cannot be created because of `existing`: a name is a topic or has partitions, never both."""

    code = "topic_kind"
    sentence = "{name!r} cannot be created: {existing!r} exists"
    name: str
    existing: str


class MismatchError(FactsError, PeerError):
    """A property, `what`, is `existing`, and the request needs `wanted`."""

    code = "mismatch"
    sentence = "{what} is {existing}, not {wanted}"
    what: str
    existing: str
    wanted: str


class InUseError(FactsError, PeerError):
    """An object, `what`, cannot be removed because `user` still uses it."""

    code = "in_use"
    sentence = "{what} is in use: {user}"
    what: str
    user: str


class InvalidValueError(FactsError, PeerError):
    """An invalid value of `what`, because of `reason`."""

    code = "invalid_value"
    sentence = "{what}: {reason}"
    what: str
    reason: str


class LimitError(FactsError, PeerError):
    """The number of `what` has reached `limit`, a policy of the topic, its namespace or the broker."""

    code = "limit"
    retriable = True
    sentence = "{what}: the limit is {limit}"
    what: str
    limit: int


class SchemaInvalidError(FactsError, PeerError):
    """An invalid definition, type, mode, policy or subject (`what`), because of `reason`."""

    code = "schema_invalid"
    sentence = "{what}: {reason}"
    what: str
    reason: str


class SchemaIncompatibleError(FactsError, PeerError):
    """A definition that is not compatible with `version` of `subject` under the compatibility `mode`."""

    code = "schema_incompatible"
    subject: str
    version: int
    mode: str
    reasons: list[str]

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return f"not {self.mode} compatible with version {self.version} of subject {self.subject!r}: {reasons}"


class UnknownSchemaError(FactsError, PeerError):
    """The subject, version or schema id `what` is not registered; `part` says which of them it is."""

    code = "unknown_schema"
    sentence = "{what} not found"
    part: str
    what: str


class SchemaReferenceError(FactsError, PeerError):
    """A wrong reference to a topic's schema, from a producer or an administrator."""

    code = "schema_reference"
    reason: str


class SchemaInUseError(FactsError, PeerError):
    """The subject or version `what` cannot be deleted because the definitions `users` refer to it."""

    code = "schema_in_use"
    what: str
    users: list[str]

    def __str__(self) -> str:
        return f"{self.what} is referenced by {', '.join(self.users)}"


class SchemaDeletionError(FactsError, PeerError):
    """A deletion out of order: `what` is `already` deleted, or it is to be deleted permanently and is not deleted yet.

    `part` says whether it is a subject or a version.
    """

    code = "schema_deletion"
    part: str
    what: str
    already: bool

    def __str__(self) -> str:
        if self.already:
            return f"{self.what} is already deleted; it can only be deleted permanently (permanent=true)"
        return f"{self.what} must be deleted before it can be deleted permanently"


class SchemaReadOnlyError(FactsError, PeerError):
    """The subject or registry, `what`, is in read-only mode."""

    code = "schema_read_only"
    sentence = "{what} is in read-only mode"
    what: str


class SchemaRefusedError(FactsError, PeerError):
    """A message that violates the schema policy of its topic.

    `violation` is the rule; for payloads, `path` and `rule` say where and why validation failed.
    """

    code = "schema_refused"
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


class TooLargeError(FactsError, PeerError):
    """The `size` of `what` exceeds `limit`."""

    code = "too_large"
    sentence = "{what} of {size} {unit} is over the limit of {limit}"
    what: str
    size: int
    limit: int
    unit: str = "bytes"


class UnauthenticatedError(FactsError, PeerError):
    """The peer is not authenticated, because of `reason`."""

    code = "unauthenticated"
    reason: str


class TooManyFailuresError(UnauthenticatedError):
    """Too many invalid tokens from one address or principal; the next is checked after `wait_s` seconds."""

    code = "too_many_failures"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many invalid tokens: wait {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class ForbiddenError(FactsError, PeerError):
    """The `principal` has no permission for `action`."""

    code = "forbidden"
    sentence = "{principal} may not {action}"
    principal: str
    action: str


class RemoteError(FactsError, PeerError):
    """An error answer of the bus or of a service; `reported` is its code.

    Raised in clients. A handler may raise it too, to answer with this code, text and details.
    """

    code = "remote"
    sentence = "{reported}: {text}"
    reported: str
    text: str
    details: Any = None
