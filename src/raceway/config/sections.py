"""The table of settings: a frozen record per section, with the default, the bounds and the description of each key.

The manual's reference of settings is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

KIB, MIB = 1024, 1024 * 1024
# Ports from `listen.port_base` on that are a bus's own.
PORTS_IN_A_ROW = 10

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(gt=0)]


# Marks a setting whose value is not shown.
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

    max_age_s: Annotated[
        Seconds, Meta(description="Remove segments in which every row is older than this. 0: keep for ever.")
    ] = 0
    max_bytes: Annotated[
        Count, Meta(description="Remove the oldest segments while the journal is larger than this. 0: keep all.")
    ] = 0
    max_pinned: Annotated[
        Count,
        Meta(
            description="Bytes that retention keeps for cursors that lag; a cursor further back is moved forward, with "
            "a warning in the log. 0: no limit."
        ),
    ] = 0
    hold_s: Annotated[
        dict[str, float],
        Meta(
            description="Topic pattern to seconds: rows of these topics are copied to a `held` file when their segment "
            "is removed, and kept this long."
        ),
    ] = {}


class JournalSettings(Section, frozen=True):
    """The journal on disk."""

    folder: Annotated[str, Meta(description="The data folder.")] = "raceway-data"
    durability: Annotated[
        Literal["sync", "os", "memory"],
        Meta(
            description="When a message counts as stored: `sync` after fdatasync, `os` after write, `memory` at once "
            "(nothing is written to disk)."
        ),
    ] = "sync"
    block_bytes: Annotated[
        Positive, Meta(description="Maximum size of a block; a larger message gets a block of its own.")
    ] = 32 * MIB
    block_rows: Annotated[Positive, Meta(description="Maximum rows in a block.")] = 65_536
    unsynced_bytes: Annotated[
        Positive, Meta(description="Pause reading from sockets while more bytes than this wait for the disk.")
    ] = 256 * MIB
    segment_bytes: Annotated[Positive, Meta(description="Close a segment at this size.")] = 256 * MIB
    segment_age_s: Annotated[Interval, Meta(description="Close a segment that has rows at this age.")] = 3600.0
    seal: Annotated[bool, Meta(description="Convert closed segments to Parquet.")] = True
    seal_keep_s: Annotated[
        Seconds, Meta(description="How long to keep the blocks of a segment after its conversion to Parquet.")
    ] = 900.0
    row_group_rows: Annotated[Positive, Meta(description="Rows per Parquet row group.")] = 16_384
    upkeep_s: Annotated[Interval, Meta(description="Interval of checks for segments to seal or remove.")] = 5.0
    retry_s: Annotated[Interval, Meta(description="Interval of write attempts while the disk is full.")] = 1.0
    watch_s: Annotated[
        Interval,
        Meta(description="Interval of checks that the data folder and its files still exist, and of free disk space."),
    ] = 1.0
    warn_used: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Warn in the log, in `/readyz` and in `raceway doctor` when this part of the disk is used.",
        ),
    ] = 0.9
    reserve_bytes: Annotated[
        Count,
        Meta(
            description="Refuse publishes while less disk space than this is free, so that state and cursors can still "
            "be written. At most a twentieth of the disk is reserved."
        ),
    ] = 64 * MIB
    memory_bytes: Annotated[
        Positive, Meta(description="With durability `memory`: bytes of messages kept in memory.")
    ] = 256 * MIB
    retention: Retention = Retention()


class SchemaSettings(Section, frozen=True):
    """Limits of the schema registry."""

    definition_bytes: Annotated[Positive, Meta(description="Largest schema definition in bytes.")] = 256 * KIB
    total_bytes: Annotated[
        Positive, Meta(description="Bytes of all schema definitions together; they are held in memory.")
    ] = 64 * MIB
    references: Annotated[
        Positive, Meta(description="Definitions that a definition may refer to, directly and indirectly.")
    ] = 200
    referenced_bytes: Annotated[
        Positive, Meta(description="Bytes of all definitions that a definition refers to, directly and indirectly.")
    ] = MIB
    checked_bytes: Annotated[
        Positive, Meta(description="Largest payload that is validated against a schema; a larger one is a violation.")
    ] = 4 * MIB
    warn_s: Annotated[
        Seconds,
        Meta(description="With the schema policy `warn`: log violations of one topic at most once in this time."),
    ] = 1.0


class TopicLimits(Section, frozen=True):
    """Limits of topics whose own policy, and that of their namespace, set none."""

    max_producers_per_topic: Annotated[
        Count, Meta(description="Active producers of one topic (see `producer_idle_s`). 0: no limit.")
    ] = 0
    max_subscriptions_per_topic: Annotated[Count, Meta(description="Subscriptions of one topic. 0: no limit.")] = 0
    max_consumers_per_topic: Annotated[Count, Meta(description="Consumers of one topic. 0: no limit.")] = 0
    max_consumers_per_subscription: Annotated[
        Count, Meta(description="Consumers of one subscription. 0: no limit.")
    ] = 0
    max_publish_rate: Annotated[Count, Meta(description="Publishes per second on one topic. 0: no limit.")] = 0
    max_subscription_dispatch_rate: Annotated[
        Count, Meta(description="Deliveries per second to one subscription. 0: no limit.")
    ] = 0
    max_message_size: Annotated[Count, Meta(description="Largest payload in bytes. 0: each wire's own limit.")] = 0


class FailureDefaults(Section, frozen=True):
    """The failure policy of subscriptions without one of their own."""

    max_redelivery_count: Annotated[
        Count, Meta(description="How often a message may be delivered again after failed deliveries.")
    ] = 5
    ack_timeout_ms: Annotated[
        Positive,
        Meta(
            description="Deliver a message again if it is not acknowledged within this time; the time starts again "
            "with each acknowledgement of an earlier one."
        ),
    ] = 30_000
    base_redelivery_delay_ms: Annotated[
        Count, Meta(description="Delay before the first redelivery of a failed message.")
    ] = 1000
    max_redelivery_delay_ms: Annotated[Count, Meta(description="Longest delay before a redelivery.")] = 60_000


class Subscriptions(Section, frozen=True):
    """Subscriptions, their consumers, and producers."""

    auto_create: Annotated[bool, Meta(description="Create a topic when a producer names one that does not exist.")] = (
        True
    )
    aliases: Annotated[
        dict[str, str],
        Meta(
            description="Plain name to `/namespace/topic`: the name by which other wires reach a topic outside the "
            "namespace `default`."
        ),
    ] = {}
    # The usual client buffers 100 messages.
    max_unacked: Annotated[
        int, Meta(ge=1, le=10_000, description="Delivered messages of one subscription without an acknowledgement.")
    ] = 100
    first_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="Delivered messages without an acknowledgement that a new consumer starts with; the number "
            "then follows its acknowledgements.",
        ),
    ] = 10
    exclusive_release_s: Annotated[
        Seconds,
        Meta(description="Release an exclusive subscription when its owner has had no stream for this time."),
    ] = 3.0
    live_removal_s: Annotated[
        Interval, Meta(description="Remove a non-reliable subscription that has had no consumers for this time.")
    ] = 60.0
    unwanted_key_s: Annotated[
        Seconds,
        Meta(
            description="Skip messages whose key matches no consumer after this many seconds without a matching "
            "consumer."
        ),
    ] = 30.0
    arrival_s: Annotated[
        Seconds, Meta(description="How long the keys of a new consumer wait for it to open its stream.")
    ] = 1.0
    consumer_expiry_s: Annotated[
        Interval,
        Meta(description="Forget a consumer that has had no stream for this time; its subscription is kept."),
    ] = 86_400.0
    producer_idle_s: Annotated[
        Interval,
        Meta(description="Do not count a producer towards limits after this time without a message; its id is kept."),
    ] = 60.0
    recent_bytes: Annotated[
        Positive,
        Meta(description="Bytes of recent rows cached for consumers of all topics; older ones are read from disk."),
    ] = 64 * MIB
    behind_bytes: Annotated[
        Positive,
        Meta(description="Hold back publishers when a non-reliable subscription is this many bytes behind."),
    ] = 16 * MIB
    dedup_s: Annotated[Seconds, Meta(description="How long an `x-dedup-id` is remembered.")] = 600.0
    dedup_ids: Annotated[Positive, Meta(description="How many `x-dedup-id` are remembered per producer.")] = 100_000
    limits: TopicLimits = TopicLimits()
    failure: FailureDefaults = FailureDefaults()


class BrokerSettings(Section, frozen=True):
    """Requests, queues, backpressure and topics, on all wires."""

    request_timeout_ms: Annotated[Count, Meta(description="Timeout of a request that sets none.")] = 5000
    request_timeout_max_ms: Annotated[Positive, Meta(description="Longest timeout that a request may set.")] = 3_600_000
    max_outstanding: Annotated[
        Positive, Meta(description="Open requests; beyond this number the oldest one fails.")
    ] = 10_000
    pubsub_messages: Annotated[
        Positive,
        Meta(description="High-water mark of a consumer of a publish/subscribe queue: messages that wait for it."),
    ] = 1000
    pubsub_bytes: Annotated[
        Positive,
        Meta(description="High-water mark of a consumer of a publish/subscribe queue: bytes that wait for it."),
    ] = 8 * MIB
    pubsub_topic_bytes: Annotated[
        Positive,
        Meta(description="Bytes of topic names that one consumer of a publish/subscribe queue may subscribe to."),
    ] = MIB
    hold_ms: Annotated[
        Positive,
        Meta(
            description="How long one subscriber may hold back publishers within `hold_window_ms`; after that it reads "
            "from the journal until it has caught up."
        ),
    ] = 1000
    hold_window_ms: Annotated[Positive, Meta(description="The window over which `hold_ms` is measured.")] = 10_000
    aside_bytes: Annotated[
        Positive,
        Meta(description="Bytes buffered for a subscriber while it changes from reading the journal to live delivery."),
    ] = 4 * MIB
    linger_ms: Annotated[
        Seconds, Meta(description="How long rows may collect before they are committed if no client waits for them.")
    ] = 20.0
    max_topics: Annotated[Positive, Meta(description="Maximum number of topics.")] = 1_000_000
    topic_rate: Annotated[
        Count, Meta(description="New topics per second that one address may create in the long run. 0: no limit.")
    ] = 1000
    topic_burst: Annotated[Positive, Meta(description="New topics that one address may create at once.")] = 10_000
    unfinished_bytes: Annotated[
        Positive,
        Meta(
            description="Bytes of incomplete messages of all connections together; beyond it the connection that holds "
            "most is closed."
        ),
    ] = 256 * MIB
    drain_s: Annotated[
        Seconds, Meta(description="How long a stop waits at most for open requests and unwritten output.")
    ] = 2.0
    schemas: SchemaSettings = SchemaSettings()
    subscriptions: Subscriptions = Subscriptions()


class GrpcWire(Section, frozen=True):
    """gRPC over HTTP/2, which the Danube wire uses."""

    message_limit: Annotated[
        Annotated[int, Meta(ge=1, le=4 * MIB - 64 * KIB)],
        Meta(description="Largest message in bytes; gRPC clients accept 4 MiB with everything around it."),
    ] = 4 * MIB - 64 * KIB
    header_limit: Annotated[Positive, Meta(description="Largest header list of a call in bytes.")] = 16 * KIB
    max_streams: Annotated[Positive, Meta(description="Calls that may be open on one connection.")] = 10_000
    buffer_bytes: Annotated[
        Positive, Meta(description="Bytes of incomplete large messages on one connection; further ones wait.")
    ] = 64 * MIB
    stream_bytes: Annotated[Positive, Meta(description="Bytes of output that may wait for one server stream.")] = (
        256 * KIB
    )
    keepalive_ms: Annotated[Positive, Meta(description="Idle time after which the peer is sent a PING.")] = 10_000
    keepalive_timeout_ms: Annotated[
        Positive, Meta(description="How long the peer may take to answer a PING; then the connection is closed.")
    ] = 10_000
    flood_burst: Annotated[
        Positive,
        Meta(description="RST_STREAM, PING, SETTINGS and empty frames that one connection may send at once."),
    ] = 10_000
    flood_rate: Annotated[
        Positive, Meta(description="How many of the frames of `flood_burst` it may send per second in the long run.")
    ] = 1000
    reset_burst: Annotated[
        Positive,
        Meta(description="Open calls that one address may reset (RST_STREAM) at once, on all its connections."),
    ] = 200
    reset_rate: Annotated[
        Positive, Meta(description="Open calls that one address may reset per second in the long run.")
    ] = 100
    max_connections: Annotated[
        Count, Meta(description="Open connections; further ones are closed at once. 0: no limit.")
    ] = 0
    sweep_ms: Annotated[Positive, Meta(description="Interval of checks for incomplete messages and idle peers.")] = 500


class HttpDoorSettings(Section, frozen=True):
    """Messages over plain HTTP, on the console port."""

    body_limit: Annotated[Positive, Meta(description="Largest message in bytes.")] = 64 * MIB
    pending_bytes: Annotated[
        Positive,
        Meta(
            description="This port's share of `broker.unfinished_bytes`, for messages that are being received; further "
            "ones are refused."
        ),
    ] = 256 * MIB
    head_limit: Annotated[Positive, Meta(description="Largest head of a request in bytes.")] = 64 * KIB
    max_connections: Annotated[
        Count, Meta(description="Open connections; further ones are answered with 503 and closed. 0: no limit.")
    ] = 0
    page_rows: Annotated[Positive, Meta(description="Maximum number of messages on a page.")] = 1000
    page_bytes: Annotated[
        Positive, Meta(description="Maximum payload bytes on a page; a page has at least one message.")
    ] = 4 * MIB
    max_streams: Annotated[Positive, Meta(description="Event streams that may be open.")] = 1000
    stream_bytes: Annotated[
        Positive,
        Meta(description="Bytes that may wait in memory for one event stream; a slower one reads from the journal."),
    ] = 256 * KIB
    keepalive_ms: Annotated[
        Positive, Meta(description="Idle time after which a comment is sent on an event stream.")
    ] = 15_000
    stall_ms: Annotated[
        Positive, Meta(description="Close an event stream whose client has read nothing for this time.")
    ] = 60_000
    trace_rows: Annotated[Positive, Meta(description="Rows of the journal that one search for a trace may read.")] = (
        2_000_000
    )
    live_ms: Annotated[Positive, Meta(description="Interval at which the console's figures are updated.")] = 1000


class Listen(OpenSection, frozen=True):
    """Addresses, TLS and limits of all listening ports."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port_base: Annotated[
        Port, Meta(description="First of ten ports in a row; 0 uses each wire's own default ports.")
    ] = 0
    insecure: Annotated[bool, Meta(description="Allow an address other than loopback without TLS.")] = False
    hosts: Annotated[
        tuple[str, ...], Meta(description="Host names accepted in HTTP requests besides loopback and `host`.")
    ] = ()
    console_port: Annotated[Port, Meta(description="Console, REST, metrics and health.")] = 8600
    tls_certificate: Annotated[str, Meta(description="PEM file with the certificate chain.")] = ""
    tls_key: Annotated[str, Meta(description="PEM file with the private key.")] = ""
    tls_client_ca: Annotated[
        str, Meta(description="PEM file with the CAs of client certificates; empty: no client certificates.")
    ] = ""
    tls_client: Annotated[
        Literal["required", "optional"],
        Meta(description="Whether a client must present a certificate; one that is presented must be valid."),
    ] = "required"
    tls_reload_s: Annotated[
        Seconds, Meta(description="Interval of checks for changed TLS files. 0: only on SIGHUP.")
    ] = 60.0
    tls_handshake_s: Annotated[Interval, Meta(description="Timeout of a TLS handshake.")] = 5.0
    # Together these bound slow clients ("slow loris"): a head in time, and a body that keeps moving.
    head_s: Annotated[Interval, Meta(description="Time within which the head of a message must be complete.")] = 10.0
    body_rate: Annotated[
        Positive, Meta(description="Bytes per second at which a message must arrive once it has begun.")
    ] = KIB
    output_bytes: Annotated[
        Positive,
        Meta(
            description="High-water mark of one connection: bytes of output that wait for it. Above it, publishers to "
            "that connection are held back."
        ),
    ] = 16 * MIB
    output_total_bytes: Annotated[
        Positive,
        Meta(
            description="Bytes of output that wait for all connections of a wire together; each connection has an "
            "equal share, 1 MiB at least."
        ),
    ] = 256 * MIB
    stall_s: Annotated[
        Interval, Meta(description="Close a connection whose peer has read none of its waiting output for this time.")
    ] = 60.0
    socket_send_bytes: Annotated[Positive, Meta(description="SO_SNDBUF of accepted connections.")] = 256 * KIB
    backlog: Annotated[Positive, Meta(description="Connections that may wait to be accepted.")] = 1024
    grpc: GrpcWire = GrpcWire()
    http: HttpDoorSettings = HttpDoorSettings()


