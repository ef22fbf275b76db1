"""The one error tree.

    RacewayError                  code, retriable; details are attributes; the text is made in __str__
    ├── PeerError                 invalid requests of a peer, and protocol errors
    │   ├── MalformedError          bytes that break the rules of a wire
    │   ├── PayloadTypeError        a payload that is not of the type a program expects
    │   ├── NameInvalidError        invalid name of a topic or pattern
    │   ├── NameReservedError       `system.` and `raceway.` belong to the broker
    │   ├── NameTakenError          differs from an existing name only in case
    │   ├── PatternTextError        invalid Seneca pattern
    │   ├── PinTakenError           another Seneca pin has the name
    │   ├── NoRouteError            no subscriber or responder
    │   ├── RequestTimeoutError     the responder did not answer in time
    │   ├── UnmatchedAnswerError    answer to a request that is not open
    │   ├── UnknownPeerError        unknown service id
    │   ├── UnknownQueueError       unknown queue
    │   ├── QueueKindError          a queue of another kind has the name
    │   ├── UnknownError            an object that does not exist
    │   │   ├── UnknownTopicError     unknown topic
    │   │   ├── UnknownNamespaceError unknown namespace
    │   │   ├── UnknownMessageError   no message at the position
    │   │   ├── UnknownTableError     table that the pipeline has not created
    │   │   ├── UnknownProducerError  unknown producer id
    │   │   ├── UnknownConsumerError  unknown or expired consumer id
    │   │   ├── UnknownSubscriptionError unknown subscription of a topic
    │   │   ├── UnknownRoleError      unknown role
    │   │   └── UnknownBindingError   unknown binding
    │   ├── TopicKindError          the name is taken by a topic, plain or partitioned
    │   ├── MismatchError           the existing object has other properties
    │   ├── InUseError              still in use, cannot be removed
    │   ├── InvalidValueError       invalid value of a parameter
    │   ├── LimitError              a limit of the topic, its namespace or the broker
    │   ├── SchemaInvalidError      invalid definition, or parameter of the registry
    │   ├── SchemaIncompatibleError not compatible with an earlier version
    │   ├── UnknownSchemaError      unknown subject, version or schema id
    │   ├── SchemaInUseError        other definitions refer to it
    │   ├── SchemaDeletionError     already deleted, or not yet deleted (permanent deletion)
    │   ├── SchemaReadOnlyError     the subject or the registry is read-only
    │   ├── SchemaReferenceError    the subject is not the topic's, or does not exist
    │   ├── SchemaRefusedError      a message that violates the schema policy of its topic
    │   ├── TooLargeError           over a size limit
    │   ├── UnauthenticatedError    missing or invalid credentials
    │   │   └── TooManyFailuresError    too many invalid tokens: wait
    │   ├── ForbiddenError          not permitted
    │   ├── LanesError              a bus of several lanes cannot do it
    │   ├── OtherLaneError          the topic is in another lane than the console that was asked
    │   └── RemoteError             a client's call was answered with an error
    └── LocalError                errors of this process, its disk or its configuration
        ├── ConfigError             invalid setting; names the key
        ├── UnavailableError        temporarily unavailable
        │   ├── ReadOnlyError         a sync failed; until restart
        │   ├── DiskFullError         no space left; retried each second
        │   ├── BusyError             evicted, or too much is waiting
        │   ├── UnreachableError      no connection to an attached service
        │   ├── ArchiveError          the archive of the journal cannot be reached
        │   └── DrainingError         the bus is stopping
        ├── JournalError            the files of the journal
        │   ├── LockedError           another process uses the data folder
        │   ├── FormatVersionError    written by a release that this one cannot read
        │   ├── TrimmedError          the position was removed by retention
        │   ├── AwayError             rows that have to be brought back from the archive
        │   └── MissingRowsError      positions that no file has
        ├── UnsupportedError        the wire of a client does not have a method
        ├── PipelineError           tables, their logs, Spark or Java
        ├── BrokersError            Kafka, or what may be done there
        │   ├── MirrorError           what a mirror may do there
        │   └── ClusterError          the cluster of a bus there
        └── ConnectionLostError     a client's connection ended before the answer
            ├── NotConnectedError     no connection could be made
            └── NoAnswerError         no answer in time; the call may have been carried out

Codecs map `code` to the codes of their wire in a table, where an error without an entry has that of its base class
(manual: understand/errors): a new error is a class here, and a line in the tree above. `retriable`: the same call may
succeed later without any change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, dataclass_transform

V = TypeVar("V")


class RacewayError(Exception):
    """The base class of all errors that Raceway raises on purpose.

    `code` is stable and names the error on wires and in the journal. `retriable`: the same call may succeed later
    without any change. A class that names neither has those of its base.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: str = "", retriable: bool = False) -> None:
        cls.code = code or cls.code
        cls.retriable = retriable or cls.retriable

    @classmethod
    def maybe_entry(cls, table: Mapping[str, V]) -> V | None:
        """Return the entry for `code` in a table of a wire, otherwise that for the nearest base class, if any."""
        codes = (getattr(kind, "code", "") for kind in cls.__mro__)
        return next((table[code] for code in codes if code in table), None)


