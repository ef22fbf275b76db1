"""The table of settings: a frozen record per section, with the type, bounds and default of each key, and below each key
its description.

The manual's reference of settings is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

__all__ = [
    "ARCHIVE_TIMEOUT_S", "KIB", "MIB", "PORTS_IN_A_ROW", "SECRET", "BrokerSettings", "ClusterSettings", "Config",
    "Count", "Dial", "FailureDefaults",
    "GrpcWire", "HistorySettings", "HttpDoorSettings", "JournalSettings", "Listen", "Log", "PipelineSettings", "Port",
    "Positive", "Retention", "SchemaSettings", "Section", "SecuritySettings", "SqlSettings", "StorageSettings",
    "Subscriptions", "Telemetry", "TopicLimits",
]  # fmt: skip

KIB, MIB = 1024, 1024 * 1024
ARCHIVE_TIMEOUT_S = 10.0
# Ports from `listen.port_base` on that are a bus's own.
PORTS_IN_A_ROW = 10

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(gt=0)]

# Marks a setting whose value is not shown. TLS keys are set as file paths, so they are no secrets themselves.
SECRET = Meta(extra={"secret": True})


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all sections."""

    def maybe_fault(self) -> tuple[str, str] | None:
        """Return a key of this section and what is wrong with it, if settings contradict each other."""
        return None


S = TypeVar("S", bound=Section)


class OpenSection(Section, frozen=True):
    """A section below which wires have sections of their own. `wires` has those that differ from their defaults."""

    wires: tuple[Section, ...] = ()

    def of(self, kind: type[S]) -> S:
        """Return the section of this type."""
        return next((section for section in self.wires if isinstance(section, kind)), kind())


class Retention(Section, frozen=True):
    """When segments of the journal are removed."""

    max_age_s: Seconds = 0
    """Remove segments in which every row is older than this. 0: keep for ever."""
    max_bytes: Count = 0
    """Remove the oldest segments while the journal is larger than this. 0: keep all."""
    max_pinned: Count = 0
    """Bytes that retention keeps for cursors that lag; a cursor further back is moved forward, with a warning in the
    log. 0: no limit."""
    hold_s: dict[str, float] = {}
    """Topic pattern to seconds: rows of these topics are copied to a `held` file when their segment is removed, and
    kept this long."""


class JournalSettings(Section, frozen=True):
    """The journal on disk."""

    folder: str = "raceway-data"
    """The data folder."""
    durability: Literal["sync", "os", "memory"] = "sync"
    """When a message counts as stored: `sync` after fdatasync, `os` after write, `memory` at once (nothing is written
    to disk)."""
    block_bytes: Positive = 32 * MIB
    """Maximum size of a block; a larger message gets a block of its own."""
    block_rows: Positive = 65_536
    """Maximum rows in a block."""
    unsynced_bytes: Positive = 256 * MIB
    """Pause reading from sockets while more bytes than this wait for the disk."""
    segment_bytes: Positive = 256 * MIB
    """Close a segment at this size."""
    segment_age_s: Interval = 3600.0
    """Close a segment that has rows at this age."""
    seal: bool = True
    """Convert closed segments to Parquet."""
    seal_keep_s: Seconds = 900.0
    """How long to keep the blocks of a segment after its conversion to Parquet."""
    row_group_rows: Positive = 16_384
    """Rows per Parquet row group."""
    upkeep_s: Interval = 5.0
    """Interval of checks for segments to seal or remove."""
    retry_s: Interval = 1.0
    """Interval of write attempts while the disk is full."""
    watch_s: Interval = 1.0
    """Interval of checks that the data folder and its files still exist, and of free disk space."""
    warn_used: Annotated[float, Meta(gt=0, le=1)] = 0.9
    """Warn in the log, in `/readyz` and in `raceway doctor` when this part of the disk is used."""
    reserve_bytes: Count = 64 * MIB
    """Refuse publishes while less disk space than this is free, so that state and cursors can still be written. At most
    a twentieth of the disk is reserved."""
    memory_bytes: Positive = 256 * MIB
    """With durability `memory`: bytes of messages kept in memory."""
    archive: str = ""
    """Copy sealed segments to this folder or URL (`s3://bucket/path`; server and keys in `[storage]`). Retention then
    removes only archived segments, and readers continue in the archive."""
    archive_timeout_s: Interval = ARCHIVE_TIMEOUT_S
    """Longest wait for a connection to the archive, or for its answer."""
    archive_retry_s: Interval = 10.0
    """Interval of attempts while the archive cannot be reached."""
    archive_cache_bytes: Positive = 1024 * MIB
    """Segments brought back from the archive for subscriptions and queues that are far behind: bytes on disk."""
    retention: Retention = Retention()


