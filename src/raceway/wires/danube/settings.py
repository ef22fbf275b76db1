"""Settings of the Danube wire."""

from __future__ import annotations

from raceway.config import KIB, Count, Port, Positive, Section


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

    def maybe_fault(self) -> tuple[str, str] | None:
        return ("advertised", "must be host:port, without a scheme") if "/" in self.advertised else None