class Dial(Section, frozen=True):
    """Outgoing connections."""

    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses (host:port, or a host for all its ports) that the bus may connect to. Loopback is "
            "allowed in addition, as long as the bus listens on loopback only."
        ),
    ] = ()


class SecuritySettings(Section, frozen=True):
    """Authentication and access control."""

    enabled: Annotated[
        bool, Meta(description="Require authentication, and allow peers only what their roles permit.")
    ] = False
    admin_token: Annotated[
        str,
        SECRET,
        Meta(
            description="The administrator's token: wanted for zbus `admin` commands and for changes over the console "
            "port, with or without `enabled`; empty: none."
        ),
    ] = ""
    token_secret: Annotated[
        str, SECRET, Meta(description="Secret that signs tokens (JWT, HS256); 32 bytes or more.")
    ] = ""
    token_issuer: Annotated[str, Meta(description="Required issuer (`iss`) of a token.")] = "raceway"  # noqa: S105 - no secret
    token_audience: Annotated[
        str, Meta(description="Required audience (`aud`) of a token; empty: tokens with an audience are refused.")
    ] = ""
    token_life_s: Annotated[
        Positive, Meta(description="Longest lifetime of a token, from `iat` (or now, without one) to `exp`.")
    ] = 366 * 86_400
    token_leeway_s: Annotated[
        Annotated[int, Meta(ge=0, le=60)],
        Meta(description="Tolerated difference between the clocks of issuer and bus."),
    ] = 0
    free_failures: Annotated[
        Count,
        Meta(description="Invalid tokens that an address or principal may send before it must wait. 0: no limit."),
    ] = 10
    failure_wait_s: Annotated[
        Interval, Meta(description="First wait after too many invalid tokens; doubles with each further one.")
    ] = 1.0
    failure_wait_max_s: Annotated[Interval, Meta(description="Longest wait after invalid tokens.")] = 60.0
    super_admins: Annotated[
        tuple[str, ...], Meta(description="Principals (type:name or name) with all permissions.")
    ] = ()


