"""Summary, query, body and answer of each operation of the console port, for the OpenAPI document.

A test ensures that this table and the routes have the same entries.
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
    """A method of a path. `answer` is None if it is not JSON; `body` is None if `takes` names a media type."""

    summary: str
    tag: str
    answer: Any = None
    query: type[msgspec.Struct] | None = None
    body: Any = None
    takes: str = ""
    media_type: str = "application/json"
    statuses: tuple[int, ...] = (200,)


# ---- answers without a record elsewhere ------------------------------------------------------------------------------


class Alive(msgspec.Struct):
    status: str
    version: str


class Ready(msgspec.Struct):
    """Readiness. `warnings`, such as lost rows or a disk that is nearly full, do not affect it."""

    status: str
    reason: str
    warnings: list[str]


class History(msgspec.Struct):
    """Samples of the last five minutes, one a second."""

    samples: list[Sample]


class SubscriptionPage(msgspec.Struct):
    subscriptions: list[SubscriptionStatus]
    after: str | None


class QueuePage(msgspec.Struct):
    queues: list[dict[str, Any]]


class QueueMessages(msgspec.Struct, omit_defaults=True):
    """Waiting messages, oldest first; or how many were purged."""

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
    """A version of a subject. A definition that is not text is base64."""

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
    """Two versions. `reasons`: why readers of the new version cannot read data of the old one (`backward`), and vice
    versa (`forward`)."""

    subject: str
    old: Version
    new: Version
    reasons: dict[str, list[str]]


class RejectedRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message that was refused or not delivered; `redriven`: where it was published again, if it was."""

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
    source: (
        Annotated[Literal["rejected", "undeliverable", "dead_letter"], Meta(description="Only messages of this kind.")]
        | None
    ) = None
    topic: Annotated[str, Meta(description="Only messages of this topic.")] | None = None
    after: Annotated[int, Meta(description="Only messages older than this position.", ge=0)] | None = None
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=500)] = 50


class Redriven(msgspec.Struct):
    position: int
    topic: str
    offset: int | None


class OtherTopic(msgspec.Struct):
    topic: str | None = None


class TraceQuery(msgspec.Struct, kw_only=True):
    topic: Annotated[str, Meta(description="The topic of the message; makes the search much faster.")] | None = None
    since_us: Annotated[int, Meta(description="Only messages at or after this time.", ge=0)] | None = None
    until_us: Annotated[int, Meta(description="Only messages before this time.", ge=0)] | None = None
    rows: Annotated[int, Meta(description="Maximum number of rows to read.", ge=0)] | None = None


class Stored(msgspec.Struct, omit_defaults=True):
    """Position of a published message, or of those of a batch. `repeated`: its x-dedup-id is a repeat, and it was not
    stored again."""

    topic: str | None = None
    offset: int | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    routed: bool | None = None
    repeated: bool | None = None
    messages: list[Stored] | None = None


class TopicMessages(msgspec.Struct, rename={"begin": "from"}):
    """A page of messages. `from`, `next` and `end` (start of this page, start of the next one, end of the topic) are
    offsets, one for each partition, separated by commas."""

    topic: str
    begin: str
    next: str
    end: str
    messages: list[dict[str, Any]]


class ReadQuery(msgspec.Struct, kw_only=True):
    start: Annotated[str, Meta(description="`first`, `end`, or an offset.")] = msgspec.field(
        default="first", name="from"
    )
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=1)] = 100
    form: Annotated[
        Literal["rows", "cloudevents"], Meta(description="Format of messages; `Accept` is used if absent.")
    ] = msgspec.field(default="rows", name="as")


class AsyncQuery(msgspec.Struct, kw_only=True):
    after: Annotated[str, Meta(description="Only topics after this one.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of topics.", ge=1)] = 1000


class BoundTopics(msgspec.Struct):
    topics: list[TopicSchema]


