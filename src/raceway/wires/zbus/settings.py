"""Settings of the zbus wire."""

from __future__ import annotations

from typing import Annotated

from raceway.config import KIB, MIB, SECRET, Count, Port, Positive, Section


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
    tracker_token: Annotated[str, SECRET] = ""
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