@dataclass_transform(eq_default=False)
class FactsError(Exception):
    """Mixin of errors whose facts are fields: arguments of the constructor, attributes, and `args`."""

    sentence: ClassVar[str] = "{reason}"
    """The text, with the names of fields in braces."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if get_annotations(cls) and "__init__" not in vars(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        self.args = tuple(vars(self).values())

    def __str__(self) -> str:
        return self.sentence.format_map(vars(self))


# ---- peers: protocol errors, and requests that cannot be fulfilled ---------------------------------------------------


class PeerError(RacewayError, code="invalid"):
    """An error of the peer."""


class MalformedError(FactsError, PeerError, code="malformed"):
    """Bytes that break the rules of the wire; `reason` is the whole text."""

    reason: str


class PayloadTypeError(FactsError, PeerError, code="payload_type"):
    """A payload that is not of type `kind`: at `path`, such as `$.items[0].price`, because of `reason`."""

    sentence = "payload is not of type {kind}: {path}: {reason}"
    kind: str
    path: str
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


class LanesError(FactsError, PeerError, code="lanes"):
    """A request for `what` a bus of several lanes cannot do."""

    sentence = "a bus of several lanes does not support this: {what}"
    what: str


class OtherLaneError(FactsError, PeerError, code="other_lane"):
    """A `topic` of another lane, `lane`, whose console is at `url`."""

    sentence = "{topic!r} is in lane {lane}: ask its console, {url}"
    topic: str
    lane: int
    url: str


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


# ---- this process, its disk and its settings -------------------------------------------------------------------------


class LocalError(RacewayError):
    """An error of this process, its disk or its settings."""


class ConfigError(FactsError, LocalError, code="config"):
    """The setting `key` is invalid because of `reason`; `origin` is the source of its value."""

    key: str
    reason: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" (from {self.origin})" if self.origin else ""
        return f"{self.key}: {self.reason}{where}"


class UnavailableError(FactsError, LocalError, code="unavailable", retriable=True):
    """The bus cannot do this at the moment."""

    reason: str


class ReadOnlyError(UnavailableError, code="read_only"):
    """The journal takes no writes until a restart: a sync failed, or its files were removed."""

    # Not retriable: after a failed fsync the kernel may have dropped the dirty pages, and the next sync would report
    # success for data that is lost.
    retriable = False


class DiskFullError(UnavailableError, code="disk_full"):
    """No space is left on the journal's disk, except its reserve. Writing resumes when there is space again."""


class BusyError(UnavailableError, code="busy"):
    """A queue, buffer or table of the bus is full."""


class UnreachableError(UnavailableError, code="unreachable"):
    """The connection to `address` failed; nothing was sent."""

    sentence = "{address} cannot be reached: {reason}"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (address, reason)
        self.address = address


class ArchiveError(UnavailableError, code="archive"):
    """The archive of the journal at `url` cannot be read or written."""

    sentence = "the archive {url}: {reason}"

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (url, reason)
        self.url = url


class DrainingError(UnavailableError, code="draining"):
    """The bus is stopping and accepts no new work."""


class JournalError(LocalError, code="journal"):
    """An error of the journal's files."""


class LockedError(FactsError, JournalError, code="locked"):
    """Another process, `pid`, uses the data folder."""

    folder: str
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.folder} is in use by {holder}; stop it, or choose another folder with --data"


class FormatVersionError(FactsError, JournalError, code="format_version"):
    """The format `found` of `file` is newer than `known`, the newest this release reads."""

    sentence = "{file} has journal format {found}; this release reads format {known}: use a newer raceway"
    file: str
    found: int
    known: int


class TrimmedError(FactsError, JournalError, code="trimmed"):
    """An offset or position, `wanted`, was removed by retention; `first` is the first one left.

    `topic` is None for positions.
    """

    wanted: int
    first: int
    topic: str | None = None

    def __str__(self) -> str:
        what = f"offset {self.wanted} of topic {self.topic!r}" if self.topic else f"position {self.wanted}"
        return f"{what} was removed by retention; the first one left is {self.first}"


class AwayError(FactsError, JournalError, code="away", retriable=True):
    """The rows of `segment` are in the archive, and this thread must not wait for them. `Journal.bring_back` does."""

    sentence = "the rows of {segment} are in the archive and have to be brought back first"

    segment: str


class MissingRowsError(FactsError, JournalError, code="missing_rows"):
    """The journal's files lack `rows` rows between the positions `first` and `last`, because of `reason`."""

    first: int
    last: int
    rows: int
    reason: str

    def __str__(self) -> str:
        where = f"position {self.first} is" if self.first == self.last else f"positions {self.first} to {self.last} are"
        some = "" if self.rows == self.last - self.first + 1 else f" in part ({self.rows} rows)"
        return f"{where} missing from the journal{some}: {self.reason}"


class UnsupportedError(FactsError, LocalError, code="unsupported"):
    """A client whose wire does not have `method`; `instead` is the one to call, if any. Raised in clients."""

    client: str
    method: str
    instead: str = ""

    def __str__(self) -> str:
        advice = f"use {self.instead}" if self.instead else "its wire does not support it"
        return f"{self.client} has no {self.method}: {advice}"


class PipelineError(LocalError, code="pipeline"):
    """An error of the tables, their logs, Spark or Java; the text says what to do."""


class BrokersError(LocalError, code="kafka"):
    """An error of Kafka, or of what may be done there; the text says what to do."""


class MirrorError(BrokersError, code="mirror"):
    """An error of a mirror to or from Kafka; the text says what to do."""


class ClusterError(BrokersError, code="cluster"):
    """An error of a cluster, whose journal is on Kafka; the text says what to do."""


class ConnectionLostError(FactsError, LocalError, code="connection_lost", retriable=True):
    """The connection to `address` ended before the answer arrived. Raised in clients."""

    sentence = "connection to {address} lost: {reason}"
    address: str
    reason: str


class NotConnectedError(ConnectionLostError, code="not_connected"):
    """No connection to `address` could be made: refused, host unknown, or the other side speaks another protocol."""

    sentence = "no connection to {address}: {reason}"


class NoAnswerError(ConnectionLostError, code="no_answer"):
    """No answer of `address` arrived in time. The call may have been carried out nevertheless."""

    sentence = "no answer from {address}: {reason}"