class SchemaSettings(Section, frozen=True):
    """Limits of the schema registry."""

    definition_bytes: Positive = 256 * KIB
    """Largest schema definition in bytes."""
    total_bytes: Positive = 64 * MIB
    """Bytes of all schema definitions together; they are held in memory."""
    references: Positive = 200
    """Definitions that a definition may refer to, directly and indirectly."""
    referenced_bytes: Positive = MIB
    """Bytes of all definitions that a definition refers to, directly and indirectly."""
    checked_bytes: Positive = 4 * MIB
    """Largest payload that is validated against a schema; a larger one is a violation."""
    warn_s: Seconds = 1.0
    """With the schema policy `warn`: log violations of one topic at most once in this time."""


class TopicLimits(Section, frozen=True):
    """Limits of topics whose own policy, and that of their namespace, set none."""

    max_producers_per_topic: Count = 0
    """Active producers of one topic (see `producer_idle_s`). 0: no limit."""
    max_subscriptions_per_topic: Count = 0
    """Subscriptions of one topic. 0: no limit."""
    max_consumers_per_topic: Count = 0
    """Consumers of one topic. 0: no limit."""
    max_consumers_per_subscription: Count = 0
    """Consumers of one subscription. 0: no limit."""
    max_publish_rate: Count = 0
    """Publishes per second on one topic. 0: no limit."""
    max_subscription_dispatch_rate: Count = 0
    """Deliveries per second to one subscription. 0: no limit."""
    max_message_size: Count = 0
    """Largest payload in bytes. 0: each wire's own limit."""


class FailureDefaults(Section, frozen=True):
    """The failure policy of subscriptions without one of their own."""

    max_redelivery_count: Count = 5
    """How often a message may be delivered again after failed deliveries."""
    ack_timeout_ms: Positive = 30_000
    """Deliver a message again if it is not acknowledged within this time; the time starts again with each
    acknowledgement of an earlier one."""
    base_redelivery_delay_ms: Count = 1000
    """Delay before the first redelivery of a failed message."""
    max_redelivery_delay_ms: Count = 60_000
    """Longest delay before a redelivery."""


