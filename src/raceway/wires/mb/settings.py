"""Settings of the MB wire."""

from __future__ import annotations

from raceway.config import Count, Port, Positive, Section


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

    def maybe_fault(self) -> tuple[str, str] | None:
        if self.deregister_ms <= self.heartbeat_ms:
            return "deregister_ms", "must be longer than listen.mb.heartbeat_ms"
        return None
