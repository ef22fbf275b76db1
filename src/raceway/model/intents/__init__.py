"""Intents, which peers ask of the bus, and outcomes, which the bus answers: the interface of codecs and broker.

Messages are columns: `Publish`, `Request` and `Respond` have a `Batch` of consecutive rows of one kind. Every other
intent is a small record that names the type of its outcome (`IntentFor`). A codec decodes bytes into intents and
encodes outcomes into bytes; the broker's one entry point takes an intent and returns an outcome. Errors are outcomes
too: a `RacewayError`.

  kinds        what intents and outcomes are made of
  batches      messages: publish, request, answer, acknowledge
  peers        the peer itself, its subscriptions, what it sees of others
  queues       messages of queues, consumers of queues, their creation
  services     services that the bus calls
  producers, subscriptions   registered producers; consumers of named subscriptions
  reading      stored messages: by position, as they are committed, those that were not delivered
  topics, administration, schemas, roles     administration; the schema registry
  security, credentials      who a caller is; who sends a message, where each message says so itself
"""

from __future__ import annotations

from typing import Any

from raceway.model.intents.administration import (
    AddQueue,
    CreateSubscription,
    DeliverySettings,
    MoveReader,
    PeekQueue,
    PurgeQueue,
    QueuePeek,
    ReadDelivery,
    ReaderMoved,
    ReadLimits,
    ResetDelivery,
    SetDelivery,
    TopicDone,
)
from raceway.model.intents.batches import (
    Acknowledge,
    AskAll,
    Asked,
    Park,
    Publish,
    Request,
    Respond,
    Return,
    Send,
    Sent,
    Taken,
)
from raceway.model.intents.credentials import (
    Authorization,
    Authorize,
    Credential,
)
from raceway.model.intents.kinds import (
    Done,
    IntentFor,
    Outcome,
)
from raceway.model.intents.peers import (
    SUBSCRIPTION_KINDS,
    Audit,
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    Metric,
    Metrics,
    PatternRow,
    Patterns,
    PeerIntent,
    PeerOutcome,
    PeerRow,
    Peers,
    ReadMetrics,
    Register,
    Subscribe,
    SubscriberRow,
    SubscriptionKind,
    SubscriptionList,
    SubscriptionRow,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from raceway.model.intents.producers import (
    CreateProducer,
    TouchProducer,
)
from raceway.model.intents.queues import (
    Arm,
    ConfirmDeliveries,
    CreateQueue,
    Enqueue,
    EnqueueRequests,
    ResumeDeliveries,
)
from raceway.model.intents.reading import (
    END,
    FIRST,
    Follow,
    Gap,
    ListRejected,
    Located,
    LocateTopic,
    NoteRedriven,
    ReadRejected,
    ReadRows,
    ReadTopic,
    RejectedRows,
    Restored,
    RestoreRejected,
    TopicRead,
    Unfollow,
)
from raceway.model.intents.roles import (
    BindRole,
    DeleteBinding,
    DeleteRole,
    PutRole,
)
from raceway.model.intents.schemas import (
    BindTopic,
    CheckSchema,
    DeleteSubject,
    DeleteVersion,
    FindSchema,
    PrepareMode,
    Registered,
    RegisterSchema,
    SetAccess,
    SetMode,
    UnbindTopic,
)
from raceway.model.intents.security import (
    Identify,
    ProveAdministrator,
)
from raceway.model.intents.services import (
    AttachService,
    CheckWritable,
    DetachService,
    KeepServices,
)
from raceway.model.intents.subscriptions import (
    AttachConsumer,
    FindConsumer,
    Handover,
    OpenedStream,
    OpenStream,
    RemoveSubscription,
    SetDispatch,
    SetFailurePolicy,
    Sink,
)
from raceway.model.intents.topics import (
    CreateNamespace,
    CreateTopic,
    DeleteNamespace,
    DeleteTopic,
    SetLimits,
    SetTopicSchema,
)

__all__ = [
    "END",
    "FIRST",
    "SUBSCRIPTION_KINDS",
    "Acknowledge",
    "AddQueue",
    "Arm",
    "AskAll",
    "Asked",
    "AttachConsumer",
    "AttachService",
    "Audit",
    "Authorization",
    "Authorize",
    "BatchIntent",
    "BatchOutcome",
    "BindRole",
    "BindTopic",
    "CheckSchema",
    "CheckWritable",
    "ConfirmDeliveries",
    "CreateNamespace",
    "CreateProducer",
    "CreateQueue",
    "CreateSubscription",
    "CreateTopic",
    "Credential",
    "DeleteBinding",
    "DeleteNamespace",
    "DeleteRole",
    "DeleteSubject",
    "DeleteTopic",
    "DeleteVersion",
    "DeliverySettings",
    "DetachService",
    "Done",
    "Enqueue",
    "EnqueueRequests",
    "FindConsumer",
    "FindSchema",
    "Follow",
    "Gap",
    "Handover",
    "Heartbeat",
    "Identify",
    "Intent",
    "IntentFor",
    "KeepServices",
    "ListPeers",
    "ListRejected",
    "ListSubscriptions",
    "ListTopics",
    "LocateTopic",
    "Located",
    "Metric",
    "Metrics",
    "MoveReader",
    "NoteRedriven",
    "OpenStream",
    "OpenedStream",
    "Outcome",
    "Park",
    "PatternRow",
    "Patterns",
    "PeekQueue",
    "PeerIntent",
    "PeerOutcome",
    "PeerRow",
    "Peers",
    "PrepareMode",
    "ProveAdministrator",
    "Publish",
    "PurgeQueue",
    "PutRole",
    "QueuePeek",
    "ReadDelivery",
    "ReadLimits",
    "ReadMetrics",
    "ReadRejected",
    "ReadRows",
    "ReadTopic",
    "ReaderMoved",
    "Register",
    "RegisterSchema",
    "Registered",
    "RejectedRows",
    "RemoveSubscription",
    "Request",
    "ResetDelivery",
    "Respond",
    "RestoreRejected",
    "Restored",
    "ResumeDeliveries",
    "Return",
    "Send",
    "Sent",
    "SetAccess",
    "SetDelivery",
    "SetDispatch",
    "SetFailurePolicy",
    "SetLimits",
    "SetMode",
    "SetTopicSchema",
    "Sink",
    "Subscribe",
    "SubscriberRow",
    "SubscriptionKind",
    "SubscriptionList",
    "SubscriptionRow",
    "Taken",
    "TopicDone",
    "TopicRead",
    "TouchProducer",
    "UnbindTopic",
    "Unfollow",
    "Unsubscribe",
    "UnwatchLog",
    "WatchLog",
]

BatchIntent = Publish | Request | AskAll | Respond | Send | Acknowledge | Return | Park | Enqueue | EnqueueRequests
BatchOutcome = Taken | Asked | Sent | Done
Intent = BatchIntent | IntentFor[Any]
