"""The one error tree.

    RacewayError                  code, retriable; facts are attributes; the sentence is made in __str__
    ├── PeerError                 the peer asked for what cannot be had, or broke its protocol
    │   ├── MalformedError          bytes that break a wire's rules
    │   ├── NameInvalidError        a topic or pattern that cannot be spelled
    │   ├── NameReservedError       `system.` and `raceway.` belong to the broker
    │   ├── NameTakenError          differs from an existing name only in case
    │   ├── PatternTextError        text that is no Seneca pattern
    │   ├── PinTakenError           another Seneca pin has the name
    │   ├── NoRouteError            nobody there
    │   ├── RequestTimeoutError     the responder did not answer in time
    │   ├── UnmatchedAnswerError    an answer to a request that is not open
    │   ├── UnknownPeerError        a service id nobody has
    │   ├── UnknownQueueError       a queue nobody made
    │   ├── QueueKindError          a queue of another kind has the name
    │   ├── UnknownError            there is no such thing
    │   │   ├── UnknownTopicError     a topic nobody made
    │   │   ├── UnknownNamespaceError a namespace nobody made
    │   │   ├── UnknownMessageError   a position without a message
    │   │   ├── UnknownTableError     a table the pipeline has not made
    │   │   ├── UnknownProducerError  a producer id that was never given
    │   │   ├── UnknownConsumerError  a consumer id that was never given, or is no more
    │   │   ├── UnknownSubscriptionError a subscription the topic does not have
    │   │   ├── UnknownRoleError      a role nobody made
    │   │   └── UnknownBindingError   a binding nobody made
    │   ├── TopicKindError          the name is taken by a topic, plain or partitioned
    │   ├── MismatchError           what exists was made otherwise
    │   ├── InUseError              somebody still uses it
    │   ├── InvalidValueError       a setting that cannot be
    │   ├── LimitError              a limit of the topic, its namespace or the broker
    │   ├── SchemaInvalidError      a definition, or a setting of schemas, that cannot be used
    │   ├── SchemaIncompatibleError the latest version and this one do not go together
    │   ├── UnknownSchemaError      a subject, version or id nobody registered
    │   ├── SchemaInUseError        other definitions refer to it
    │   ├── SchemaDeletionError     deleted already, or not before it is deleted for good
    │   ├── SchemaReadOnlyError     the subject or the registry takes no changes
    │   ├── SchemaReferenceError    the subject named is not the topic's, or is none
    │   ├── SchemaRefusedError      a message against the schema policy of its topic
    │   ├── TooLargeError           over a stated limit
    │   ├── UnauthenticatedError    who it is was not proved
    │   │   └── TooManyFailuresError    too many bad tokens came from there
    │   ├── ForbiddenError          not allowed
    │   └── RemoteError             a client's call was answered with an error
    └── LocalError                we, our disk or our configuration
        ├── ConfigError             a setting that cannot be used; names the key
        ├── UnavailableError        cannot be done now: the journal does not take writes
        │   ├── ReadOnlyError         a sync failed; until restart
        │   ├── DiskFullError         no space left; tried again each second
        │   ├── BusyError             evicted, or too much is waiting
        │   ├── UnreachableError      no connection to an attached service
        │   └── DrainingError         the bus is stopping
        ├── JournalError            the journal's files
        │   ├── LockedError           another process holds the data folder
        │   ├── FormatVersionError    written by a release this one cannot read
        │   ├── DamagedError          bytes that could not be repaired; names the positions
        │   ├── TrimmedError          the wanted position was removed by retention
        │   └── MissingRowsError      positions that no file holds any more
        ├── PipelineError           the tables, their checkpoint, Spark or Java
        └── ConnectionLostError     a client's connection ended with the call unanswered

Codecs translate `code` into their wire's own words in a table (manual: understand/errors). `retriable` says
whether the same call may succeed later without anybody changing anything.
"""

from __future__ import annotations

from raceway.errors.local import (
    BusyError,
    ConfigError,
    ConnectionLostError,
    DamagedError,
    DiskFullError,
    DrainingError,
    FormatVersionError,
    JournalError,
    LocalError,
    LockedError,
    MissingRowsError,
    PipelineError,
    ReadOnlyError,
    TrimmedError,
    UnavailableError,
    UnreachableError,
)
from raceway.errors.peer import (
    ForbiddenError,
    InUseError,
    InvalidValueError,
    LimitError,
    MalformedError,
    MismatchError,
    NameInvalidError,
    NameReservedError,
    NameTakenError,
    NoRouteError,
    PatternTextError,
    PeerError,
    PinTakenError,
    QueueKindError,
    RemoteError,
    RequestTimeoutError,
    SchemaDeletionError,
    SchemaIncompatibleError,
    SchemaInUseError,
    SchemaInvalidError,
    SchemaReadOnlyError,
    SchemaReferenceError,
    SchemaRefusedError,
    TooLargeError,
    TooManyFailuresError,
    TopicKindError,
    UnauthenticatedError,
    UnknownBindingError,
    UnknownConsumerError,
    UnknownError,
    UnknownMessageError,
    UnknownNamespaceError,
    UnknownPeerError,
    UnknownProducerError,
    UnknownQueueError,
    UnknownRoleError,
    UnknownSchemaError,
    UnknownSubscriptionError,
    UnknownTableError,
    UnknownTopicError,
    UnmatchedAnswerError,
)
from raceway.errors.root import RacewayError

__all__ = [
    "BusyError", "ConfigError", "ConnectionLostError", "DamagedError", "DiskFullError", "DrainingError",
    "ForbiddenError", "FormatVersionError", "InUseError", "InvalidValueError", "JournalError", "LimitError",
    "LocalError", "LockedError", "MalformedError", "MismatchError", "MissingRowsError", "NameInvalidError",
    "NameReservedError", "NameTakenError", "NoRouteError", "PatternTextError", "PeerError", "PinTakenError",
    "PipelineError", "QueueKindError", "RacewayError", "ReadOnlyError", "RemoteError", "RequestTimeoutError",
    "SchemaDeletionError", "SchemaInUseError", "SchemaIncompatibleError", "SchemaInvalidError", "SchemaReadOnlyError",
    "SchemaReferenceError", "SchemaRefusedError", "TooLargeError", "TooManyFailuresError",
    "TopicKindError", "TrimmedError", "UnauthenticatedError", "UnavailableError", "UnknownBindingError",
    "UnknownConsumerError", "UnknownError", "UnknownMessageError", "UnknownNamespaceError", "UnknownPeerError",
    "UnknownProducerError", "UnknownQueueError", "UnknownRoleError", "UnknownSchemaError",
    "UnknownSubscriptionError", "UnknownTableError", "UnknownTopicError", "UnmatchedAnswerError", "UnreachableError",
]  # fmt: skip
