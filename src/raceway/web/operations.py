"""What each address of the console port is for, takes and answers: the words of the OpenAPI document.

A test holds this table and the routes together: neither has an entry that the other lacks.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from raceway.model.schemas import SubjectRow, TopicSchema
from raceway.model.subscriptions import Policies, SubscriptionStatus
from raceway.model.traces import Trace
from raceway.web.graph import Graph, GraphQuery
from raceway.web.health import JournalHealth
from raceway.web.live import Overview, Sample
from raceway.web.messages import Latest, LatestQuery, Message, Page, Search
from raceway.web.peers import PatternPage, PatternQuery, PeerPage, PeerQuery
from raceway.web.pipeline import Pipeline, Preview, TableQuery
from raceway.web.queues import MadeQueue, NewQueue
from raceway.web.replay import Replay, Replayed
from raceway.web.schemas import Definition, TopicSettings
from raceway.web.seneca import Attach
from raceway.web.session import Session
from raceway.web.subscription_policies import DeliveryPolicy, PolicyQuery, RemovedPolicy, WantedPolicy
from raceway.web.subscriptions import MadeSubscription, NewSubscription
from raceway.web.topics import TopicDetail, TopicPage, TopicQuery


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one address. `answer` is None where it is no JSON; so is `body`, if `takes` names a type."""

    summary: str
    tag: str
    answer: Any = None
    query: type[msgspec.Struct] | None = None
    body: Any = None
    takes: str = ""
    media_type: str = "application/json"
    statuses: tuple[int, ...] = (200,)


# ---- answers that have no record of their own ------------------------------------------------------------------------


class Alive(msgspec.Struct):
    status: str
    version: str


class Ready(msgspec.Struct):
    """`warnings` do not speak against traffic: rows that are lost, a disk that is nearly full."""

    status: str
    reason: str
    warnings: list[str]


class History(msgspec.Struct):
    """The last five minutes, a sample a second."""

    samples: list[Sample]


class SubscriptionPage(msgspec.Struct):
    subscriptions: list[SubscriptionStatus]
    after: str | None


class QueuePage(msgspec.Struct):
    queues: list[dict[str, Any]]


class QueueMessages(msgspec.Struct, omit_defaults=True):
    """What waits, oldest first; or how much was purged."""

    waiting: int = 0
    messages: list[dict[str, Any]] = []
    purged: int = 0


class Services(msgspec.Struct):
    services: list[dict[str, Any]]


class Detached(msgspec.Struct):
    detached: int


class Subjects(msgspec.Struct):
    subjects: list[SubjectRow]


class Version(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A version of a subject. A definition that is no text is base64."""

    subject: str
    schema_id: int
    version: int
    registry_id: int
    schema_type: str
    fingerprint: str
    description: str = ""
    created_at_ms: int = 0
    created_by: str = ""
    tags: list[str] = []
    definition: str | None = None
    definition_base64: str | None = None
    mode: str | None = None
    is_new_version: bool | None = None


class Versions(msgspec.Struct):
    subject: str
    mode: str
    versions: list[Version]


class Mode(msgspec.Struct):
    mode: str


class SubjectMode(msgspec.Struct):
    subject: str
    mode: str


class Compatibility(msgspec.Struct):
    subject: str
    version: int
    mode: str
    is_compatible: bool
    reasons: list[str]


class Differences(msgspec.Struct):
    """`reasons` say why readers of the new version could not read data of the old one (`backward`), and the other way
    round (`forward`)."""

    subject: str
    old: Version
    new: Version
    reasons: dict[str, list[str]]


class RejectedRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message that was refused or not delivered; `redriven` says where it went when it was sent again."""

    position: int
    source: str
    time_us: int
    wire: str
    bytes: int
    producer: str | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    topic: str | None = None
    code: str | None = None
    reason: str | None = None
    path: str | None = None
    subject: str | None = None
    version: str | None = None
    receiver: str | None = None
    subscription: str | None = None
    offset: str | None = None
    redriven: dict[str, Any] | None = None
    message: dict[str, Any] | None = None


class RejectedPage(msgspec.Struct):
    rejected: list[RejectedRow]
    after: int | None


class RejectedQuery(msgspec.Struct, kw_only=True):
    source: Annotated[Literal["rejected", "undeliverable", "dead_letter"], Meta(description="Only these.")] | None = (
        None
    )
    topic: Annotated[str, Meta(description="Only those that belong to this topic.")] | None = None
    after: Annotated[int, Meta(description="Older than this position.", ge=0)] | None = None
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=500)] = 50


