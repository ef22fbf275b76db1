"""Settings of the Seneca wire: for clients, and for calls of the bus to services."""

from __future__ import annotations

from typing import Literal

from raceway.config import KIB, MIB, Count, Port, Positive, Section


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


class AttachedServiceSettings(Section, frozen=True):
    """A service to attach at start."""

    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


class SenecaDial(Section, frozen=True):
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
