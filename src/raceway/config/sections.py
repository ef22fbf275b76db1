"""The table of settings: a frozen record per section, with the type, bounds and default of each key, and below each key
its description.

The manual's reference of settings is generated from it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "KIB", "MIB", "AttachedServiceSettings", "BrokerSettings", "Config", "DanubeWire", "Dial", "FailureDefaults",
    "GrpcWire", "HttpDoorSettings", "JournalSettings", "Listen", "Log", "MbWire", "PipelineSettings", "Retention",
    "SchemaSettings", "Section", "SecuritySettings", "Seneca", "SenecaWire", "Subscriptions", "Telemetry",
    "TopicLimits", "ZbusWire",
]  # fmt: skip

KIB, MIB = 1024, 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(gt=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all sections."""


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
    unfinished_bytes: Positive = 256 * MIB
    """Bytes of incomplete messages of all connections together; beyond it the connection that holds most is closed."""
    drain_s: Seconds = 2.0
    """How long a stop waits at most for open requests and unwritten output."""
    schemas: SchemaSettings = SchemaSettings()
    subscriptions: Subscriptions = Subscriptions()


class MbWire(Section, frozen=True):
    """The MB wire."""

    tcp_port: Port = 3001
    """MB over TCP."""
    websocket_port: Port = 3000
    """MB over WebSocket."""
    tls_port: Port = 8001
    """MB over TLS, when a certificate is set."""
    wss_port: Port = 8000
    """MB over secure WebSocket, when a certificate is set."""
    origins: tuple[str, ...] = ()
    """Browser origins admitted besides loopback; `*` admits all."""
    payload_limit: Positive = 16_384
    """Largest payload in bytes."""
    heartbeat_ms: Positive = 30_000
    """Idle time after which the broker sends a heartbeat."""
    deregister_ms: Positive = 60_000
    """Idle time after which a service is deregistered and its connection closed."""
    sweep_ms: Positive = 500
    """Interval of checks for idle peers and incomplete frames."""
    max_connections: Count = 0
    """Open connections; further ones are closed at once. 0: no limit."""
    rate_per_service: Count = 0
    """Messages per second from one service. 0: no limit."""
    rate_per_topic: Count = 0
    """Messages per second on one topic. 0: no limit."""
    topic_rate_per_service: dict[str, int] = {}
    """Topic to the messages per second that one service may send on it."""


class ZbusWire(Section, frozen=True):
    """The zbus wire."""

    port: Port = 15555
    """zbus: queues, requests, the monitoring page."""
    tracker: bool = False
    """Act as a tracker too, on `port` and on `tracker_port`."""
    tracker_port: Port = 16666
    """Port of the tracker, if `tracker` is set."""
    trackers: tuple[str, ...] = ()
    """Trackers (host:port) to report this bus to; they must be in `dial.allow`."""
    tracker_token: str = ""
    """Token sent with reports to trackers; with security on, also accepted in reports of others."""
    advertised: str = ""
    """host:port given to clients as `broker`; empty: the listening address."""
    head_limit: Positive = 64 * KIB
    """Largest head of a message in bytes."""
    header_limit: Positive = 200
    """Maximum number of headers in a message."""
    body_limit: Positive = 64 * MIB
    """Largest body in bytes."""
    request_timeout_ms: Positive = 22_222
    """Timeout of a zbus request that is answered by a service of another wire."""
    idle_ms: Count = 0
    """Idle time after which a connection is closed. 0: never."""
    max_connections: Count = 0
    """Open connections; further ones are closed at once. 0: no limit."""
    sweep_ms: Positive = 500
    """Interval of checks for incomplete messages."""
    report_ms: Positive = 3000
    """Interval of this bus's reports to its trackers."""
    probe_ms: Positive = 3000
    """Interval at which a tracker probes whether a bus is still reachable."""
    push_ms: Positive = 10_000
    """Interval at which a tracker sends its state to its subscribers."""


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


class DanubeWire(Section, frozen=True):
    """The Danube wire; its transport is set in `listen.grpc`."""

    port: Port = 6650
    """Danube over gRPC: clients, schema registry, administration."""
    advertised: str = ""
    """host:port given to clients as the broker's address; empty: the one they connected to."""
    attribute_limit: Positive = 128
    """Maximum number of attributes of a message."""
    attribute_bytes: Positive = 64 * KIB
    """Bytes of a message's attributes, names and values together."""
    # Clients open the next stream at once, so an immediate refusal would be a busy loop.
    refusal_ms: Count = 2000
    """Delay before a stream is refused; clients retry at once after a refusal."""