class Subscriptions(Section, frozen=True):
    """Subscriptions, their consumers, and producers."""

    auto_create: bool = True
    """Create a topic when a producer names one that does not exist."""
    aliases: dict[str, str] = {}
    """Plain name to `/namespace/topic`: the name by which other wires reach a topic outside the namespace `default`."""
    # The usual client buffers 100 messages.
    max_unacked: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """Delivered messages of one subscription without an acknowledgement."""
    first_in_flight: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Delivered messages without an acknowledgement that a new consumer starts with; the number then follows its
    acknowledgements."""
    exclusive_release_s: Seconds = 3.0
    """Release an exclusive subscription when its owner has had no stream for this time."""
    live_removal_s: Interval = 60.0
    """Remove a non-reliable subscription that has had no consumers for this time."""
    unwanted_key_s: Seconds = 30.0
    """Skip messages whose key matches no consumer after this many seconds without a matching consumer."""
    arrival_s: Seconds = 1.0
    """How long the keys of a new consumer wait for it to open its stream."""
    consumer_expiry_s: Interval = 86_400.0
    """Forget a consumer that has had no stream for this time; its subscription is kept."""
    producer_idle_s: Interval = 60.0
    """Do not count a producer towards limits after this time without a message; its id is kept."""
    recent_bytes: Positive = 64 * MIB
    """Bytes of recent rows cached for consumers of all topics; older ones are read from disk."""
    behind_bytes: Positive = 16 * MIB
    """Hold back publishers when a non-reliable subscription is this many bytes behind."""
    dedup_s: Seconds = 600.0
    """How long an `x-dedup-id` is remembered."""
    dedup_ids: Positive = 100_000
    """How many `x-dedup-id` are remembered per producer."""
    limits: TopicLimits = TopicLimits()
    failure: FailureDefaults = FailureDefaults()


class BrokerSettings(Section, frozen=True):
    """Requests, queues, backpressure and topics, on all wires."""

    request_timeout_ms: Count = 5000
    """Timeout of a request that sets none."""
    request_timeout_max_ms: Positive = 3_600_000
    """Longest timeout that a request may set."""
    max_outstanding: Positive = 10_000
    """Open requests; beyond this number the oldest one fails."""
    pubsub_messages: Positive = 1000
    """High-water mark of a consumer of a publish/subscribe queue: messages that wait for it."""
    pubsub_bytes: Positive = 8 * MIB
    """High-water mark of a consumer of a publish/subscribe queue: bytes that wait for it."""
    pubsub_topic_bytes: Positive = MIB
    """Bytes of topic names that one consumer of a publish/subscribe queue may subscribe to."""
    hold_ms: Positive = 1000
    """How long one subscriber may hold back publishers within `hold_window_ms`; after that it reads from the journal
    until it has caught up."""
    hold_window_ms: Positive = 10_000
    """The window over which `hold_ms` is measured."""
    aside_bytes: Positive = 4 * MIB
    """Bytes buffered for a subscriber while it changes from reading the journal to live delivery."""
    linger_ms: Seconds = 20.0
    """How long rows may collect before they are committed if no client waits for them."""
    max_topics: Positive = 1_000_000
    """Maximum number of topics."""
    topic_rate: Count = 1000
    """New topics per second that one address may create in the long run. 0: no limit."""
    topic_burst: Positive = 10_000
    """New topics that one address may create at once."""
    max_peer_subscriptions: Positive = 20_000
    """Patterns that one peer may be subscribed to."""
    unfinished_bytes: Positive = 256 * MIB
    """Bytes of incomplete messages of all connections together; beyond it the connection that holds most is closed."""
    drain_s: Seconds = 2.0
    """How long a stop waits at most for open requests and unwritten output."""
    schemas: SchemaSettings = SchemaSettings()
    subscriptions: Subscriptions = Subscriptions()


class GrpcWire(Section, frozen=True):
    """gRPC over HTTP/2, which the Danube wire uses."""

    message_limit: Annotated[int, Meta(ge=1, le=4 * MIB - 64 * KIB)] = 4 * MIB - 64 * KIB
    """Largest message in bytes; gRPC clients accept 4 MiB with everything around it."""
    header_limit: Positive = 16 * KIB
    """Largest header list of a call in bytes."""
    max_streams: Positive = 10_000
    """Calls that may be open on one connection."""
    buffer_bytes: Positive = 64 * MIB
    """Bytes of incomplete large messages on one connection; further ones wait."""
    stream_bytes: Positive = 256 * KIB
    """Bytes of output that may wait for one server stream."""
    keepalive_ms: Positive = 10_000
    """Idle time after which the peer is sent a PING."""
    keepalive_timeout_ms: Positive = 10_000
    """How long the peer may take to answer a PING; then the connection is closed."""
    flood_burst: Positive = 10_000
    """RST_STREAM, PING, SETTINGS and empty frames that one connection may send at once."""
    flood_rate: Positive = 1000
    """How many of the frames of `flood_burst` it may send per second in the long run."""
    reset_burst: Positive = 200
    """Open calls that one address may reset (RST_STREAM) at once, on all its connections."""
    reset_rate: Positive = 100
    """Open calls that one address may reset per second in the long run."""
    max_connections: Count = 0
    """Open connections; further ones are closed at once. 0: no limit."""
    sweep_ms: Positive = 500
    """Interval of checks for incomplete messages and idle peers."""


class HttpDoorSettings(Section, frozen=True):
    """Messages over plain HTTP, on the console port."""

    body_limit: Positive = 64 * MIB
    """Largest message in bytes."""
    pending_bytes: Positive = 256 * MIB
    """This port's share of `broker.unfinished_bytes`, for messages that are being received; further ones are refused.
    """
    head_limit: Positive = 64 * KIB
    """Largest head of a request in bytes."""
    max_connections: Count = 0
    """Open connections; further ones are answered with 503 and closed. 0: no limit."""
    page_rows: Positive = 1000
    """Maximum number of messages on a page."""
    page_bytes: Positive = 4 * MIB
    """Maximum payload bytes on a page; a page has at least one message."""
    max_streams: Positive = 1000
    """Event streams that may be open."""
    stream_bytes: Positive = 256 * KIB
    """Bytes that may wait in memory for one event stream; a slower one reads from the journal."""
    keepalive_ms: Positive = 15_000
    """Idle time after which a comment is sent on an event stream."""
    stall_ms: Positive = 60_000
    """Close an event stream whose client has read nothing for this time."""
    trace_rows: Positive = 2_000_000
    """Rows of the journal that one search for a trace may read."""
    live_ms: Positive = 1000
    """Interval at which the console's figures are updated."""


