"""Settings of the Seneca wire: for clients, and for calls of the bus to services."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from raceway.config import KIB, MIB, Count, Port, Positive, Section


class SenecaWire(Section, frozen=True):
    """The Seneca wire, for clients."""

    http_port: Annotated[Port, Meta(description="Seneca over HTTP: `POST /act`, every dialect.")] = 10101
    tcp_port: Annotated[Port, Meta(description="Seneca over TCP: one JSON document per line.")] = 10201
    head_limit: Annotated[Positive, Meta(description="Largest head of an HTTP request in bytes.")] = 64 * KIB
    body_limit: Annotated[Positive, Meta(description="Largest document in bytes.")] = 8 * MIB
    # 22,222 ms is the default timeout of npm `seneca`.
    request_timeout_ms: Annotated[
        Positive,
        Meta(
            description="Timeout of a call that sets no shorter one; also how long results are kept for repeated ids."
        ),
    ] = 22_222
    legacy_timeout_ms: Annotated[
        Positive, Meta(description="Timeout of a call of a legacy HTTP client, which itself gives up after 5,555 ms.")
    ] = 5000
    hold_ms: Annotated[
        Positive,
        Meta(
            description="How long a call with a return path (`rtn.urn`) waits for its answer; a later answer is sent "
            "to the return path."
        ),
    ] = 5000
    return_timeout_ms: Annotated[
        Positive, Meta(description="Timeout of a call whose answer is sent to its return path (`rtn.urn`).")
    ] = 600_000
    several_limit: Annotated[Positive, Meta(description="Maximum number of answers to a call with `multiple`.")] = 100
    repeat_ids: Annotated[Positive, Meta(description="Number of calls whose results are kept for repeated ids.")] = (
        50_000
    )
    repeat_bytes: Annotated[Positive, Meta(description="Bytes of results kept for repeated ids.")] = 64 * MIB
    idle_ms: Annotated[Count, Meta(description="Idle time after which a connection is closed. 0: never.")] = 600_000
    max_connections: Annotated[
        Count, Meta(description="Open connections; further ones are closed at once. 0: no limit.")
    ] = 0
    sweep_ms: Annotated[Positive, Meta(description="Interval of checks for incomplete requests.")] = 500


class AttachedServiceSettings(Section, frozen=True):
    """A service to attach at start."""

    pin: str
    url: str
    dialect: Literal["auto", "L", "W", "T", "S"] = "auto"
    name: str = ""


class SenecaDial(Section, frozen=True):
    """Calls of the bus to Seneca services."""

    services: Annotated[
        tuple[AttachedServiceSettings, ...],
        Meta(
            description="Services to attach at each start: `pin`, `url` and optionally `dialect` (L, W, T or S) and "
            "`name`, the pin's topic."
        ),
    ] = ()
    names: Annotated[
        dict[str, str], Meta(description="Pin to topic, for pins whose values do not make a valid topic.")
    ] = {}
    connect_ms: Annotated[Positive, Meta(description="Timeout of a connection attempt to a service.")] = 2000
    retry_ms: Annotated[
        Positive,
        Meta(description="Delay before the first new attempt to reach a service that is down; doubles each time."),
    ] = 1000
    retry_max_ms: Annotated[Positive, Meta(description="Longest delay between attempts.")] = 30_000
    # Node closes an idle connection after 5 s; a call sent at that moment would be lost.
    idle_ms: Annotated[
        Positive, Meta(description="Idle time after which a connection is not reused; Node closes it after 5 s.")
    ] = 4000
    connections: Annotated[Positive, Meta(description="Maximum number of connections to one service.")] = 256
    waiting: Annotated[
        Positive, Meta(description="Maximum number of calls that wait for a connection to one service.")
    ] = 10_000
    waiting_bytes: Annotated[Positive, Meta(description="Maximum bytes of open calls to one service.")] = 64 * MIB
    message_limit: Annotated[
        Positive, Meta(description="Largest document sent to a service in bytes; a larger one is undeliverable.")
    ] = 8 * MIB
    answer_limit: Annotated[Positive, Meta(description="Largest answer of a service in bytes.")] = 8 * MIB
    retries_ms: Annotated[
        tuple[Count, ...],
        Meta(description="Delays before each new attempt to deliver to an observer or a return path."),
    ] = (1000, 2000, 4000)
    observer_messages: Annotated[
        Positive, Meta(description="Messages that wait for one observer; further ones are undeliverable.")
    ] = 10_000
    observer_bytes: Annotated[
        Positive, Meta(description="Bytes of messages that wait for one observer; further ones are undeliverable.")
    ] = 16 * MIB
    return_ms: Annotated[Positive, Meta(description="Timeout of a delivery to a return path.")] = 2000
    return_limit: Annotated[Positive, Meta(description="Largest response of a return path in bytes.")] = 64 * KIB
