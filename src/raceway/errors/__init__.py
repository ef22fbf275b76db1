"""The one error tree.

    RacewayError                  code, retriable; details are attributes; the text is made in __str__
    ├── PeerError                 invalid requests of a peer, and protocol errors
    │   ├── MalformedError          bytes that break the rules of a wire
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
    │   └── RemoteError             a client's call was answered with an error
    └── LocalError                errors of this process, its disk or its configuration
        ├── ConfigError             invalid setting; names the key
        ├── UnavailableError        temporarily unavailable
        │   ├── ReadOnlyError         a sync failed; until restart
        │   ├── DiskFullError         no space left; retried each second
        │   ├── BusyError             evicted, or too much is waiting
        │   ├── UnreachableError      no connection to an attached service
        │   └── DrainingError         the bus is stopping
        ├── JournalError            the files of the journal
        │   ├── LockedError           another process uses the data folder
        │   ├── FormatVersionError    written by a release that this one cannot read
        │   ├── TrimmedError          the position was removed by retention
        │   └── MissingRowsError      positions that no file has
        ├── UnsupportedError        the wire of a client does not have a method
        ├── PipelineError           tables, checkpoints, Spark or Java
        └── ConnectionLostError     a client's connection ended before the answer

Codecs map `code` to the codes of their wire in a table, where an error without an entry has that of its base class
(manual: understand/errors): a new error is a class here, and a line in the tree above. `retriable`: the same call may
succeed later without any change.
"""

from __future__ import annotations

from raceway.errors import local, peer
from raceway.errors.local import *  # noqa: F403 - their names are exported below
from raceway.errors.peer import *  # noqa: F403
from raceway.errors.root import RacewayError

__all__ = ["RacewayError"]
__all__ += local.__all__
__all__ += peer.__all__
