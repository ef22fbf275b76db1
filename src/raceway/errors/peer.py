"""Errors of peers: protocol errors, and requests that cannot be fulfilled. The package docstring has the whole tree."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from raceway.errors.root import RacewayError

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


class MalformedError(PeerError):
    """Bytes that break the rules of the wire; `reason` is the whole text."""

    code = "malformed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NameInvalidError(PeerError):
    """An invalid `name` of a topic or pattern, because of `reason`."""

    code = "name_invalid"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name!r} is not a valid name: {self.reason}"


class NameReservedError(PeerError):
    """A `name` that begins with a reserved word."""

    code = "name_reserved"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} is reserved: names under 'system.' and 'raceway.' belong to the broker"


class NameTakenError(PeerError):
    """A `name` that differs only in case from `existing`."""

    code = "name_taken"

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(name, existing)
        self.name, self.existing = name, existing

    def __str__(self) -> str:
        return f"{self.name!r} differs only in case from the existing topic {self.existing!r}"


class PatternTextError(PeerError):
    """An invalid Seneca pattern `text`, because of `reason`."""

    code = "pattern_text"

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text, self.reason = text, reason

    def __str__(self) -> str:
        return f"{self.text!r} is not a pattern: {self.reason}"


class PinTakenError(PeerError):
    """The topic `name` of the pin `text` conflicts with the pin `holder`, whose topic is `holder_name`."""

    code = "pin_taken"

    def __init__(self, text: str, name: str, holder: str, holder_name: str) -> None:
        super().__init__(text, name, holder, holder_name)
        self.text, self.name, self.holder, self.holder_name = text, name, holder, holder_name

    def __str__(self) -> str:
        return (
            f"the pin {self.text!r} would be the topic {self.name!r}, but the pin {self.holder!r} is attached as "
            f"{self.holder_name!r}; give one of them another name (--name, or seneca.names)"
        )


class NoRouteError(PeerError):
    """No subscriber or responder for `topic` on any wire."""

    code = "no_route"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"No subscribers for topic {self.topic}"


class RequestTimeoutError(PeerError):
    """The responder (`responder` is its service id) did not answer within the timeout."""

    code = "timeout"
    retriable = True

    def __init__(self, topic: str, responder: str) -> None:
        super().__init__(topic, responder)
        self.topic, self.responder = topic, responder

    def __str__(self) -> str:
        return "Request timed out"


class UnmatchedAnswerError(PeerError):
    """An answer whose id matches no open request of the responder."""

    code = "unmatched_answer"

    def __init__(self, message_id: str | None) -> None:
        super().__init__(message_id)
        self.message_id = message_id

    def __str__(self) -> str:
        return (
            "answer without the id of its request" if self.message_id is None else f"no open request {self.message_id}"
        )


class UnknownPeerError(PeerError):
    """No connected service has the id `peer`."""

    code = "unknown_peer"

    def __init__(self, peer: str) -> None:
        super().__init__(peer)
        self.peer = peer

    def __str__(self) -> str:
        return f"Service {self.peer} not found"


class UnknownQueueError(PeerError):
    """The queue `name` does not exist."""

    code = "unknown_queue"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"MQ({self.name}) Not Found"


class QueueKindError(PeerError):
    """The queue `name` exists with another kind."""

    code = "queue_kind"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the queue {self.name!r} already exists with another kind"


class UnknownError(PeerError):
    """The object `name` does not exist; `kind`, of the class, says what it is."""

    code = "unknown"
    kind: ClassVar[str] = "thing"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

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


class TopicKindError(PeerError):
    """The topic `name` cannot be created because of `existing`: a name is a topic or has partitions, never both."""

    code = "topic_kind"

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(name, existing)
        self.name, self.existing = name, existing

    def __str__(self) -> str:
        return f"{self.name!r} cannot be created: {self.existing!r} exists"


class MismatchError(PeerError):
    """A property, `what`, is `existing`, and the request needs `wanted`."""

    code = "mismatch"

    def __init__(self, what: str, existing: str, wanted: str) -> None:
        super().__init__(what, existing, wanted)
        self.what, self.existing, self.wanted = what, existing, wanted

    def __str__(self) -> str:
        return f"{self.what} is {self.existing}, not {self.wanted}"


class InUseError(PeerError):
    """An object, `what`, cannot be removed because `user` still uses it."""

    code = "in_use"

    def __init__(self, what: str, user: str) -> None:
        super().__init__(what, user)
        self.what, self.user = what, user

    def __str__(self) -> str:
        return f"{self.what} is in use: {self.user}"


class InvalidValueError(PeerError):
    """An invalid value of `what`, because of `reason`."""

    code = "invalid_value"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class LimitError(PeerError):
    """The number of `what` has reached `limit`, a policy of the topic, its namespace or the broker."""

    code = "limit"
    retriable = True

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what, self.limit = what, limit

    def __str__(self) -> str:
        return f"{self.what}: the limit is {self.limit}"


class SchemaInvalidError(PeerError):
    """An invalid definition, type, mode, policy or subject (`what`), because of `reason`."""

    code = "schema_invalid"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class SchemaIncompatibleError(PeerError):
    """A definition that is not compatible with `version` of `subject` under the compatibility `mode`."""

    code = "schema_incompatible"

    def __init__(self, subject: str, version: int, mode: str, reasons: list[str]) -> None:
        super().__init__(subject, version, mode, reasons)
        self.subject, self.version, self.mode, self.reasons = subject, version, mode, reasons

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return f"not {self.mode} compatible with version {self.version} of subject {self.subject!r}: {reasons}"


class UnknownSchemaError(PeerError):
    """The subject, version or schema id `what` is not registered; `part` says which of them it is."""

    code = "unknown_schema"

    def __init__(self, part: str, what: str) -> None:
        super().__init__(part, what)
        self.part, self.what = part, what

    def __str__(self) -> str:
        return f"{self.what} not found"


class SchemaReferenceError(PeerError):
    """A wrong reference to a topic's schema, from a producer or an administrator."""

    code = "schema_reference"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SchemaInUseError(PeerError):
    """The subject or version `what` cannot be deleted because the definitions `users` refer to it."""

    code = "schema_in_use"

    def __init__(self, what: str, users: list[str]) -> None:
        super().__init__(what, users)
        self.what, self.users = what, users

    def __str__(self) -> str:
        return f"{self.what} is referenced by {', '.join(self.users)}"


