"""Settings of the Danube wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from raceway.config import KIB, Count, Port, Positive, Section


class DanubeWire(Section, frozen=True):
    """The Danube wire; its transport is set in `listen.grpc`."""

    port: Annotated[Port, Meta(description="Danube over gRPC: clients, schema registry, administration.")] = 6650
    advertised: Annotated[
        str, Meta(description="host:port given to clients as the broker's address; empty: the one they connected to.")
    ] = ""
    attribute_limit: Annotated[Positive, Meta(description="Maximum number of attributes of a message.")] = 128
    attribute_bytes: Annotated[
        Positive, Meta(description="Bytes of a message's attributes, names and values together.")
    ] = 64 * KIB
    # Clients open the next stream at once, so an immediate refusal would be a busy loop.
    refusal_ms: Annotated[
        Count, Meta(description="Delay before a stream is refused; clients retry at once after a refusal.")
    ] = 2000

    def maybe_fault(self) -> tuple[str, str] | None:
        return ("advertised", "must be host:port, without a scheme") if "/" in self.advertised else None