class Redriven(msgspec.Struct):
    position: int
    topic: str
    offset: int | None


class OtherTopic(msgspec.Struct):
    topic: str | None = None


class TraceQuery(msgspec.Struct, kw_only=True):
    topic: Annotated[str, Meta(description="The topic of the message; saves most of the search.")] | None = None
    since_us: Annotated[int, Meta(description="Not before this time.", ge=0)] | None = None
    until_us: Annotated[int, Meta(description="Before this time.", ge=0)] | None = None
    rows: Annotated[int, Meta(description="How many rows may be read.", ge=0)] | None = None


class Stored(msgspec.Struct, omit_defaults=True):
    """Where a published message is, or those of a batch. `repeated`: its x-dedup-id was there before, and it was not
    stored again."""

    topic: str | None = None
    offset: int | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    routed: bool | None = None
    repeated: bool | None = None
    messages: list[Stored] | None = None


class TopicMessages(msgspec.Struct, rename={"begin": "from"}):
    """Places are offsets, one for each partition, parted by commas: where the page begins, where the next one does, and
    where the topic ends."""

    topic: str
    begin: str
    next: str
    end: str
    messages: list[dict[str, Any]]


class ReadQuery(msgspec.Struct, kw_only=True):
    start: Annotated[str, Meta(description="`first`, `end`, or an offset.")] = msgspec.field(
        default="first", name="from"
    )
    limit: Annotated[int, Meta(description="At most so many.", ge=1)] = 100
    form: Annotated[
        Literal["rows", "cloudevents"], Meta(description="How messages are shown; `Accept` may say so too.")
    ] = msgspec.field(default="rows", name="as")


class AsyncQuery(msgspec.Struct, kw_only=True):
    after: Annotated[str, Meta(description="Topics behind this one.")] = ""
    limit: Annotated[int, Meta(description="At most so many topics.", ge=1)] = 1000


class BoundTopics(msgspec.Struct):
    topics: list[TopicSchema]


class PageQuery(msgspec.Struct, kw_only=True):
    after: Annotated[str, Meta(description="Behind this one, as the page before said.")] = ""
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=1000)] = 1000


class PeekQuery(msgspec.Struct, kw_only=True):
    limit: Annotated[int, Meta(description="At most so many messages.", ge=0, le=100)] = 10


class DifferenceQuery(msgspec.Struct, kw_only=True):
    old: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"
    new: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"


