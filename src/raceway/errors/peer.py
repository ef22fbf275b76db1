"""What peers do wrong, or ask for in vain. The whole tree is drawn in the package itself."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from raceway.errors.root import RacewayError


class PeerError(RacewayError):
    """The peer's doing."""

    code = "invalid"


class MalformedError(PeerError):
    """Bytes that break the wire's rules; `reason` is the wire's own sentence."""

    code = "malformed"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NameInvalidError(PeerError):
    """`name` cannot be a topic (or a pattern) because of `reason`."""

    code = "name_invalid"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name!r} is not a valid name: {self.reason}"


class NameReservedError(PeerError):
    """`name` starts with a word that belongs to the broker."""

    code = "name_reserved"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} is reserved: names under 'system.' and 'raceway.' belong to the broker"


class NameTakenError(PeerError):
    """`name` differs only in case from `existing`."""

    code = "name_taken"

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(name, existing)
        self.name, self.existing = name, existing

    def __str__(self) -> str:
        return f"{self.name!r} differs only in case from the existing topic {self.existing!r}"


class PatternTextError(PeerError):
    """`text` is no pattern of Seneca because of `reason`."""

    code = "pattern_text"

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text, self.reason = text, reason

    def __str__(self) -> str:
        return f"{self.text!r} is not a pattern: {self.reason}"


class PinTakenError(PeerError):
    """The pin `text` would be called `name`, but the pin `holder`, called `holder_name`, is in the way."""

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
    """No subscription of the wanted kind on any wire."""

    code = "no_route"

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"No subscribers for topic {self.topic}"


class RequestTimeoutError(PeerError):
    """`responder` (its service id) let the deadline pass."""

    code = "timeout"
    retriable = True

    def __init__(self, topic: str, responder: str) -> None:
        super().__init__(topic, responder)
        self.topic, self.responder = topic, responder

    def __str__(self) -> str:
        return "Request timed out"


class UnmatchedAnswerError(PeerError):
    """An answer whose id matches no open request of this responder."""

    code = "unmatched_answer"

    def __init__(self, message_id: str | None) -> None:
        super().__init__(message_id)
        self.message_id = message_id

    def __str__(self) -> str:
        if self.message_id is None:
            return "Received response message without requestId."
        return f"No matching request found for requestId: {self.message_id}"


class UnknownPeerError(PeerError):
    """Nobody connected has the id `peer`."""

    code = "unknown_peer"

    def __init__(self, peer: str) -> None:
        super().__init__(peer)
        self.peer = peer

    def __str__(self) -> str:
        return f"Service {self.peer} not found"


class UnknownQueueError(PeerError):
    """Nobody has made the queue `name`."""

    code = "unknown_queue"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"MQ({self.name}) Not Found"


class QueueKindError(PeerError):
    """`name` is a queue of the other kind already."""

    code = "queue_kind"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the queue {self.name!r} exists and is of another kind"


class UnknownError(PeerError):
    """There is no such thing: its kind is a word of the class, its name a fact."""

    code = "unknown"
    kind: ClassVar[str] = "thing"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} not found"


class UnknownTopicError(UnknownError):
    """Nobody has made the topic `name`."""

    code, kind = "unknown_topic", "topic"


class UnknownNamespaceError(UnknownError):
    """Nobody has made the namespace `name`."""

    code, kind = "unknown_namespace", "namespace"


class UnknownMessageError(UnknownError):
    """There is no message at the position `name`: not yet, or not any more."""

    code, kind = "unknown_message", "message"

    def __init__(self, position: int) -> None:
        super().__init__(str(position))


class UnknownTableError(UnknownError):
    """The pipeline has not made the table `name`."""

    code, kind = "unknown_table", "table"


class UnknownProducerError(UnknownError):
    """No producer was ever given the id `name`."""

    code, kind = "unknown_producer", "producer"


class UnknownConsumerError(UnknownError):
    """No consumer has the id `name`."""

    code, kind = "unknown_consumer", "consumer"


class UnknownSubscriptionError(UnknownError):
    """The topic has no subscription `name`."""

    code, kind = "unknown_subscription", "subscription"


class UnknownRoleError(UnknownError):
    """Nobody has made the role `name`."""

    code, kind = "unknown_role", "role"


class UnknownBindingError(UnknownError):
    """No binding has the id `name`."""

    code, kind = "unknown_binding", "binding"


class TopicKindError(PeerError):
    """`name` cannot be made: `existing` is there. A name is either a topic or has partitions, never both."""

    code = "topic_kind"

    def __init__(self, name: str, existing: str) -> None:
        super().__init__(name, existing)
        self.name, self.existing = name, existing

    def __str__(self) -> str:
        return f"{self.name!r} cannot be made: {self.existing!r} exists"


class MismatchError(PeerError):
    """`what` is `existing`, and `wanted` was asked for."""

    code = "mismatch"

    def __init__(self, what: str, existing: str, wanted: str) -> None:
        super().__init__(what, existing, wanted)
        self.what, self.existing, self.wanted = what, existing, wanted

    def __str__(self) -> str:
        return f"{self.what} is {self.existing}, not {self.wanted}"