class PageQuery(msgspec.Struct, kw_only=True):
    after: Annotated[str, Meta(description="Continue after this entry, from `after` of the previous page.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=1000)] = 1000


class PeekQuery(msgspec.Struct, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of messages.", ge=0, le=100)] = 10


class DifferenceQuery(msgspec.Struct, kw_only=True):
    old: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"
    new: Annotated[str, Meta(description="A version, or `latest`.")] = "latest"


SCHEMAS = "/api/schemas/{subject:path}"
TEXT, EVENTS, BYTES = "text/plain", "text/event-stream", "application/octet-stream"

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/healthz"): Operation(summary="Check that the process is alive.", tag="bus", answer=Alive),
    ("GET", "/readyz"): Operation(
        summary="Check whether traffic may be sent here.", tag="bus", answer=Ready, statuses=(200, 503)
    ),
    ("GET", "/metrics"): Operation(summary="Metrics for Prometheus.", tag="bus", media_type=TEXT),
    ("GET", "/api/openapi.json"): Operation(summary="This document.", tag="bus", answer=dict[str, Any]),
    ("GET", "/api/session"): Operation(summary="The caller's principal and permissions.", tag="bus", answer=Session),
    ("GET", "/api/overview"): Operation(summary="Current status of the bus.", tag="bus", answer=Overview),
    ("GET", "/api/history"): Operation(summary="Rates of the last five minutes.", tag="bus", answer=History),
    ("GET", "/api/live"): Operation(
        summary="The overview once a second, as server-sent events called `overview`.", tag="bus", media_type=EVENTS
    ),
    ("GET", "/api/journal"): Operation(summary="Health of the journal.", tag="bus", answer=JournalHealth),
    ("GET", "/api/peers"): Operation(summary="Connected peers.", tag="bus", answer=PeerPage, query=PeerQuery),
    ("GET", "/api/subscriptions"): Operation(
        summary="Subscriptions of connected peers, by pattern.", tag="bus", answer=PatternPage, query=PatternQuery
    ),
    ("GET", "/api/graph"): Operation(
        summary="The service graph, from the newest rows or the pipeline's table.",
        tag="bus",
        answer=Graph,
        query=GraphQuery,
    ),
    ("GET", "/api/topics"): Operation(summary="A page of topics.", tag="topics", answer=TopicPage, query=TopicQuery),
    ("GET", "/api/topics/{name:path}"): Operation(summary="One topic.", tag="topics", answer=TopicDetail),
    ("GET", "/api/topics/{name:path}/messages"): Operation(
        summary="The latest publishes and requests of a topic.", tag="topics", answer=Latest, query=LatestQuery
    ),
    ("GET", "/api/subscriptions/named"): Operation(
        summary="Subscriptions by name, with cursor and lag.", tag="topics", answer=SubscriptionPage, query=PageQuery
    ),
    ("POST", "/api/subscriptions"): Operation(
        summary="Create a subscription that starts at a position, before it has consumers.",
        tag="topics",
        answer=MadeSubscription,
        body=NewSubscription,
        statuses=(200, 201),
    ),
    ("GET", "/api/subscriptions/policy"): Operation(
        summary="Failure policy of a subscription, and messages in flight per consumer.",
        tag="topics",
        answer=DeliveryPolicy,
        query=PolicyQuery,
    ),
    ("PUT", "/api/subscriptions/policy"): Operation(
        summary="Set the policy, also of a subscription that does not exist yet; absent fields use the bus's settings.",
        tag="topics",
        answer=DeliveryPolicy,
        query=PolicyQuery,
        body=WantedPolicy,
    ),
    ("DELETE", "/api/subscriptions/policy"): Operation(
        summary="Remove the policy: the bus's settings apply again.",
        tag="topics",
        answer=RemovedPolicy,
        query=PolicyQuery,
    ),
    ("POST", "/api/queues"): Operation(
        summary="Create a queue that starts at a position.",
        tag="topics",
        answer=MadeQueue,
        body=NewQueue,
        statuses=(200, 201),
    ),
    ("POST", "/api/replay"): Operation(
        summary="Move a subscription or a queue to another position.", tag="topics", answer=Replayed, body=Replay
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
        summary="Search messages, newest first, within a limit of rows.", tag="messages", answer=Page, query=Search
    ),
    ("GET", "/api/messages/{position}"): Operation(summary="One message.", tag="messages", answer=Message),
    ("GET", "/api/messages/{position}/payload"): Operation(
        summary="The payload of a message, unchanged.", tag="messages", media_type=BYTES
    ),
    ("GET", "/api/traces/{id:path}"): Operation(
        summary="The trace that a message belongs to, as a tree.", tag="messages", answer=Trace, query=TraceQuery
    ),
    ("GET", "/api/rejected"): Operation(
        summary="Messages that were refused or not delivered.", tag="messages", answer=RejectedPage, query=RejectedQuery
    ),
    ("GET", "/api/rejected/{position:int}"): Operation(
        summary="One rejected message, with its payload.", tag="messages", answer=RejectedRow
    ),
    ("POST", "/api/rejected/{position:int}/redrive"): Operation(
        summary="Publish a rejected message again, to its own topic or another.",
        tag="messages",
        answer=Redriven,
        body=OtherTopic,
    ),
    ("POST", "/topics/{name:path}"): Operation(
        summary="Publish a message or a batch of events; answered after the commit.",
        tag="door",
        answer=Stored,
        takes=BYTES,
        statuses=(200, 201),
    ),
    ("GET", "/topics/{name:path}"): Operation(
        summary="Messages of a topic from an offset on; live with `Accept: text/event-stream`.",
        tag="door",
        answer=TopicMessages,
        query=ReadQuery,
    ),
    ("POST", "/requests/{name:path}"): Operation(
        summary="Send a request and get the service's answer.", tag="door", takes=BYTES, media_type="*/*"
    ),
    ("GET", "/asyncapi.json"): Operation(
        summary="Topics and their schemas, as AsyncAPI.", tag="door", answer=dict[str, Any], query=AsyncQuery
    ),
    ("GET", "/api/queues"): Operation(summary="Queues.", tag="queues", answer=QueuePage),
    ("GET", "/api/queues/{name:path}/messages"): Operation(
        summary="Messages waiting in a queue.", tag="queues", answer=QueueMessages, query=PeekQuery
    ),
    ("DELETE", "/api/queues/{name:path}/messages"): Operation(
        summary="Purge a queue.", tag="queues", answer=QueueMessages
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
        summary="Check whether a definition is compatible as the next version.",
        tag="schemas",
        answer=Compatibility,
        body=Definition,
    ),
    ("GET", f"{SCHEMAS}/differences"): Operation(
        summary="Compare two versions.", tag="schemas", answer=Differences, query=DifferenceQuery
    ),
    ("PUT", f"{SCHEMAS}/mode"): Operation(
        summary="Set the compatibility mode.", tag="schemas", answer=SubjectMode, body=Mode
    ),
    ("GET", "/api/topic-schemas"): Operation(
        summary="Topics that are bound to a subject.", tag="schemas", answer=BoundTopics
    ),
    ("GET", "/api/topic-schemas/{topic:path}"): Operation(
        summary="Schema binding of a topic.", tag="schemas", answer=TopicSchema
    ),
    ("PUT", "/api/topic-schemas/{topic:path}"): Operation(
        summary="Bind a topic to a subject.", tag="schemas", answer=TopicSchema, body=TopicSettings
    ),
    ("DELETE", "/api/topic-schemas/{topic:path}"): Operation(
        summary="Remove the binding of a topic.", tag="schemas", answer=TopicSchema
    ),
    ("GET", "/api/pipeline"): Operation(
        summary="Progress of the pipeline, and its tables.", tag="pipeline", answer=Pipeline
    ),
    ("GET", "/api/tables/{name}"): Operation(
        summary="Rows of a table.", tag="pipeline", answer=Preview, query=TableQuery
    ),
}