class SchemaDeletionError(PeerError):
    """A deletion out of order: `what` is `already` deleted, or it is to be deleted permanently and is not deleted yet.

    `part` says whether it is a subject or a version.
    """

    code = "schema_deletion"

    def __init__(self, part: str, what: str, already: bool) -> None:
        super().__init__(part, what, already)
        self.part, self.what, self.already = part, what, already

    def __str__(self) -> str:
        if self.already:
            return f"{self.what} is already deleted; it can only be deleted permanently (permanent=true)"
        return f"{self.what} must be deleted before it can be deleted permanently"


class SchemaReadOnlyError(PeerError):
    """The subject or registry, `what`, is in read-only mode."""

    code = "schema_read_only"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is in read-only mode"


class SchemaRefusedError(PeerError):
    """A message that violates the schema policy of its topic.

    `violation` is the rule; for payloads, `path` and `rule` say where and why validation failed.
    """

    code = "schema_refused"

    def __init__(
        self, violation: str, reason: str, subject: str | None, version: int | None, path: str = "", rule: str = ""
    ) -> None:
        super().__init__(violation, reason, subject, version, path, rule)
        self.violation, self.reason, self.subject, self.version = violation, reason, subject, version
        self.path, self.rule = path, rule

    def __str__(self) -> str:
        return f"{self.violation} {self.reason}"

    @property
    def details(self) -> dict[str, Any]:
        """The attributes, for wires that can carry them besides the text."""
        return {"reason": self.violation, "subject": self.subject, "version": self.version, "path": self.path,
                "rule": self.rule}  # fmt: skip


class TooLargeError(PeerError):
    """The `size` of `what` exceeds `limit`."""

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(what, size, limit, unit)
        self.what, self.size, self.limit, self.unit = what, size, limit, unit

    def __str__(self) -> str:
        return f"{self.what} of {self.size} {self.unit} is over the limit of {self.limit}"


class UnauthenticatedError(PeerError):
    """The peer is not authenticated, because of `reason`."""

    code = "unauthenticated"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooManyFailuresError(UnauthenticatedError):
    """Too many invalid tokens from one address or principal; the next is checked after `wait_s` seconds."""

    code = "too_many_failures"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many invalid tokens: wait {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class ForbiddenError(PeerError):
    """The `principal` has no permission for `action`."""

    code = "forbidden"

    def __init__(self, principal: str, action: str) -> None:
        super().__init__(principal, action)
        self.principal, self.action = principal, action

    def __str__(self) -> str:
        return f"{self.principal} may not {self.action}"


class RemoteError(PeerError):
    """An error answer of the bus or of a service; `reported` is its code.

    Raised in clients. A handler may raise it too, to answer with this code, text and details.
    """

    code = "remote"

    def __init__(self, reported: str, text: str, details: Any = None) -> None:
        super().__init__(reported, text, details)
        self.reported, self.text, self.details = reported, text, details

    def __str__(self) -> str:
        return f"{self.reported}: {self.text}"