class Telemetry(Section, frozen=True):
    """Export of traces."""

    enabled: Annotated[bool, Meta(description="Send traces to an OpenTelemetry collector; needs the extra `otel`.")] = (
        False
    )
    endpoint: Annotated[str, Meta(description="URL of the collector (OTLP over HTTP).")] = (
        "http://127.0.0.1:4318/v1/traces"
    )
    headers: Annotated[
        dict[str, str],
        # An API key often is one of them.
        SECRET,
        Meta(description="HTTP headers sent to the collector, for example an API key."),
    ] = {}
    service_name: Annotated[str, Meta(description="The `service.name` of this bus in traces.")] = "raceway"
    interval_ms: Annotated[Positive, Meta(description="Interval of exports of new rows of the journal.")] = 1000
    timeout_ms: Annotated[Positive, Meta(description="Timeout of one export request.")] = 3000
    batch_spans: Annotated[Positive, Meta(description="Maximum number of spans in one export request.")] = 512


class Log(Section, frozen=True):
    """The log on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Lowest level written to standard error.")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "text"], Meta(description="`auto`: text on a terminal, JSON otherwise.")
    ] = "auto"


class PipelineSettings(Section, frozen=True):
    """The Spark pipeline that turns the journal into tables."""

    master: Annotated[str, Meta(description="Spark's master: `local[N]`, `local[*]`, `spark://…`, or any other.")] = (
        "local[*]"
    )
    memory: Annotated[
        str, Meta(description="Memory of Spark's driver; with a local master, of the whole Spark process.")
    ] = "2g"
    format: Annotated[
        Literal["parquet", "delta"], Meta(description="Format of tables; `delta` also works on object stores.")
    ] = "parquet"
    tables: Annotated[
        str, Meta(description="Folder or URL of the tables; empty: the data folder. `delta` allows s3a:// and others.")
    ] = ""
    trigger_s: Annotated[Interval, Meta(description="Interval at which a running pipeline reads new rows.")] = 5.0
    max_records: Annotated[Positive, Meta(description="Maximum number of rows in one batch.")] = 1_048_576
    max_bytes: Annotated[Positive, Meta(description="Approximate maximum bytes of the journal in one batch.")] = (
        512 * MIB
    )
    partitions: Annotated[Count, Meta(description="Tasks that read one batch. 0: the number of cores.")] = 0
    restart_s: Annotated[
        Interval,
        Meta(description="Delay before `raceway up` restarts a failed pipeline; doubles with each further failure."),
    ] = 2.0
    max_failures: Annotated[
        Count,
        Meta(description="Consecutive failures after which `raceway up` leaves the pipeline stopped. 0: never."),
    ] = 10
    compact_parts: Annotated[
        Count, Meta(description="Number of small parts at which a run merges them, in bronze tables. 0: never.")
    ] = 64


class Config(OpenSection, frozen=True):
    """All settings of the bus."""

    listen: Listen = Listen()
    broker: BrokerSettings = BrokerSettings()
    dial: Dial = Dial()
    journal: JournalSettings = JournalSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    pipeline: PipelineSettings = PipelineSettings()
