"""`raceway pub`, `sub`, `request` and `topics`: send and receive messages of a running bus."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import RacewayError, RemoteError
from raceway.model.text import printable
from raceway.server.running import maybe_running

if TYPE_CHECKING:
    from raceway.client import Message, Subscription

NO_ROUTE = "NO_ROUTE_FOUND"
# Messages between two updates of the progress bar: about 10 ms.
CHUNK = 4096

Topic = Annotated[str, typer.Argument(help="Topic; over zbus a queue, over Seneca a pattern.")]
Payload = Annotated[str | None, typer.Argument(help="Payload. Default, or `-`: standard input.")]
PayloadFile = Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Read the payload from a file.")]
Version = Annotated[str, typer.Option("--version", metavar="X.Y.Z", help="Version of the payload's format (MB).")]
Show = Callable[["Message"], None]


@dataclass(kw_only=True)
class ClientOptions(options.OverWire):
    """Options of a client of a wire."""

    ca_file: Annotated[
        str | None,
        typer.Option("--ca-file", metavar="FILE", help="PEM file of trusted certificates, instead of the system's."),
    ] = None
    cert_file: Annotated[
        str | None,
        typer.Option("--cert-file", metavar="FILE", help="PEM file with the client's certificate and private key."),
    ] = None

    def connect(self, address: str, *, reconnect: bool = False) -> Any:
        from raceway.client import connect

        return connect(
            address, ca_file=self.ca_file, cert_file=self.cert_file, token=self.credential, reconnect=reconnect
        )


# ---- pub -------------------------------------------------------------------------------------------------------------


def pub(
    cli: ClientOptions,
    topic: Topic,
    payload: Payload = None,
    file: PayloadFile = None,
    lines: Annotated[bool, typer.Option("--lines", help="Publish each line of the input as a message.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Publish the input this many times.")] = 1,
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Do not wait until the bus has stored the message.")] = False,
    version: Version = "1.0.0",
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="TOPIC", help="zbus: topic within a publish/subscribe queue.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Danube: routing key; messages with the same key stay in order."),
    ] = None,
) -> None:
    """Publish one message or many. Returns when the bus has stored them on disk.

    A topic without subscribers is not an error: the bus stores the message. Over zbus (`--url zbus://…`) the message
    goes into a queue, and a queue that does not exist is an error. Over Danube (`--url danube://…`) every message is
    acknowledged. Over Seneca (`--url seneca://…`) the topic is a pattern such as `role:math,cmd:sum`, and the payload
    an object to which its keys are added.
    """
    messages = list(_read_messages(payload, file, lines))
    address = cli.address()
    # Seneca over TCP has no acknowledgements.
    confirm = not no_ack and not address.startswith("seneca+tcp:")
    if bus.is_danube(address):
        if no_ack:
            output.fail("Danube acknowledges every message: leave out --no-ack", ExitCode.USAGE)
        keywords: dict[str, Any] = {"key": key}
    else:
        keywords = {"confirm": confirm} | _versioned(address, version)
        keywords |= {"topic": subject} if bus.is_zbus(address) else {}

    async def send() -> bool:
        async with cli.connect(address) as client:
            return await _publish(client, topic, messages, count, keywords)

    began = time.monotonic()
    routed = asyncio.run(send())
    sent, size, acknowledged = len(messages) * count, sum(map(len, messages)) * count, routed and confirm
    what = f"{sent:,} message{'s' if sent != 1 else ''} on {topic} in {time.monotonic() - began:.2f} s"
    cli.tell(
        {"topic": topic, "messages": sent, "bytes": size, "acknowledged": acknowledged, "subscribers": routed},
        f"stored {what}" if acknowledged else f"sent {what}, not acknowledged",
    )
    if not routed:
        cli.note(f"no subscriber for {topic}; the journal stores the message nevertheless")


async def _publish(client: Any, topic: str, messages: list[bytes], count: int, keywords: dict[str, Any]) -> bool:
    """Publish everything in order; return whether there was a subscriber."""
    routed = True
    source = (message for _ in range(count) for message in messages)
    with output.progress(f"publishing on {topic}", len(messages) * count) as bar:
        while chunk := list(islice(source, CHUNK)):
            try:
                await client.publish_many(topic, chunk, **keywords)
            except RemoteError as error:
                if error.reported != NO_ROUTE:
                    raise
                routed = False
            bar.advance(bar.task_ids[0], len(chunk))
    if not keywords.get("confirm", True):
        # Without acknowledgements, too, the messages must have been sent before the process ends.
        await client.heartbeat()
    return routed


def _read_messages(payload: str | None, file: Path | None, lines: bool) -> Iterator[bytes]:
    if payload is not None and payload != "-":
        if file is not None:
            output.fail("give the payload on the command line or with --file, not both", ExitCode.USAGE)
        content = payload.encode("utf-8", "surrogateescape")
    elif file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            output.fail(f"--file {file}: {error.strerror}", ExitCode.USAGE)
    else:
        content = sys.stdin.buffer.read()
    if lines:
        yield from content.splitlines()
    else:
        yield content


# ---- sub -------------------------------------------------------------------------------------------------------------


def sub(
    cli: ClientOptions,
    patterns: Annotated[
        list[str],
        typer.Argument(
            help="Topics or patterns: `flight.+.gate`, `baggage.#`; over zbus one queue, over Danube one topic."
        ),
    ],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N messages.")] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop after this many seconds.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write only the payloads, unchanged; not to a terminal.")] = False,
    subjects: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="TOPIC", help="zbus: topic of a publish/subscribe queue. Default: all."),
    ] = None,
    subscription: Annotated[
        str | None,
        typer.Option("--subscription", metavar="NAME", help="Danube: durable subscription. Default: a temporary one."),
    ] = None,
) -> None:
    """Print messages as they are published, until Ctrl-C.

    With --count and --timeout, status 4 means that fewer than N messages arrived in time. Messages published while the
    connection was lost are missing, and a note says so. Over zbus each printed message is consumed from the queue, and
    no other. Over Danube each printed message is acknowledged; with --subscription a later command continues after it,
    and several commands share the messages.
    """
    if raw and sys.stdout.isatty():
        output.fail("--raw writes untrusted bytes unchanged: redirect it to a file or a pipe", ExitCode.USAGE)
    show = _show_raw if raw else _show_json if cli.as_json else _show_line

    async def receive() -> int:
        address = cli.address()
        _refuse_seneca(address)
        async with cli.connect(address, reconnect=True) as client:
            if bus.is_zbus(address):
                return await _consume(client, patterns, tuple(subjects or "*"), count, timeout, show)
            if bus.is_danube(address):
                return await _acknowledge(client, patterns, subscription, count, timeout, show)
            return await _receive(client, patterns, count, timeout, show)

    came = asyncio.run(receive())
    if count is not None and came < count:
        output.fail(f"{came} of {count} messages arrived within {timeout} s", ExitCode.TIMEOUT)


async def _consume(
    client: Any, queues: list[str], subjects: tuple[str, ...], count: int | None, limit_s: float | None, show: Show
) -> int:
    """Print messages one by one, requesting each only when the previous one was printed."""
    from raceway.client import Message

    if len(queues) > 1:
        output.fail("over zbus `sub` takes exactly one queue", ExitCode.USAGE)
    came = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), await client.consume(queues[0], subjects) as consumer:
            output.note(f"listening to {queues[0]}")
            while count is None or came < count:
                delivery = await anext(consumer)
                show(Message(delivery.queue, delivery.payload, id=delivery.id))
                came += 1
    return came


async def _acknowledge(
    client: Any, topics: list[str], subscription: str | None, count: int | None, limit_s: float | None, show: Show
) -> int:
    """Print and acknowledge messages. A temporary subscription is deleted at the end."""
    from raceway.client import Message

    if len(topics) > 1:
        output.fail("over Danube `sub` takes exactly one topic", ExitCode.USAGE)
    topic, came = topics[0], 0
    name, kind = (subscription, "shared") if subscription else (f"raceway-sub-{uuid.uuid4().hex[:8]}", "exclusive")
    try:
        async with await client.subscribe(topic, name, type=kind) as consumer:
            output.note(f"listening to {topic}")
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    while count is None or came < count:
                        message = await anext(consumer)
                        show(Message(message.topic, message.payload, id=message.id))
                        came += 1
                        await consumer.ack(message)
    finally:
        if subscription is None:
            with suppress(RacewayError):
                await client.unsubscribe(topic, name)
    return came


async def _receive(client: Any, patterns: list[str], count: int | None, limit_s: float | None, show: Show) -> int:
    came, reconnects = 0, 0
    subscriptions = [await client.subscribe(pattern) for pattern in patterns]
    output.note(f"listening to {', '.join(patterns)}")
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), _merged(subscriptions) as messages:
            while count is None or came < count:
                show(await messages())
                came += 1
                if client.reconnects != reconnects:
                    reconnects = client.reconnects
                    output.note("reconnected after a connection loss: messages may be missing here")
    return came


@asynccontextmanager
async def _merged(subscriptions: list[Subscription]) -> AsyncIterator[Callable[[], Awaitable[Message]]]:
    """Yield the messages of all subscriptions as they arrive; raises what a subscription raises."""
    queue: asyncio.Queue[Message | RacewayError] = asyncio.Queue(maxsize=1)

    async def pass_on(subscription: Subscription) -> None:
        try:
            async for message in subscription:
                await queue.put(message)
        except RacewayError as error:
            await queue.put(error)

    async def take() -> Message:
        taken = await queue.get()
        if isinstance(taken, RacewayError):
            raise taken
        return taken

    tasks = [asyncio.create_task(pass_on(subscription)) for subscription in subscriptions]
    try:
        yield take
    finally:
        for task in tasks:
            task.cancel()


def _show_line(message: Message) -> None:
    print(printable(message.topic), printable(message.payload), flush=True)


def _show_json(message: Message) -> None:
    output.print_json({"topic": message.topic, "version": message.version, "id": message.id, "payload": message.text})
    sys.stdout.flush()


def _show_raw(message: Message) -> None:
    sys.stdout.buffer.write(message.payload + b"\n")
    sys.stdout.buffer.flush()


# ---- request ---------------------------------------------------------------------------------------------------------


def request(
    cli: ClientOptions,
    topic: Topic,
    payload: Payload = None,
    file: PayloadFile = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", metavar="MS", help="Timeout of the request. Default: that of the bus.")
    ] = None,
    version: Version = "1.0.0",
) -> None:
    """Send a request and print the answer.

    Ends with status 5 if the answer is an error (printed on standard error), 4 if there was none in time, and 1 if no
    service serves the topic.
    """
    (question,) = _read_messages(payload, file, lines=False)

    async def ask() -> bytes:
        address = cli.address()
        if bus.is_danube(address):
            output.fail("Danube has no requests: use MB, zbus or Seneca", ExitCode.USAGE)
        async with cli.connect(address) as client:
            answer: bytes = await client.request(topic, question, timeout_ms=timeout_ms, **_versioned(address, version))
            return answer

    began = time.monotonic()
    answer = asyncio.run(ask())
    if cli.as_json:
        elapsed_ms = round((time.monotonic() - began) * 1000, 3)
        output.print_json({"topic": topic, "answer": answer, "elapsed_ms": elapsed_ms})
    else:
        print(printable(answer))


# ---- topics ----------------------------------------------------------------------------------------------------------


def topics(cli: ClientOptions) -> None:
    """List patterns and their subscribers; for a bus found by its data folder also the topics stored."""
    address = cli.address()
    _refuse_seneca(address)
    if bus.is_zbus(address):
        output.fail("zbus has queues, not topics: see `raceway queue list`", ExitCode.USAGE)
    if bus.is_danube(address):
        output.fail("this command needs MB: omit --url, or use an mb:// URL", ExitCode.USAGE)

    async def ask() -> tuple[list[Any], dict[str, str]]:
        async with cli.connect(address) as client:
            return await client.topics(), {service.id: service.name for service in await client.services()}

    rows, names = asyncio.run(ask())
    running = None if cli.url else maybe_running(cli.folder)
    console = running.urls["console"] if running else ""
    stored = list(bus.list_all(console, "/api/topics", "topics", cli.credential)) if console else None
    subscribed = [
        {"pattern": row.topic, "kind": row.action, "subscribers": _named(row.subscribers, names)} for row in rows
    ]
    if stored is not None and not cli.as_json:
        cli.show(stored, {"topic": "topic", ">first offset": "first", ">next offset": "next"}, "Stored")
    columns = {"pattern": "pattern", "kind": "kind", "by": lambda row: ", ".join(row["subscribers"])}
    cli.show(subscribed, columns, "Subscribed", document={"stored": stored, "subscribed": subscribed})
    for sentence in bus.blocked_subscriptions(console) if console and not cli.as_json else ():
        output.complain(sentence)


def _named(subscribers: Iterable[Any], names: dict[str, str]) -> list[str]:
    return [names.get(subscriber.service_id) or subscriber.service_id for subscriber in subscribers]


def _versioned(address: str, version: str) -> dict[str, Any]:
    """The `version` argument; only MB has it."""
    return {} if bus.is_zbus(address) or bus.is_seneca(address) else {"version": version}


def _refuse_seneca(address: str) -> None:
    if bus.is_seneca(address):
        output.fail("Seneca has no subscriptions: see `raceway seneca list` for what is attached", ExitCode.USAGE)
