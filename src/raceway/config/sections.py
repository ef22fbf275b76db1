"""The table of settings: one frozen record per section, with the default, the bounds and the description of each key.

The manual's reference is made from this.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

KIB, MIB = 1024, 1024 * 1024

Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Interval = Annotated[float, Meta(gt=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Retention(Section, frozen=True):
    max_age_s: Annotated[Seconds, Meta(description="Remove segments whose rows are all older; 0 keeps for ever.")] = 0
    max_bytes: Annotated[Count, Meta(description="Remove the oldest segments beyond this total; 0 keeps all.")] = 0
    max_pinned: Annotated[
        Count,
        Meta(description="Bytes that lagging cursors may keep; beyond it the cursor is moved, loudly. 0: no limit."),
    ] = 0
    hold_s: Annotated[
        dict[str, float],
        Meta(description="Topic pattern to seconds: rows of these topics outlive their segment in a `held` file."),
    ] = {}


class Journal(Section, frozen=True):
    folder: Annotated[str, Meta(description="The data folder.")] = "raceway-data"
    durability: Annotated[
        Literal["sync", "os", "memory"],
        Meta(description="When a message counts as stored: after fdatasync, after write, or never on disk."),
    ] = "sync"
    block_bytes: Annotated[
        Positive, Meta(description="A block ends at this size; a larger message is alone in its block.")
    ] = 32 * MIB
    block_rows: Annotated[Positive, Meta(description="A block ends at this many rows.")] = 65_536
    unsynced_bytes: Annotated[
        Positive, Meta(description="Reading from sockets pauses while more than this waits for the disk.")
    ] = 256 * MIB
    segment_bytes: Annotated[Positive, Meta(description="A segment is closed at this size.")] = 256 * MIB
    segment_age_s: Annotated[Interval, Meta(description="A segment that holds rows is closed at this age.")] = 3600.0
    seal: Annotated[bool, Meta(description="Turn closed segments into Parquet.")] = True
    seal_keep_s: Annotated[
        Seconds, Meta(description="How long the blocks of a sealed segment stay beside its Parquet file.")
    ] = 900.0
    row_group_rows: Annotated[Positive, Meta(description="Rows per Parquet row group.")] = 16_384
    upkeep_s: Annotated[Interval, Meta(description="How often sealing and retention look for work.")] = 5.0
    retry_s: Annotated[Interval, Meta(description="How often a full disk is tried again.")] = 1.0
    watch_s: Annotated[
        Interval,
        Meta(description="How often the bus looks whether its folder and files are in their place, and at the disk."),
    ] = 1.0
    warn_used: Annotated[
        float, Meta(gt=0, le=1, description="A disk that is used to this part is warned of in log, `/readyz`, doctor.")
    ] = 0.9
    reserve_bytes: Annotated[
        Count,
        Meta(
            description="Publishes are refused while less is free, so that state and cursors can still be written; no "
            "more than a twentieth of the disk."
        ),
    ] = 64 * MIB
    memory_bytes: Annotated[Positive, Meta(description="With durability `memory`: how much is kept.")] = 256 * MIB
    retention: Retention = Retention()


class Schemas(Section, frozen=True):
    definition_bytes: Annotated[Positive, Meta(description="Largest schema definition.")] = 256 * KIB
    total_bytes: Annotated[Positive, Meta(description="All definitions together; they are held in memory.")] = 64 * MIB
    references: Annotated[
        Positive, Meta(description="Other definitions that one may use, also by way of those it uses.")
    ] = 200
    referenced_bytes: Annotated[Positive, Meta(description="Other definitions that one uses, together.")] = MIB
    checked_bytes: Annotated[
        Positive, Meta(description="Largest payload that is checked against a schema; a larger one is a violation.")
    ] = 4 * MIB
    warn_s: Annotated[
        Seconds, Meta(description="Violations that are let pass are logged once in this time for each topic.")
    ] = 1.0


class TopicLimits(Section, frozen=True):
    """What holds where neither the topic nor its namespace says otherwise."""

    max_producers_per_topic: Annotated[
        Count, Meta(description="Producers of one topic that were heard of lately. 0: no limit.")
    ] = 0
    max_subscriptions_per_topic: Annotated[Count, Meta(description="Subscriptions of one topic. 0: no limit.")] = 0
    max_consumers_per_topic: Annotated[Count, Meta(description="Consumers of one topic. 0: no limit.")] = 0
    max_consumers_per_subscription: Annotated[
        Count, Meta(description="Consumers of one subscription. 0: no limit.")
    ] = 0
    max_publish_rate: Annotated[Count, Meta(description="Publishes a second on one topic. 0: no limit.")] = 0
    max_subscription_dispatch_rate: Annotated[
        Count, Meta(description="Deliveries a second to one subscription. 0: no limit.")
    ] = 0
    max_message_size: Annotated[Count, Meta(description="Largest payload in bytes. 0: each wire's own limit.")] = 0


class FailureDefaults(Section, frozen=True):
    """The failure policy of a subscription that was given none."""

    max_redelivery_count: Annotated[
        Count, Meta(description="Failed deliveries after which a message may be delivered again.")
    ] = 5
    ack_timeout_ms: Annotated[
        Positive, Meta(description="A message whose turn it is and that is not acknowledged by then comes again.")
    ] = 30_000
    base_redelivery_delay_ms: Annotated[Count, Meta(description="How long a failed message waits at first.")] = 1000
    max_redelivery_delay_ms: Annotated[Count, Meta(description="How long it waits at most.")] = 60_000


class Subscriptions(Section, frozen=True):
    auto_create: Annotated[bool, Meta(description="A producer makes the topic that it names.")] = True
    aliases: Annotated[
        dict[str, str],
        Meta(description="Plain name to `/namespace/topic`: under it other wires reach a topic outside `default`."),
    ] = {}
    max_unacked: Annotated[
        int, Meta(ge=1, le=10_000, description="Messages out without an acknowledgement, per subscription.")
    ] = 100  # the size of the usual client's own buffer
    first_in_flight: Annotated[
        int,
        Meta(ge=1, le=10_000, description="Messages out to one consumer at first; it follows what is acknowledged."),
    ] = 10
    exclusive_release_s: Annotated[
        Seconds, Meta(description="An exclusive subscription is free when its owner had no stream for so long.")
    ] = 3.0
    live_removal_s: Annotated[
        Interval, Meta(description="A non-reliable subscription without consumers is removed after this time.")
    ] = 60.0
    unwanted_key_s: Annotated[
        Seconds,
        Meta(description="A key that no consumer wants is skipped when none that did was there for so long."),
    ] = 30.0
    arrival_s: Annotated[
        Seconds, Meta(description="Keys of a consumer that has just subscribed wait so long for its stream.")
    ] = 1.0
    consumer_expiry_s: Annotated[
        Interval, Meta(description="A consumer that had no stream for so long is forgotten; its subscription stays.")
    ] = 86_400.0
    producer_idle_s: Annotated[
        Interval, Meta(description="A producer silent for so long does not count towards limits. Its id stays.")
    ] = 60.0
    recent_bytes: Annotated[
        Positive, Meta(description="Rows kept in memory for consumers, all topics together; others are read back.")
    ] = 64 * MIB
    behind_bytes: Annotated[
        Positive, Meta(description="A non-reliable subscription that is so far behind holds publishers back.")
    ] = 16 * MIB
    dedup_s: Annotated[Seconds, Meta(description="How long an `x-dedup-id` is remembered.")] = 600.0
    dedup_ids: Annotated[Positive, Meta(description="How many of them are remembered for one producer.")] = 100_000
    limits: TopicLimits = TopicLimits()
    failure: FailureDefaults = FailureDefaults()


class Broker(Section, frozen=True):
    request_timeout_ms: Annotated[Count, Meta(description="Deadline of a request that names none.")] = 5000
    request_timeout_max_ms: Annotated[Positive, Meta(description="Longest deadline a request may name.")] = 3_600_000
    max_outstanding: Annotated[Positive, Meta(description="Open requests; one more evicts the oldest.")] = 10_000
    pubsub_messages: Annotated[
        Positive,
        Meta(description="Messages that may wait for one consumer of a publish/subscribe queue: its high-water mark."),
    ] = 1000
    pubsub_bytes: Annotated[Positive, Meta(description="Their bytes.")] = 8 * MIB
    pubsub_topic_bytes: Annotated[
        Positive, Meta(description="Names of topics that one consumer of a publish/subscribe queue may gather.")
    ] = MIB
    hold_ms: Annotated[
        Positive,
        Meta(
            description="So long one subscriber may hold publishers back in any `hold_window_ms`, then it reads alone."
        ),
    ] = 1000
    hold_window_ms: Annotated[Positive, Meta(description="The time over which that is measured.")] = 10_000
    aside_bytes: Annotated[
        Positive,
        Meta(description="What may come in while a subscriber that read from the journal joins the live path again."),
    ] = 4 * MIB
    linger_ms: Annotated[
        Seconds, Meta(description="How long rows that nobody waits for may collect before they are committed.")
    ] = 20.0
    max_topics: Annotated[Positive, Meta(description="Topics that may exist.")] = 1_000_000
    topic_rate: Annotated[
        Count, Meta(description="New topics a second that one address may make in the long run. 0: no limit.")
    ] = 1000
    topic_burst: Annotated[Positive, Meta(description="New topics that one address may make at once.")] = 10_000
    unfinished_bytes: Annotated[
        Positive,
        Meta(description="Input of unfinished messages, all connections together; who holds most is ended first."),
    ] = 256 * MIB
    drain_s: Annotated[
        Seconds, Meta(description="Longest time a stop waits for open requests and unwritten output.")
    ] = 2.0
    schemas: Schemas = Schemas()
    subscriptions: Subscriptions = Subscriptions()


class MbWire(Section, frozen=True):
    tcp_port: Annotated[Port, Meta(description="MB over TCP.")] = 3001
    websocket_port: Annotated[Port, Meta(description="MB over WebSocket.")] = 3000
    tls_port: Annotated[Port, Meta(description="MB over TLS, when a certificate is set.")] = 8001
    wss_port: Annotated[Port, Meta(description="MB over secure WebSocket, when a certificate is set.")] = 8000
    origins: Annotated[
        tuple[str, ...], Meta(description="Browser origins admitted beside loopback ones; `*` admits all.")
    ] = ()
    payload_limit: Annotated[Positive, Meta(description="Largest payload in bytes.")] = 16_384
    heartbeat_ms: Annotated[Positive, Meta(description="Silence after which the broker sends a heartbeat.")] = 30_000
    deregister_ms: Annotated[Positive, Meta(description="Silence after which a service is removed and closed.")] = (
        60_000
    )
    sweep_ms: Annotated[Positive, Meta(description="How often silence and unfinished frames are looked for.")] = 500
    max_connections: Annotated[Count, Meta(description="Connections; one more is closed at once. 0: no limit.")] = 0
    rate_per_service: Annotated[Count, Meta(description="Messages a second from one service. 0: no limit.")] = 0
    rate_per_topic: Annotated[Count, Meta(description="Messages a second on one topic. 0: no limit.")] = 0
    topic_rate_per_service: Annotated[
        dict[str, int], Meta(description="Topic to messages a second from one service.")
    ] = {}


class ZbusWire(Section, frozen=True):
    port: Annotated[Port, Meta(description="zbus: queues, requests, the monitoring page.")] = 15555
    tracker: Annotated[bool, Meta(description="Be a tracker too, on the same port and on the tracker's own.")] = False
    tracker_port: Annotated[Port, Meta(description="The tracker's own port, when it is asked for.")] = 16666
    trackers: Annotated[
        tuple[str, ...], Meta(description="Trackers (host:port) to report this bus to; they must be on the allow-list.")
    ] = ()
    tracker_token: Annotated[
        str, Meta(description="Sent with reports to trackers; with security on also taken with reports from others.")
    ] = ""
    advertised: Annotated[
        str, Meta(description="host:port told to clients as `broker`; empty: the one listened on.")
    ] = ""
    admin_token: Annotated[str, Meta(description="Guards the `admin` commands; empty: open.")] = ""
    head_limit: Annotated[Positive, Meta(description="Largest head of a message in bytes.")] = 64 * KIB
    header_limit: Annotated[Positive, Meta(description="Most headers in a message.")] = 200
    body_limit: Annotated[Positive, Meta(description="Largest body in bytes.")] = 64 * MIB
    request_timeout_ms: Annotated[
        Positive, Meta(description="Deadline of a zbus request that a service of another wire answers.")
    ] = 22_222
    idle_ms: Annotated[Count, Meta(description="Silence after which a connection is closed. 0: never.")] = 0
    max_connections: Annotated[Count, Meta(description="Connections; one more is closed at once. 0: no limit.")] = 0
    sweep_ms: Annotated[Positive, Meta(description="How often unfinished messages are looked for.")] = 500
    report_ms: Annotated[Positive, Meta(description="How often this bus reports itself to its trackers.")] = 3000
    probe_ms: Annotated[Positive, Meta(description="How often a tracker looks whether a bus is still there.")] = 3000
    push_ms: Annotated[Positive, Meta(description="How often a tracker tells its subscribers without being asked.")] = (
        10_000
    )


class GrpcWire(Section, frozen=True):
    message_limit: Annotated[
        Annotated[int, Meta(ge=1, le=4 * MIB - 64 * KIB)],
        Meta(description="Largest message in bytes; clients of gRPC take 4 MiB with everything around it."),
    ] = 4 * MIB - 64 * KIB
    header_limit: Annotated[Positive, Meta(description="Largest header list of a call in bytes.")] = 16 * KIB
    max_streams: Annotated[Positive, Meta(description="Calls that may be open on one connection.")] = 10_000
    buffer_bytes: Annotated[
        Positive, Meta(description="Large messages that may be arriving on one connection, in bytes.")
    ] = 64 * MIB
    stream_bytes: Annotated[Positive, Meta(description="Output that may wait for one server stream.")] = 256 * KIB
    keepalive_ms: Annotated[Positive, Meta(description="Silence after which the peer is sent a ping.")] = 10_000
    keepalive_timeout_ms: Annotated[Positive, Meta(description="How long it may take to answer that.")] = 10_000
    flood_burst: Annotated[
        Positive, Meta(description="Resets, pings, settings and empty frames that may come at once.")
    ] = 10_000
    flood_rate: Annotated[Positive, Meta(description="How many of them a second may come in the long run.")] = 1000
    reset_burst: Annotated[
        Positive, Meta(description="Open calls that one address may give up (RST_STREAM) at once, all its connections.")
    ] = 200
    reset_rate: Annotated[Positive, Meta(description="How many of them a second in the long run.")] = 100
    max_connections: Annotated[Count, Meta(description="Connections; one more is closed at once. 0: no limit.")] = 0
    sweep_ms: Annotated[
        Positive, Meta(description="How often unfinished messages and silent peers are looked for.")
    ] = 500


class DanubeWire(Section, frozen=True):
    port: Annotated[Port, Meta(description="Danube over gRPC: clients, schema registry, administration.")] = 6650
    advertised: Annotated[
        str, Meta(description="host:port told to clients as the broker's address; empty: the one they came to.")
    ] = ""
    attribute_limit: Annotated[Positive, Meta(description="Most attributes of a message.")] = 128
    attribute_bytes: Annotated[Positive, Meta(description="Their names and values together.")] = 64 * KIB
    refusal_ms: Annotated[
        Count, Meta(description="A stream is refused after this time: clients open the next one at once.")
    ] = 2000


class SenecaWire(Section, frozen=True):
    http_port: Annotated[Port, Meta(description="Seneca over HTTP: `POST /act`, every dialect.")] = 10101
    tcp_port: Annotated[Port, Meta(description="Seneca over TCP: one JSON document per line.")] = 10201
    head_limit: Annotated[Positive, Meta(description="Largest head of an HTTP request in bytes.")] = 64 * KIB
    body_limit: Annotated[Positive, Meta(description="Largest document in bytes.")] = 8 * MIB
    request_timeout_ms: Annotated[
        Positive,
        Meta(description="Deadline of a call that says no shorter one; how long a repeated id gets the first result."),
    ] = 22_222
    legacy_timeout_ms: Annotated[
        Positive, Meta(description="Deadline of a call of a legacy HTTP client, which gives up after 5,555 ms.")
    ] = 5000
    hold_ms: Annotated[
        Positive, Meta(description="A call with a return path (`rtn.urn`) is held so long; then its answer goes there.")
    ] = 5000
    return_timeout_ms: Annotated[
        Positive, Meta(description="Deadline of a call whose answer goes to its `rtn.urn`.")
    ] = 600_000
    several_limit: Annotated[Positive, Meta(description="Most answers to a call with `multiple`.")] = 100
    repeat_ids: Annotated[Positive, Meta(description="Calls whose results are kept for repeats.")] = 50_000
    repeat_bytes: Annotated[Positive, Meta(description="Bytes of results kept for repeats.")] = 64 * MIB
    idle_ms: Annotated[Count, Meta(description="Silence after which a connection is closed. 0: never.")] = 600_000
    max_connections: Annotated[Count, Meta(description="Connections; one more is closed at once. 0: no limit.")] = 0
    sweep_ms: Annotated[Positive, Meta(description="How often unfinished requests are looked for.")] = 500


class HttpDoor(Section, frozen=True):
    """Messages over plain HTTP, on the console port."""

    body_limit: Annotated[Positive, Meta(description="Largest message in bytes.")] = 64 * MIB
    pending_bytes: Annotated[
        Positive,
        Meta(description="This port's share of `broker.unfinished_bytes`: messages on their way in; more are refused."),
    ] = 256 * MIB
    head_limit: Annotated[Positive, Meta(description="Largest head of a request in bytes.")] = 64 * KIB
    max_connections: Annotated[
        Count, Meta(description="Connections; one more is answered 503 and closed. 0: no limit.")
    ] = 0
    page_rows: Annotated[Positive, Meta(description="Most messages on a page.")] = 1000
    page_bytes: Annotated[Positive, Meta(description="Payload bytes on a page; one message is always shown.")] = 4 * MIB
    max_streams: Annotated[Positive, Meta(description="Event streams that may be open.")] = 1000
    stream_bytes: Annotated[
        Positive, Meta(description="What waits for one event stream in memory; a slower one reads from the journal.")
    ] = 256 * KIB
    keepalive_ms: Annotated[Positive, Meta(description="Silence after which an event stream gets a comment.")] = 15_000
    stall_ms: Annotated[Positive, Meta(description="An event stream that takes nothing for so long is closed.")] = (
        60_000
    )
    trace_rows: Annotated[Positive, Meta(description="Rows of the journal that one search for a trace may read.")] = (
        2_000_000
    )
    live_ms: Annotated[Positive, Meta(description="How often the console's figures are renewed.")] = 1000


class Listen(Section, frozen=True):
    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port_base: Annotated[
        Port, Meta(description="First of ten ports in a row; 0 uses each wire's own default ports.")
    ] = 0
    insecure: Annotated[bool, Meta(description="Allow an address other than loopback without TLS.")] = False
    hosts: Annotated[tuple[str, ...], Meta(description="Host names admitted in HTTP requests beside our own.")] = ()
    console_port: Annotated[Port, Meta(description="Console, REST, metrics and health.")] = 8600
    tls_certificate: Annotated[str, Meta(description="PEM file with the certificate chain.")] = ""
    tls_key: Annotated[str, Meta(description="PEM file with the private key.")] = ""
    tls_client_ca: Annotated[
        str, Meta(description="PEM file with the authorities of client certificates; empty: none are asked for.")
    ] = ""
    tls_client: Annotated[
        Literal["required", "optional"],
        Meta(description="Whether a client must show a certificate; one that is shown must be good."),
    ] = "required"
    tls_reload_s: Annotated[
        Seconds, Meta(description="How often the files of TLS are looked at for changes. 0: only on SIGHUP.")
    ] = 60.0
    tls_handshake_s: Annotated[Interval, Meta(description="Longest TLS handshake.")] = 5.0
    head_s: Annotated[Interval, Meta(description="A message's head must be complete within this time.")] = 10.0
    body_rate: Annotated[Positive, Meta(description="Bytes a second that a begun message must keep up.")] = KIB
    output_bytes: Annotated[
        Positive,
        Meta(description="Output that may wait for one connection: its high-water mark. Publishers wait then."),
    ] = 16 * MIB
    output_total_bytes: Annotated[
        Positive,
        Meta(description="The same for all connections of a wire together; each has its share, 1 MiB at least."),
    ] = 256 * MIB
    stall_s: Annotated[
        Interval, Meta(description="A peer that takes none of the output that waits for it for so long is closed.")
    ] = 60.0
    socket_send_bytes: Annotated[Positive, Meta(description="SO_SNDBUF of accepted connections.")] = 256 * KIB
    backlog: Annotated[Positive, Meta(description="Connections that may wait to be accepted.")] = 1024
    mb: MbWire = MbWire()
    zbus: ZbusWire = ZbusWire()
    grpc: GrpcWire = GrpcWire()
    danube: DanubeWire = DanubeWire()
    seneca: SenecaWire = SenecaWire()
    http: HttpDoor = HttpDoor()


class SenecaService(Section, frozen=True):
    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


class Seneca(Section, frozen=True):
    services: Annotated[
        tuple[SenecaService, ...],
        Meta(
            description="Services to attach at each start: `pin`, `url` and perhaps `dialect` (L, W, T or S) and "
            "`name`, the pin's topic."
        ),
    ] = ()
    names: Annotated[
        dict[str, str], Meta(description="Pin to topic, for pins whose values cannot be spelled as a topic.")
    ] = {}
    connect_ms: Annotated[Positive, Meta(description="Longest time to connect to a service.")] = 2000
    retry_ms: Annotated[
        Positive, Meta(description="How soon a service that is down is tried again; twice as long each time.")
    ] = 1000
    retry_max_ms: Annotated[Positive, Meta(description="The longest it gets.")] = 30_000
    idle_ms: Annotated[
        Positive, Meta(description="A connection unused for longer is not used again: Node closes after 5 s.")
    ] = 4000
    connections: Annotated[Positive, Meta(description="Most connections to one service.")] = 256
    waiting: Annotated[Positive, Meta(description="Most calls that wait for a connection to one service.")] = 10_000
    waiting_bytes: Annotated[Positive, Meta(description="Most bytes of calls that are open to one service.")] = 64 * MIB
    message_limit: Annotated[
        Positive, Meta(description="Largest document a service is sent; a larger one is undeliverable there.")
    ] = 8 * MIB
    answer_limit: Annotated[Positive, Meta(description="Largest answer of a service in bytes.")] = 8 * MIB
    retries_ms: Annotated[
        tuple[Count, ...],
        Meta(description="Pauses before what an observer or a return path did not take is sent again."),
    ] = (1000, 2000, 4000)
    observer_messages: Annotated[
        Positive, Meta(description="Messages that wait for one observer; one more is undeliverable.")
    ] = 10_000
    observer_bytes: Annotated[Positive, Meta(description="Their bytes.")] = 16 * MIB
    return_ms: Annotated[Positive, Meta(description="Longest time for an answer of a return path.")] = 2000
    return_limit: Annotated[Positive, Meta(description="Largest answer of a return path in bytes.")] = 64 * KIB


class Dial(Section, frozen=True):
    allow: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses (host:port, or a host for all its ports) that the bus may connect to by itself. "
            "Loopback is allowed besides, as long as the bus listens on loopback only."
        ),
    ] = ()


class Security(Section, frozen=True):
    enabled: Annotated[
        bool, Meta(description="Peers must say who they are, and may do only what a role allows them.")
    ] = False
    token_secret: Annotated[str, Meta(description="Secret that tokens (JWT, HS256) are signed with.")] = ""
    token_issuer: Annotated[str, Meta(description="What a token must name as its issuer (`iss`).")] = "raceway"  # noqa: S105 - no secret
    token_audience: Annotated[
        str,
        Meta(description="What a token must name as its audience (`aud`); empty: tokens that have one are refused."),
    ] = ""
    token_life_s: Annotated[
        Positive, Meta(description="Longest life of a token, from `iat` (else from now) to `exp`.")
    ] = 366 * 86_400
    token_leeway_s: Annotated[
        Annotated[int, Meta(ge=0, le=60)],
        Meta(description="How far the clocks of issuer and bus may be apart."),
    ] = 0
    free_failures: Annotated[
        Count, Meta(description="Bad tokens of one address or principal before it must wait. 0: it never must.")
    ] = 10
    failure_wait_s: Annotated[
        Interval, Meta(description="How long it waits then; twice as long after each further one.")
    ] = 1.0
    failure_wait_max_s: Annotated[Interval, Meta(description="The longest it gets.")] = 60.0
    super_admins: Annotated[
        tuple[str, ...], Meta(description="Principals (type:name or name) that may do everything.")
    ] = ()


class Telemetry(Section, frozen=True):
    enabled: Annotated[bool, Meta(description="Send traces to an OpenTelemetry collector; needs the extra `otel`.")] = (
        False
    )
    endpoint: Annotated[str, Meta(description="The collector, OTLP over HTTP.")] = "http://127.0.0.1:4318/v1/traces"
    headers: Annotated[dict[str, str], Meta(description="Headers for the collector, such as a key.")] = {}
    service_name: Annotated[str, Meta(description="The name of this bus among services.")] = "raceway"
    interval_ms: Annotated[Positive, Meta(description="How often the journal is looked at for new rows.")] = 1000
    timeout_ms: Annotated[Positive, Meta(description="Longest time for one delivery.")] = 3000
    batch_spans: Annotated[Positive, Meta(description="Spans in one delivery.")] = 512


class Log(Section, frozen=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Lowest level written to standard error.")
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "text"], Meta(description="`auto`: text on a terminal, JSON otherwise.")
    ] = "auto"


class Pipeline(Section, frozen=True):
    master: Annotated[str, Meta(description="Spark's master: `local[N]`, `local[*]`, `spark://…`, any other.")] = (
        "local[*]"
    )
    memory: Annotated[str, Meta(description="Memory of Spark's driver; with a local master, of all of Spark.")] = "2g"
    format: Annotated[
        Literal["parquet", "delta"], Meta(description="How tables are kept; `delta` also on object stores.")
    ] = "parquet"
    tables: Annotated[
        str, Meta(description="Where tables are kept; empty: in the data folder. With `delta` also s3a:// and others.")
    ] = ""
    trigger_s: Annotated[Interval, Meta(description="How often a running pipeline looks for new rows.")] = 5.0
    max_records: Annotated[Positive, Meta(description="Rows of one batch.")] = 1_048_576
    max_bytes: Annotated[Positive, Meta(description="Bytes of the journal in one batch, about.")] = 512 * MIB
    partitions: Annotated[Count, Meta(description="Tasks that read one batch; 0: as many as there are cores.")] = 0
    restart_s: Annotated[
        Interval,
        Meta(description="`raceway up` starts a pipeline that failed again after this, then after twice as long each."),
    ] = 2.0
    max_failures: Annotated[
        Count,
        Meta(
            description="So many failures in a row, and `raceway up` leaves the pipeline stopped; 0: it goes on trying."
        ),
    ] = 10
    compact_parts: Annotated[
        Count, Meta(description="A run merges the small parts of bronze tables when there are so many; 0: never.")
    ] = 64


class Config(Section, frozen=True):
    listen: Listen = Listen()
    broker: Broker = Broker()
    seneca: Seneca = Seneca()
    dial: Dial = Dial()
    journal: Journal = Journal()
    security: Security = Security()
    telemetry: Telemetry = Telemetry()
    log: Log = Log()
    pipeline: Pipeline = Pipeline()
