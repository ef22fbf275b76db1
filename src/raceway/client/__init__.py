"""Clients of the bus: `async with connect("mb://127.0.0.1:3001") as bus: …`. Without asyncio: `raceway.client.sync`.

A scheme of the URL chooses the wire and the transport:

    mb       MB over TCP                    mb+tls    … over TLS
    mb+ws    MB over WebSocket              mb+wss    … over TLS
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raceway.client.address import Address, parse_url
from raceway.client.mb import MbClient
from raceway.client.messages import Message, Service, Subscriber, SubscriptionRow, TopicRow
from raceway.client.options import Options
from raceway.client.services import Serving
from raceway.client.subscription import Subscription
from raceway.errors import ConfigError

__all__ = [
    "MbClient", "Message", "Options", "Service", "Serving", "Subscriber", "Subscription", "SubscriptionRow", "TopicRow",
    "connect",
]  # fmt: skip

# Scheme to the port a bus has when the URL names none, and to what makes the client. Other wires add theirs.
SCHEMES: dict[str, tuple[int, Callable[[Address, Options], MbClient]]] = {
    "mb": (3001, MbClient),
    "mb+ws": (3000, MbClient),
    "mb+tls": (8001, MbClient),
    "mb+wss": (8000, MbClient),
}


def connect(url: str, **options: Any) -> MbClient:
    """A client that connects when it is entered (`async with`) or opened. `options`: see `Options`.

    Raises ConfigError for a URL or an option that cannot be used.
    """
    unknown = options.keys() - set(Options.__struct_fields__)
    if unknown:
        known = ", ".join(Options.__struct_fields__)
        raise ConfigError(min(unknown), f"is no option of a client; there are {known}")
    address = parse_url(url, {scheme: port for scheme, (port, _) in SCHEMES.items()})
    return SCHEMES[address.scheme][1](address, Options(**options))
