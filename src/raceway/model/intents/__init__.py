"""Intents, which peers ask of the bus, and outcomes, which the bus answers: the interface of codecs and broker.

Messages are columns: `Publish`, `Request` and `Respond` have a `Batch` of consecutive rows of one kind. Every other
intent is a small record that names the type of its outcome (`IntentFor`). A codec decodes bytes into intents and
encodes outcomes into bytes; the broker's one entry point takes an intent and returns an outcome. Errors are outcomes
too: a `RacewayError`.

  kinds     what intents and outcomes are made of
  batches   messages: publish, request, answer, acknowledge
  peers     the peer itself, its subscriptions, what it sees of others
  services  services that the bus calls
"""

from __future__ import annotations

from typing import Any

from raceway.model.intents.batches import (
    Acknowledge,
    AskAll,
    Asked,
    Park,
    Publish,
    Reply,
    Request,
    Respond,
    Return,
    Send,
    Sent,
    Taken,
)
from raceway.model.intents.kinds import Done, IntentFor, Outcome
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
from raceway.model.intents.services import AttachService, CheckWritable, DetachService, KeepServices

__all__ = [
    "SUBSCRIPTION_KINDS",
    "Acknowledge",
    "AskAll",
    "Asked",
    "AttachService",
    "Audit",
    "BatchIntent",
    "BatchOutcome",
    "CheckWritable",
    "DetachService",
    "Done",
    "Heartbeat",
    "Intent",
    "IntentFor",
    "KeepServices",
    "ListPeers",
    "ListSubscriptions",
    "ListTopics",
    "Metric",
    "Metrics",
    "Outcome",
    "Park",
    "PatternRow",
    "Patterns",
    "PeerIntent",
    "PeerOutcome",
    "PeerRow",
    "Peers",
    "Publish",
    "ReadMetrics",
    "Register",
    "Reply",
    "Request",
    "Respond",
    "Return",
    "Send",
    "Sent",
    "Subscribe",
    "SubscriberRow",
    "SubscriptionKind",
    "SubscriptionList",
    "SubscriptionRow",
    "Taken",
    "Unsubscribe",
    "UnwatchLog",
    "WatchLog",
]

BatchIntent = Publish | Request | AskAll | Respond | Reply | Send | Acknowledge | Return | Park
BatchOutcome = Taken | Asked | Sent | Done
Intent = BatchIntent | IntentFor[Any]
