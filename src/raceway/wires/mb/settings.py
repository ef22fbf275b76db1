"""Settings of the MB wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from raceway.config import Count, Port, Positive, Section


class MbWire(Section, frozen=True):
    """The MB wire."""

    tcp_port: Annotated[Port, Meta(description="MB over TCP.")] = 3001
    websocket_port: Annotated[Port, Meta(description="MB over WebSocket.")] = 3000
    tls_port: Annotated[Port, Meta(description="MB over TLS, when a certificate is set.")] = 8001
    wss_port: Annotated[Port, Meta(description="MB over secure WebSocket, when a certificate is set.")] = 8000
    origins: Annotated[
        tuple[str, ...], Meta(description="Browser origins admitted besides loopback; `*` admits all.")
    ] = ()
    payload_limit: Annotated[Positive, Meta(description="Largest payload in bytes.")] = 16_384
    heartbeat_ms: Annotated[Positive, Meta(description="Idle time after which the broker sends a heartbeat.")] = 30_000
    deregister_ms: Annotated[
        Positive, Meta(description="Idle time after which a service is deregistered and its connection closed.")
    ] = 60_000
    sweep_ms: Annotated[Positive, Meta(description="Interval of checks for idle peers and incomplete frames.")] = 500
    max_connections: Annotated[
        Count, Meta(description="Open connections; further ones are closed at once. 0: no limit.")
    ] = 0
    rate_per_service: Annotated[Count, Meta(description="Messages per second from one service. 0: no limit.")] = 0
    rate_per_topic: Annotated[Count, Meta(description="Messages per second on one topic. 0: no limit.")] = 0
    topic_rate_per_service: Annotated[
        dict[str, int], Meta(description="Topic to the messages per second that one service may send on it.")
    ] = {}

    def maybe_fault(self) -> tuple[str, str] | None:
        if self.deregister_ms <= self.heartbeat_ms:
            return "deregister_ms", "must be longer than listen.mb.heartbeat_ms"
        return None