SCHEMAS = "/api/schemas/{subject:path}"
TEXT, EVENTS, BYTES = "text/plain", "text/event-stream", "application/octet-stream"

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/healthz"): Operation(summary="The process lives and its loop turns.", tag="bus", answer=Alive),
    ("GET", "/readyz"): Operation(summary="May traffic be sent here?", tag="bus", answer=Ready, statuses=(200, 503)),
    ("GET", "/metrics"): Operation(summary="Figures for Prometheus.", tag="bus", media_type=TEXT),
    ("GET", "/api/openapi.json"): Operation(summary="This document.", tag="bus", answer=dict[str, Any]),
    ("GET", "/api/session"): Operation(summary="Who asks, and what they may do.", tag="bus", answer=Session),
    ("GET", "/api/overview"): Operation(summary="How the bus is now.", tag="bus", answer=Overview),
    ("GET", "/api/history"): Operation(summary="Rates of the last five minutes.", tag="bus", answer=History),
    ("GET", "/api/live"): Operation(
        summary="The overview once a second, as server-sent events called `overview`.", tag="bus", media_type=EVENTS
    ),
    ("GET", "/api/journal"): Operation(summary="How the journal is.", tag="bus", answer=JournalHealth),
    ("GET", "/api/peers"): Operation(summary="Who is connected.", tag="bus", answer=PeerPage, query=PeerQuery),
    ("GET", "/api/subscriptions"): Operation(
        summary="Patterns that connected peers subscribed to.", tag="bus", answer=PatternPage, query=PatternQuery
    ),
    ("GET", "/api/graph"): Operation(
        summary="Who talks to whom, from the newest rows or the pipeline's table.",
        tag="bus",
        answer=Graph,
        query=GraphQuery,
    ),
    ("GET", "/api/topics"): Operation(
        summary="Topics, a page at a time.", tag="topics", answer=TopicPage, query=TopicQuery
    ),
    ("GET", "/api/topics/{name:path}"): Operation(summary="One topic.", tag="topics", answer=TopicDetail),
    ("GET", "/api/topics/{name:path}/messages"): Operation(
        summary="The latest publishes and requests of a topic.", tag="topics", answer=Latest, query=LatestQuery
    ),
    ("GET", "/api/subscriptions/named"): Operation(
        summary="Subscriptions by name, with cursor and lag.", tag="topics", answer=SubscriptionPage, query=PageQuery
    ),
    ("POST", "/api/subscriptions"): Operation(
        summary="Make a subscription that begins at a place, before anybody consumes from it.",
        tag="topics",
        answer=MadeSubscription,
        body=NewSubscription,
        statuses=(200, 201),
    ),
    ("GET", "/api/subscriptions/policy"): Operation(
        summary="What becomes of messages that a subscription's consumers do not acknowledge, and how many they have.",
        tag="topics",
        answer=DeliveryPolicy,
        query=PolicyQuery,
    ),
    ("PUT", "/api/subscriptions/policy"): Operation(
        summary="Set it, at once or for a subscription to come; what is left out is as the bus's settings say.",
        tag="topics",
        answer=DeliveryPolicy,
        query=PolicyQuery,
        body=WantedPolicy,
    ),
    ("DELETE", "/api/subscriptions/policy"): Operation(
        summary="Take it back: what the bus's settings say holds again.",
        tag="topics",
        answer=RemovedPolicy,
        query=PolicyQuery,
    ),
    ("POST", "/api/queues"): Operation(
        summary="Make a queue that begins at a place.",
        tag="topics",
        answer=MadeQueue,
        body=NewQueue,
        statuses=(200, 201),
    ),
    ("POST", "/api/replay"): Operation(
        summary="Let a subscription or a queue go on from another place.", tag="topics", answer=Replayed, body=Replay
    ),
    ("GET", "/api/policies/namespaces/{name}"): Operation(
        summary="Limits of a namespace.", tag="topics", answer=Policies
    ),
    ("PUT", "/api/policies/namespaces/{name}"): Operation(
        summary="Set limits of a namespace.", tag="topics", answer=Policies, body=Policies
    ),
    ("GET", "/api/policies/topics/{name:path}"): Operation(summary="Limits of a topic.", tag="topics", answer=Policies),
    ("PUT", "/api/policies/topics/{name:path}"): Operation(
        summary="Set limits of a topic.", tag="topics", answer=Policies, body=Policies
    ),
    ("GET", "/api/messages"): Operation(
        summary="Search messages, newest first, within a budget.", tag="messages", answer=Page, query=Search
    ),
    ("GET", "/api/messages/{position}"): Operation(summary="One message.", tag="messages", answer=Message),
    ("GET", "/api/messages/{position}/payload"): Operation(
        summary="The payload of a message, as it is.", tag="messages", media_type=BYTES
    ),
    ("GET", "/api/traces/{id:path}"): Operation(
        summary="The trace that a message belongs to, as a tree.", tag="messages", answer=Trace, query=TraceQuery
    ),
    ("GET", "/api/rejected"): Operation(
        summary="Messages that were refused or not delivered.", tag="messages", answer=RejectedPage, query=RejectedQuery
    ),
    ("GET", "/api/rejected/{position:int}"): Operation(
        summary="One of them, with its payload.", tag="messages", answer=RejectedRow
    ),
    ("POST", "/api/rejected/{position:int}/redrive"): Operation(
        summary="Send it again, to its own topic or another.", tag="messages", answer=Redriven, body=OtherTopic
    ),
    ("POST", "/topics/{name:path}"): Operation(
        summary="Publish, one message or a batch of events; answered when it is on the disk.",
        tag="door",
        answer=Stored,
        takes=BYTES,
        statuses=(200, 201),
    ),
    ("GET", "/topics/{name:path}"): Operation(
        summary="Messages of a topic from an offset on; as they come with `Accept: text/event-stream`.",
        tag="door",
        answer=TopicMessages,
        query=ReadQuery,
    ),
    ("POST", "/requests/{name:path}"): Operation(
        summary="Ask, and get the service's own answer.", tag="door", takes=BYTES, media_type="*/*"
    ),
    ("GET", "/asyncapi.json"): Operation(
        summary="Topics and their schemas, as AsyncAPI.", tag="door", answer=dict[str, Any], query=AsyncQuery
    ),
    ("GET", "/api/queues"): Operation(summary="Queues.", tag="queues", answer=QueuePage),
    ("GET", "/api/queues/{name:path}/messages"): Operation(
        summary="What waits in a queue.", tag="queues", answer=QueueMessages, query=PeekQuery
    ),
    ("DELETE", "/api/queues/{name:path}/messages"): Operation(
        summary="Drop what waits in a queue.", tag="queues", answer=QueueMessages
    ),
    ("GET", "/api/seneca/services"): Operation(summary="Attached Seneca services.", tag="seneca", answer=Services),
    ("POST", "/api/seneca/services"): Operation(
        summary="Attach a Seneca service.", tag="seneca", answer=Services, body=Attach
    ),
    ("DELETE", "/api/seneca/services"): Operation(
        summary="Detach a Seneca service.", tag="seneca", answer=Detached, body=Attach
    ),
    ("GET", "/api/schemas"): Operation(summary="Subjects with their latest version.", tag="schemas", answer=Subjects),
    ("GET", f"{SCHEMAS}/versions"): Operation(summary="Versions of a subject.", tag="schemas", answer=Versions),
    ("POST", f"{SCHEMAS}/versions"): Operation(
        summary="Register a version.", tag="schemas", answer=Version, body=Definition, statuses=(200, 201)
    ),
    ("GET", f"{SCHEMAS}/versions/{{version}}"): Operation(summary="One version.", tag="schemas", answer=Version),
    ("DELETE", f"{SCHEMAS}/versions/{{version}}"): Operation(
        summary="Delete a version.", tag="schemas", answer=Version
    ),
    ("POST", f"{SCHEMAS}/check"): Operation(
        summary="Could this definition be the next version?", tag="schemas", answer=Compatibility, body=Definition
    ),
    ("GET", f"{SCHEMAS}/differences"): Operation(
        summary="Two versions beside each other.", tag="schemas", answer=Differences, query=DifferenceQuery
    ),
    ("PUT", f"{SCHEMAS}/mode"): Operation(
        summary="Set the compatibility mode.", tag="schemas", answer=SubjectMode, body=Mode
    ),
    ("GET", "/api/topic-schemas"): Operation(
        summary="Topics that are bound to a subject.", tag="schemas", answer=BoundTopics
    ),
    ("GET", "/api/topic-schemas/{topic:path}"): Operation(
        summary="What a topic is bound to.", tag="schemas", answer=TopicSchema
    ),
    ("PUT", "/api/topic-schemas/{topic:path}"): Operation(
        summary="Bind a topic.", tag="schemas", answer=TopicSchema, body=TopicSettings
    ),
    ("DELETE", "/api/topic-schemas/{topic:path}"): Operation(
        summary="Free a topic.", tag="schemas", answer=TopicSchema
    ),
    ("GET", "/api/pipeline"): Operation(
        summary="How far the pipeline is, and its tables.", tag="pipeline", answer=Pipeline
    ),
    ("GET", "/api/tables/{name}"): Operation(
        summary="Rows of a table.", tag="pipeline", answer=Preview, query=TableQuery
    ),
}