class SenecaWire(Section, frozen=True):
    """The Seneca wire, for clients."""

    http_port: Port = 10101
    """Seneca over HTTP: `POST /act`, every dialect."""
    tcp_port: Port = 10201
    """Seneca over TCP: one JSON document per line."""
    head_limit: Positive = 64 * KIB
    """Largest head of an HTTP request in bytes."""
    body_limit: Positive = 8 * MIB
    """Largest document in bytes."""
    # 22,222 ms is the default timeout of npm `seneca`.
    request_timeout_ms: Positive = 22_222
    """Timeout of a call that sets no shorter one; also how long results are kept for repeated ids."""
    legacy_timeout_ms: Positive = 5000
    """Timeout of a call of a legacy HTTP client, which itself gives up after 5,555 ms."""
    hold_ms: Positive = 5000
    """How long a call with a return path (`rtn.urn`) waits for its answer; a later answer is sent to the return path.
    """
    return_timeout_ms: Positive = 600_000
    """Timeout of a call whose answer is sent to its return path (`rtn.urn`)."""
    several_limit: Positive = 100
    """Maximum number of answers to a call with `multiple`."""
    repeat_ids: Positive = 50_000
    """Number of calls whose results are kept for repeated ids."""
    repeat_bytes: Positive = 64 * MIB
    """Bytes of results kept for repeated ids."""
    idle_ms: Count = 600_000
    """Idle time after which a connection is closed. 0: never."""
    max_connections: Count = 0
    """Open connections; further ones are closed at once. 0: no limit."""
    sweep_ms: Positive = 500
    """Interval of checks for incomplete requests."""


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


class Listen(Section, frozen=True):
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
    least."""
    stall_s: Interval = 60.0
    """Close a connection whose peer has read none of its waiting output for this time."""
    socket_send_bytes: Positive = 256 * KIB
    """SO_SNDBUF of accepted connections."""
    backlog: Positive = 1024
    """Connections that may wait to be accepted."""
    mb: MbWire = MbWire()
    zbus: ZbusWire = ZbusWire()
    grpc: GrpcWire = GrpcWire()
    danube: DanubeWire = DanubeWire()
    seneca: SenecaWire = SenecaWire()
    http: HttpDoorSettings = HttpDoorSettings()


class AttachedServiceSettings(Section, frozen=True):
    """A service to attach at start."""

    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


class Seneca(Section, frozen=True):
    """Calls of the bus to Seneca services."""

    services: tuple[AttachedServiceSettings, ...] = ()
    """Services to attach at each start: `pin`, `url` and optionally `dialect` (L, W, T or S) and `name`, the pin's
    topic."""
    names: dict[str, str] = {}
    """Pin to topic, for pins whose values do not make a valid topic."""
    connect_ms: Positive = 2000
    """Timeout of a connection attempt to a service."""
    retry_ms: Positive = 1000
    """Delay before the first new attempt to reach a service that is down; doubles each time."""
    retry_max_ms: Positive = 30_000
    """Longest delay between attempts."""
    # Node closes an idle connection after 5 s; a call sent at that moment would be lost.
    idle_ms: Positive = 4000
    """Idle time after which a connection is not reused; Node closes it after 5 s."""
    connections: Positive = 256
    """Maximum number of connections to one service."""
    waiting: Positive = 10_000
    """Maximum number of calls that wait for a connection to one service."""
    waiting_bytes: Positive = 64 * MIB
    """Maximum bytes of open calls to one service."""
    message_limit: Positive = 8 * MIB
    """Largest document sent to a service in bytes; a larger one is undeliverable."""
    answer_limit: Positive = 8 * MIB
    """Largest answer of a service in bytes."""
    retries_ms: tuple[Count, ...] = (1000, 2000, 4000)
    """Delays before each new attempt to deliver to an observer or a return path."""
    observer_messages: Positive = 10_000
    """Messages that wait for one observer; further ones are undeliverable."""
    observer_bytes: Positive = 16 * MIB
    """Bytes of messages that wait for one observer; further ones are undeliverable."""
    return_ms: Positive = 2000
    """Timeout of a delivery to a return path."""
    return_limit: Positive = 64 * KIB
    """Largest response of a return path in bytes."""


class Dial(Section, frozen=True):
    """Outgoing connections."""

    allow: tuple[str, ...] = ()
    """Addresses (host:port, or a host for all its ports) that the bus may connect to. Loopback is allowed in addition,
    as long as the bus listens on loopback only."""


class SecuritySettings(Section, frozen=True):
    """Authentication and access control."""

    enabled: bool = False
    """Require authentication, and allow peers only what their roles permit."""
    admin_token: str = ""
    """The administrator's token: wanted for zbus `admin` commands and for changes over the console port, with or
    without `enabled`; empty: none."""
    token_secret: str = ""
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


class Telemetry(Section, frozen=True):
    """Export of traces."""

    enabled: bool = False
    """Send traces to an OpenTelemetry collector; needs the extra `otel`."""
    endpoint: str = "http://127.0.0.1:4318/v1/traces"
    """URL of the collector (OTLP over HTTP)."""
    headers: dict[str, str] = {}
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
    format: Literal["parquet", "delta"] = "parquet"
    """Format of tables; `delta` also works on object stores."""
    tables: str = ""
    """Folder or URL of the tables; empty: the data folder. `delta` allows s3a:// and others."""
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
    compact_parts: Count = 64
    """Number of small parts at which a run merges them, in bronze tables. 0: never."""


class Config(Section, frozen=True):
    """All settings of the bus."""

    listen: Listen = Listen()
    broker: BrokerSettings = BrokerSettings()
    seneca: Seneca = Seneca()
    dial: Dial = Dial()
    journal: JournalSettings = JournalSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    pipeline: PipelineSettings = PipelineSettings()