class Listen(OpenSection, frozen=True):
    """Addresses, TLS and limits of all listening ports."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port_base: Port = 0
    """First of ten ports in a row; 0 uses each wire's own default ports."""
    insecure: bool = False
    """Allow an address other than loopback without TLS."""
    hosts: tuple[str, ...] = ()
    """Host names accepted in HTTP requests besides loopback and `host`."""
    console_port: Port = 8600
    """Console, REST, metrics and health."""
    tls_certificate: str = ""
    """PEM file with the certificate chain."""
    tls_key: str = ""
    """PEM file with the private key."""
    tls_client_ca: str = ""
    """PEM file with the CAs of client certificates; empty: no client certificates."""
    tls_client: Literal["required", "optional"] = "required"
    """Whether a client must present a certificate; one that is presented must be valid."""
    tls_reload_s: Seconds = 60.0
    """Interval of checks for changed TLS files. 0: only on SIGHUP."""
    tls_handshake_s: Interval = 5.0
    """Timeout of a TLS handshake."""
    # Together these bound slow clients ("slow loris"): a head in time, and a body that keeps moving.
    head_s: Interval = 10.0
    """Time within which the head of a message must be complete."""
    body_rate: Positive = KIB
    """Bytes per second at which a message must arrive once it has begun."""
    output_bytes: Positive = 16 * MIB
    """High-water mark of one connection: bytes of output that wait for it. Above it, publishers to that connection are
    held back."""
    output_total_bytes: Positive = 256 * MIB
    """Bytes of output that wait for all connections of a wire together; each connection has an equal share, 1 MiB at
    least. On the console port those whose answers wait are closed beyond it, the largest first."""
    stall_s: Interval = 60.0
    """Close a connection whose peer has read none of its waiting output for this time."""
    socket_send_bytes: Positive = 256 * KIB
    """SO_SNDBUF of accepted connections."""
    backlog: Positive = 1024
    """Connections that may wait to be accepted."""
    grpc: GrpcWire = GrpcWire()
    http: HttpDoorSettings = HttpDoorSettings()


class Dial(Section, frozen=True):
    """Outgoing connections."""

    allow: tuple[str, ...] = ()
    """Addresses (host:port, or a host for all its ports) that the bus may connect to. Loopback is allowed in addition,
    as long as the bus listens on loopback only."""


