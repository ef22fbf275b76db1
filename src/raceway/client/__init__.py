"""Clients of the bus: `async with connect("mb://127.0.0.1:3001") as bus: …`. Without asyncio: `raceway.client.sync`.

The scheme of the URL chooses the wire and the transport:

    mb://        MB over TCP                    mb+tls://      over TLS
    mb+ws://     MB over WebSocket              mb+wss://      over TLS
    danube://    Danube over gRPC               danube+tls://  over TLS
    zbus://      queues of one zbus broker      zbus+track://  of all brokers that trackers know (`host:port;host:port`)
    seneca://    Seneca over HTTP               seneca+tcp://  as lines over TCP
    raceway://   the console port, over HTTP    http://        the same; https:// over TLS

`connect` returns a `Client`, with the methods that all wires have in common. Name the wire for those that only it has:
`connect(url, wire="danube")` returns a DanubeClient.

sync                the same without asyncio
app                 programs of handlers
http, http_stream   the client of the console port, and its streams of messages

Clients of the wires are in their rooms, what all share in `net/client`. Tests without a server: `raceway.testing`.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from raceway import wires
from raceway.client.http import SCHEMES as HTTP_SCHEMES
from raceway.client.http import HttpClient
from raceway.client.http_stream import HttpSubscription, StoredMessage
from raceway.errors import ConfigError
from raceway.model.subscriptions import FailurePolicy
from raceway.net.client.address import parse_urls
from raceway.net.client.client import Client
from raceway.net.client.messages import Content, Message, Published, Receipt
from raceway.net.client.options import Options
from raceway.net.client.schemas import CheckedSchema, ClientSchemas, RegisteredSchema
from raceway.net.client.streams import AnyMessage, MessageStream, Resource, TypedMessage, TypedStream, Workers
from raceway.wires.danube.client.client import DanubeClient, Producer
from raceway.wires.danube.client.consumer import DanubeConsumer, DanubeMessage
from raceway.wires.mb.client.client import MbClient
from raceway.wires.mb.client.messages import Service, Subscriber, SubscriptionRow, TopicRow
from raceway.wires.mb.client.services import Serving
from raceway.wires.mb.client.subscription import Subscription
from raceway.wires.seneca.client.actions import ActionMessage, SenecaService
from raceway.wires.seneca.client.client import Answer, SenecaClient
from raceway.wires.seneca.client.host import SenecaHost
from raceway.wires.wire import load
from raceway.wires.zbus.client.client import PUBSUB, QUEUE, TEMPORARY, QueueRow, ZbusClient
from raceway.wires.zbus.client.deliveries import Consumer, Delivery
from raceway.wires.zbus.client.queue_service import QueueService
from raceway.wires.zbus.client.tracked import TrackedClient, TrackedConsumer

__all__ = [
    "PUBSUB",
    "QUEUE",
    "TEMPORARY",
    "ActionMessage",
    "Answer",
    "AnyMessage",
    "CheckedSchema",
    "Client",
    "ClientSchemas",
    "Consumer",
    "Content",
    "DanubeClient",
    "DanubeConsumer",
    "DanubeMessage",
    "Delivery",
    "FailurePolicy",
    "HttpClient",
    "HttpSubscription",
    "MbClient",
    "Message",
    "MessageStream",
    "Options",
    "Producer",
    "Published",
    "QueueRow",
    "QueueService",
    "Receipt",
    "RegisteredSchema",
    "Resource",
    "SenecaClient",
    "SenecaHost",
    "SenecaService",
    "Service",
    "Serving",
    "StoredMessage",
    "Subscriber",
    "Subscription",
    "SubscriptionRow",
    "TopicRow",
    "TrackedClient",
    "TrackedConsumer",
    "TypedMessage",
    "TypedStream",
    "Workers",
    "ZbusClient",
    "connect",
]  # fmt: skip


@overload
def connect(url: str, *, wire: Literal["mb"], **options: Any) -> MbClient: ...
@overload
def connect(url: str, *, wire: Literal["danube"], **options: Any) -> DanubeClient: ...
@overload
def connect(url: str, *, wire: Literal["zbus"], **options: Any) -> ZbusClient: ...
@overload
def connect(url: str, *, wire: Literal["zbus+track"], **options: Any) -> TrackedClient: ...
@overload
def connect(url: str, *, wire: Literal["seneca"], **options: Any) -> SenecaClient: ...
@overload
def connect(url: str, *, wire: Literal["http"], **options: Any) -> HttpClient: ...
@overload
def connect(url: str, *, wire: None = None, **options: Any) -> Client: ...
def connect(url: str, *, wire: str | None = None, **options: Any) -> Client:
    """Return a client for `url`. It connects when entered (`async with`) or opened (`await client.open()`).

    The scheme of the URL selects the class: MbClient, DanubeClient, ZbusClient, TrackedClient, SenecaClient or
    HttpClient. `wire` (`mb`, `danube`, `zbus`, `zbus+track`, `seneca` or `http`) tells type checkers which, and is
    checked against the URL. Other keyword arguments are the fields of `Options`.

    Raises ConfigError if the URL is malformed, its scheme is unknown or of another wire, or an option does not exist.
    """
    unknown = options.keys() - set(Options.__struct_fields__)
    if unknown:
        known = ", ".join(Options.__struct_fields__)
        raise ConfigError(min(unknown), f"is not an option of a client; known options: {known}")
    schemes = wires.schemes()
    address = parse_urls(url, {name: scheme.default_port for name, scheme in schemes.items()} | HTTP_SCHEMES)
    scheme = schemes.get(address.scheme)
    made: type[Any] = HttpClient if scheme is None else load(scheme.client)
    if wire not in (None, "http" if scheme is None else scheme.name):
        raise ConfigError("wire", f"is {wire!r}, but {address.scheme}:// has a {made.__name__}")
    client: Client = made(address, Options(**options))
    return client
