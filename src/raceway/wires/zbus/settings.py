"""Settings of the zbus wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from raceway.config import KIB, MIB, SECRET, Count, Port, Positive, Section


class ZbusWire(Section, frozen=True):
    """The zbus wire."""

    port: Annotated[Port, Meta(description="zbus: queues, requests, the monitoring page.")] = 15555
    tracker: Annotated[bool, Meta(description="Act as a tracker too, on `port` and on `tracker_port`.")] = False
    tracker_port: Annotated[Port, Meta(description="Port of the tracker, if `tracker` is set.")] = 16666
    trackers: Annotated[
        tuple[str, ...], Meta(description="Trackers (host:port) to report this bus to; they must be in `dial.allow`.")
    ] = ()
    tracker_token: Annotated[
        str,
        SECRET,
        Meta(description="Token sent with reports to trackers; with security on, also accepted in reports of others."),
    ] = ""
    advertised: Annotated[
        str, Meta(description="host:port given to clients as `broker`; empty: the listening address.")
    ] = ""
    head_limit: Annotated[Positive, Meta(description="Largest head of a message in bytes.")] = 64 * KIB
    header_limit: Annotated[Positive, Meta(description="Maximum number of headers in a message.")] = 200
    body_limit: Annotated[Positive, Meta(description="Largest body in bytes.")] = 64 * MIB
    request_timeout_ms: Annotated[
        Positive, Meta(description="Timeout of a zbus request that is answered by a service of another wire.")
    ] = 22_222
    idle_ms: Annotated[Count, Meta(description="Idle time after which a connection is closed. 0: never.")] = 0
    max_connections: Annotated[
        Count, Meta(description="Open connections; further ones are closed at once. 0: no limit.")
    ] = 0
    sweep_ms: Annotated[Positive, Meta(description="Interval of checks for incomplete messages.")] = 500
    report_ms: Annotated[Positive, Meta(description="Interval of this bus's reports to its trackers.")] = 3000
    probe_ms: Annotated[
        Positive, Meta(description="Interval at which a tracker probes whether a bus is still reachable.")
    ] = 3000
    push_ms: Annotated[
        Positive, Meta(description="Interval at which a tracker sends its state to its subscribers.")
    ] = 10_000