class InUseError(PeerError):
    """`what` cannot be removed: `user` still uses it."""

    code = "in_use"

    def __init__(self, what: str, user: str) -> None:
        super().__init__(what, user)
        self.what, self.user = what, user

    def __str__(self) -> str:
        return f"{self.what} is in use: {self.user}"


class InvalidValueError(PeerError):
    """`what` cannot be so because of `reason`."""

    code = "invalid_value"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class LimitError(PeerError):
    """`what` is limited to `limit`, by the policy of the topic, its namespace or the broker."""

    code = "limit"
    retriable = True

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(what, limit)
        self.what, self.limit = what, limit

    def __str__(self) -> str:
        return f"{self.what}: the limit is {self.limit}"


class SchemaInvalidError(PeerError):
    """`what` (a definition, a type, a mode, a policy, a subject) cannot be used because of `reason`."""

    code = "schema_invalid"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what, self.reason = what, reason

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


class SchemaIncompatibleError(PeerError):
    """A definition that may not follow `version` of `subject` under its compatibility `mode`."""

    code = "schema_incompatible"

    def __init__(self, subject: str, version: int, mode: str, reasons: list[str]) -> None:
        super().__init__(subject, version, mode, reasons)
        self.subject, self.version, self.mode, self.reasons = subject, version, mode, reasons

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        return f"not {self.mode} compatible with version {self.version} of subject {self.subject!r}: {reasons}"


class UnknownSchemaError(PeerError):
    """Nobody registered `what`; `part` says whether it is a subject, a version or a schema (an id)."""

    code = "unknown_schema"

    def __init__(self, part: str, what: str) -> None:
        super().__init__(part, what)
        self.part, self.what = part, what

    def __str__(self) -> str:
        return f"{self.what} not found"


class SchemaReferenceError(PeerError):
    """What a producer or an administrator says of a topic's schema does not hold."""

    code = "schema_reference"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SchemaInUseError(PeerError):
    """`what` cannot be deleted: definitions refer to it, as `users` say."""

    code = "schema_in_use"

    def __init__(self, what: str, users: list[str]) -> None:
        super().__init__(what, users)
        self.what, self.users = what, users

    def __str__(self) -> str:
        return f"{self.what} is referred to by {', '.join(self.users)}"


class SchemaDeletionError(PeerError):
    """Deleting happens in two steps: `what` is `already` deleted and can only be deleted for good, or it cannot be
    deleted for good before it is deleted. `part` says whether it is a subject or a version."""

    code = "schema_deletion"

    def __init__(self, part: str, what: str, already: bool) -> None:
        super().__init__(part, what, already)
        self.part, self.what, self.already = part, what, already

    def __str__(self) -> str:
        if self.already:
            return f"{self.what} was deleted already; it can be deleted for good (permanent)"
        return f"{self.what} was not deleted before it is deleted for good"


class SchemaReadOnlyError(PeerError):
    """`what`, a subject or the registry, is in read-only mode."""

    code = "schema_read_only"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} is in read-only mode"


class SchemaRefusedError(PeerError):
    """A message against the schema policy of its topic: which rule (`violation`), and for payloads where and why."""

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
        """The facts, for wires that can carry them beside the sentence."""
        return {"reason": self.violation, "subject": self.subject, "version": self.version, "path": self.path,
                "rule": self.rule}  # fmt: skip


class TooLargeError(PeerError):
    """`size` is over `limit`; `what` names the thing."""

    code = "too_large"

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(what, size, limit, unit)
        self.what, self.size, self.limit, self.unit = what, size, limit, unit

    def __str__(self) -> str:
        return f"{self.what} of {self.size} {self.unit} is over the limit of {self.limit}"


class UnauthenticatedError(PeerError):
    """The peer did not prove who it is, because of `reason`."""

    code = "unauthenticated"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooManyFailuresError(UnauthenticatedError):
    """Too many bad tokens came from there; the next is looked at in `wait_s`."""

    code = "too_many_failures"

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many bad tokens: wait {math.ceil(wait_s)} s")
        self.wait_s = wait_s


class ForbiddenError(PeerError):
    """`principal` may not do `action`."""

    code = "forbidden"

    def __init__(self, principal: str, action: str) -> None:
        super().__init__(principal, action)
        self.principal, self.action = principal, action

    def __str__(self) -> str:
        return f"{self.principal} may not {self.action}"


class RemoteError(PeerError):
    """The bus, or the service that was asked, answered with an error: its own code is `reported`.

    A handler that raises it answers with exactly that.
    """

    code = "remote"

    def __init__(self, reported: str, text: str, details: Any = None) -> None:
        super().__init__(reported, text, details)
        self.reported, self.text, self.details = reported, text, details

    def __str__(self) -> str:
        return f"{self.reported}: {self.text}"