class SecuritySettings(Section, frozen=True):
    """Authentication and access control."""

    enabled: bool = False
    """Require authentication, and allow peers only what their roles permit."""
    admin_token: Annotated[str, SECRET] = ""
    """The administrator's token: wanted for zbus `admin` commands and for changes over the console port, with or
    without `enabled`; empty: none."""
    token_secret: Annotated[str, SECRET] = ""
    """Secret that signs tokens (JWT, HS256); 32 bytes or more."""
    token_issuer: str = "raceway"  # noqa: S105 - no secret
    """Required issuer (`iss`) of a token."""
    token_audience: str = ""
    """Required audience (`aud`) of a token; empty: tokens with an audience are refused."""
    token_life_s: Positive = 366 * 86_400
    """Longest lifetime of a token, from `iat` (or now, without one) to `exp`."""
    token_leeway_s: Annotated[int, Meta(ge=0, le=60)] = 0
    """Tolerated difference between the clocks of issuer and bus."""
    free_failures: Count = 10
    """Invalid tokens that an address or principal may send before it must wait. 0: no limit."""
    failure_wait_s: Interval = 1.0
    """First wait after too many invalid tokens; doubles with each further one."""
    failure_wait_max_s: Interval = 60.0
    """Longest wait after invalid tokens."""
    super_admins: tuple[str, ...] = ()
    """Principals (type:name or name) with all permissions."""


class HistorySettings(Section, frozen=True):
    """Rates, lag and latency of the last hours, for the console: in the folder `history` of the data folder."""

    interval_s: Seconds = 20.0
    """Interval of measurements. 0: no measurements."""
    keep_h: Positive = 24
    """Hours for which measurements are kept."""
    max_bytes: Positive = 64 * MIB
    """Maximum size of all measurements; the oldest are removed earlier if need be."""
    topics: Positive = 200
    """Topics in one measurement: the busiest, then those with the largest lag."""
    latency_rows: Positive = 20_000
    """Newest rows of the journal in which one measurement looks for answered requests."""


class Telemetry(Section, frozen=True):
    """Export of traces."""

    enabled: bool = False
    """Send traces to an OpenTelemetry collector; needs the extra `otel`."""
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """URL of the collector (OTLP over HTTP)."""
    # An API key often is one of them.
    headers: Annotated[dict[str, str], SECRET] = {}
    """HTTP headers sent to the collector, for example an API key."""
    service_name: str = "raceway"
    """The `service.name` of this bus in traces."""
    interval_ms: Positive = 1000
    """Interval of exports of new rows of the journal."""
    timeout_ms: Positive = 3000
    """Timeout of one export request."""
    batch_spans: Positive = 512
    """Maximum number of spans in one export request."""


class Log(Section, frozen=True):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level written to standard error."""
    format: Literal["auto", "json", "text"] = "auto"
    """`auto`: text on a terminal, JSON otherwise."""


class PipelineSettings(Section, frozen=True):
    """The Spark pipeline that turns the journal into tables."""

    master: str = "local[*]"
    """Spark's master: `local[N]`, `local[*]`, `spark://…`, or any other."""
    memory: str = "2g"
    """Memory of Spark's driver; with a local master, of the whole Spark process."""
    tables: str = ""
    """Folder or URL of the tables, for example s3://lake/raceway; empty: the data folder."""
    journal: str = ""
    """Folder or URL of the journal's archive, to take rows from there; empty: the data folder, which Spark's workers
    must then see."""
    trigger_s: Interval = 5.0
    """Interval at which a running pipeline reads new rows."""
    max_records: Positive = 1_048_576
    """Maximum number of rows in one batch."""
    max_bytes: Positive = 512 * MIB
    """Approximate maximum bytes of the journal in one batch."""
    partitions: Count = 0
    """Tasks that read one batch. 0: the number of cores."""
    restart_s: Interval = 2.0
    """Delay before `raceway up` restarts a failed pipeline; doubles with each further failure."""
    max_failures: Count = 10
    """Consecutive failures after which `raceway up` leaves the pipeline stopped. 0: never."""
    compact_parts: Count = 16
    """Number of small files of one day at which a run merges them. 0: never."""
    vacuum_hours: Count = 24
    """Hours for which files are kept that no current version of a table needs; a run deletes older ones. 0: never."""
    close_minutes: Count = 10
    """Minutes after its end at which a minute or hour of the gold tables is closed and computed exactly."""
    trace_hours: Positive = 24
    """Longest age of a trace; a later message with the same id begins a new one."""
    lineage: str = ""
    """URL of a server, or file, that gets an OpenLineage event when a batch begins, is complete or fails. A key for the
    server is taken from the variable OPENLINEAGE_API_KEY."""


