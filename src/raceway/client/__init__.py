"""Clients of the bus: `async with connect("mb://127.0.0.1:3001") as bus: …`. Without asyncio: `raceway.client.sync`.

The scheme of the URL chooses the wire and the transport:

    mb       MB over TCP                    mb+tls    … over TLS
    mb+ws    MB over WebSocket              mb+wss    … over TLS
    danube   Danube over gRPC               danube+tls  … over TLS
    zbus     queues of one zbus broker      zbus+track  … of all brokers that trackers know (`host:port;host:port`)
    seneca   Seneca over HTTP               seneca+tcp  … as lines over TCP
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raceway.errors import ConfigError
from raceway.model.subscriptions import FailurePolicy
from raceway.net.client.address import Address, parse_urls
from raceway.net.client.messages import Message
from raceway.net.client.options import Options
from raceway.wires.danube.client.client import DanubeClient, Producer
from raceway.wires.danube.client.consumer import DanubeConsumer, DanubeMessage
from raceway.wires.mb.client.client import MbClient
from raceway.wires.mb.client.messages import Service, Subscriber, SubscriptionRow, TopicRow
from raceway.wires.mb.client.services import Serving
from raceway.wires.mb.client.subscription import Subscription
from raceway.wires.seneca.client.actions import ActionMessage, SenecaService
from raceway.wires.seneca.client.client import Answer, SenecaClient
from raceway.wires.seneca.client.host import SenecaHost
from raceway.wires.zbus.client.client import PUBSUB, QUEUE, TEMPORARY, QueueRow, ZbusClient
from raceway.wires.zbus.client.deliveries import Consumer, Delivery
from raceway.wires.zbus.client.queue_service import QueueService
from raceway.wires.zbus.client.tracked import TrackedClient, TrackedConsumer

__all__ = [
    "PUBSUB", "QUEUE", "TEMPORARY", "ActionMessage", "Answer", "Consumer", "DanubeClient", "DanubeConsumer",
    "DanubeMessage", "Delivery", "FailurePolicy", "MbClient", "Message", "Options", "Producer", "QueueRow",
    "QueueService", "SenecaClient", "SenecaHost", "SenecaService", "Service", "Serving", "Subscriber",
    "Subscription", "SubscriptionRow", "TopicRow", "TrackedClient", "TrackedConsumer", "ZbusClient", "connect",
]  # fmt: skip

# Scheme to (default port, client class).
SCHEMES: dict[str, tuple[int, Callable[[Address, Options], Any]]] = {
    "mb": (3001, MbClient),
    "mb+ws": (3000, MbClient),
    "mb+tls": (8001, MbClient),
    "mb+wss": (8000, MbClient),
    "danube": (6650, DanubeClient),
    "danube+tls": (6650, DanubeClient),
    "zbus": (15555, ZbusClient),
    "zbus+track": (16666, TrackedClient),
    "seneca": (10101, SenecaClient),
    "seneca+tcp": (10201, SenecaClient),
}


def connect(url: str, **options: Any) -> Any:
    """Return a client for `url`. It connects when entered (`async with`) or opened (`await client.open()`).

    The scheme of the URL selects the class: MbClient, DanubeClient, ZbusClient, TrackedClient or SenecaClient. Keyword
    arguments are the fields of `Options`.

    Raises ConfigError if the URL is malformed, its scheme is unknown, or an option does not exist.
    """
    unknown = options.keys() - set(Options.__struct_fields__)
    if unknown:
        known = ", ".join(Options.__struct_fields__)
        raise ConfigError(min(unknown), f"is not an option of a client; known options: {known}")
    address = parse_urls(url, {scheme: port for scheme, (port, _) in SCHEMES.items()})
    return SCHEMES[address.scheme][1](address, Options(**options))