class SqlSettings(Section, frozen=True):
    """SQL over the tables on the console port, each query in a process of its own."""

    timeout_s: Interval = 30.0
    """Time after which a query is ended."""
    memory_bytes: Annotated[int, Meta(ge=64 * MIB)] = 512 * MIB
    """Memory of one query."""
    max_rows: Positive = 100_000
    """Maximum number of rows of one result."""
    max_bytes: Positive = 64 * MIB
    """Maximum size of one result."""
    max_running: Positive = 1
    """Queries that run at the same time; others wait."""


class StorageSettings(Section, frozen=True):
    """The object store of `pipeline.tables` and of `journal.archive`, where these are s3:// URLs. Set once, for Spark,
    for the bus and for every reader; empty settings come from the usual AWS variables or the machine's role."""

    endpoint: str = ""
    """URL of the server, for example http://10.0.0.9:9000; empty: AWS (`AWS_ENDPOINT_URL`)."""
    region: str = ""
    """Region of the bucket (`AWS_REGION`); empty: us-east-1."""
    access_key: Annotated[str, SECRET] = ""
    """Access key (`AWS_ACCESS_KEY_ID`)."""
    secret_key: Annotated[str, SECRET] = ""
    """Secret of the access key (`AWS_SECRET_ACCESS_KEY`)."""
    session_token: Annotated[str, SECRET] = ""
    """Token of temporary credentials (`AWS_SESSION_TOKEN`)."""


class ClusterSettings(Section, frozen=True):
    """The journal on Apache Kafka, shared by several nodes of which one serves. Not used if `url` is empty."""

    url: str = ""
    """The cluster, as kafka://HOST:PORT,HOST:PORT/NAME; `raceway cluster init` makes it."""
    kafka_config: str = ""
    """File with properties of Kafka's client, one name=value per line: security.protocol, ssl.ca.location and so on."""
    advertise: str = ""
    """Host name under which others reach this node; empty: the name of this machine."""
    record_bytes: Annotated[int, Meta(ge=1024)] = 1_000_000
    """Largest record; a larger block is split into several. Must fit `max.message.bytes` of the topics."""
    in_flight: Annotated[int, Meta(ge=1, le=64)] = 4
    """Blocks that may be on their way to Kafka at a time."""
    commit_timeout_s: Interval = 15.0
    """Refuse publishes if Kafka has not accepted a block within this time, until it accepts blocks again."""
    session_timeout_s: Annotated[float, Meta(ge=1)] = 6.0
    """Time without a heartbeat after which a node counts as failed, and another takes over."""
    look_s: Interval = 2.0
    """Interval at which an idle owner checks whether another node has taken over."""
    snapshot_bytes: Positive = 64 * MIB
    """Write a snapshot of the state after this many bytes, which limits how much the next owner must read."""
    snapshot_s: Interval = 10.0
    """Write a snapshot of the state after this time, if it has changed."""
    cache_bytes: Annotated[int, Meta(ge=16 * MIB)] = 1024 * MIB
    """Blocks kept in the data folder, so that readers need not ask Kafka. May be deleted at any time."""


class LaneSettings(Section, frozen=True):
    """Lanes: processes of one bus on this machine, each with a part of the topics."""

    count: Annotated[int, Meta(ge=1, le=64)] = 1
    """Number of lanes, one for each processor at most. It cannot be changed for a data folder. 1: one process."""
    restart_s: Interval = 0.2
    """Delay before a lane that has ended is started again; doubles with each further failure, up to 5 s."""
    link_s: Interval = 5.0
    """Time within which a lane that starts waits for the others before it opens its ports."""


class Config(OpenSection, frozen=True):
    """All settings of the bus."""

    listen: Listen = Listen()
    broker: BrokerSettings = BrokerSettings()
    dial: Dial = Dial()
    journal: JournalSettings = JournalSettings()
    security: SecuritySettings = SecuritySettings()
    history: HistorySettings = HistorySettings()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    pipeline: PipelineSettings = PipelineSettings()
    sql: SqlSettings = SqlSettings()
    storage: StorageSettings = StorageSettings()
    cluster: ClusterSettings = ClusterSettings()
    lanes: LaneSettings = LaneSettings()
