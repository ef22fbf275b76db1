"""`raceway pub`, `sub`, `request` and `topics`: send and receive messages of a running bus."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from raceway.cli import bus, options, output
from raceway.cli.talk import Sending, Wanted, talk_of
from raceway.errors import RemoteError
from raceway.model.text import printable
from raceway.server.running import maybe_running

if TYPE_CHECKING:
    from raceway.client import Message

NO_ROUTE = "NO_ROUTE_FOUND"
# Messages between two updates of the progress bar: about 10 ms.
CHUNK = 4096

Topic = Annotated[str, "Topic; over zbus a queue, over Seneca a pattern."]
Payload = Annotated[str | None, "Payload. Default, or `-`: standard input."]
PayloadFile = Annotated[Path | None, "--file FILE", "Read the payload from a file."]
Version = Annotated[str, "--version X.Y.Z", "Version of the payload's format (MB)."]


class ClientOptions(options.OverWire):
    """Options of a client of a wire."""

    ca_file: Annotated[str | None, "--ca-file FILE", "PEM file of trusted certificates, instead of the system's."] = (
        None
    )
    cert_file: Annotated[str | None, "--cert-file FILE", "PEM file with the client's certificate and private key."] = (
        None
    )

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
    lines: Annotated[bool, "--lines", "Publish each line of the input as a message."] = False,
    count: Annotated[int, "--count", "Publish the input this many times.", {"min": 1}] = 1,
    no_ack: Annotated[bool, "--no-ack", "Do not wait until the bus has stored the message."] = False,
    version: Version = "1.0.0",
    subject: Annotated[str | None, "--subject TOPIC", "zbus: topic within a publish/subscribe queue."] = None,
    key: Annotated[str | None, "--key KEY", "Danube: routing key; messages with the same key stay in order."] = None,
) -> None:
    """Publish one message or many. Returns when the bus has stored them on disk.

    A topic without subscribers is not an error: the bus stores the message. Over zbus (`--url zbus://…`) the message
    goes into a queue, and a queue that does not exist is an error. Over Danube (`--url danube://…`) every message is
    acknowledged. Over Seneca (`--url seneca://…`) the topic is a pattern such as `role:math,cmd:sum`, and the payload
    an object to which its keys are added.
    """
    messages = list(_read_messages(payload, file, lines))
    address = cli.address()
    keywords = talk_of(address).publishing(Sending(address, not no_ack, version, subject, key))
    confirm = keywords.get("confirm", True)

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
            output.misuse("give the payload on the command line or with --file, not both")
        content = payload.encode("utf-8", "surrogateescape")
    elif file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            output.misuse(f"--file {file}: {error.strerror}")
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
        list[str], "Topics or patterns: `flight.+.gate`, `baggage.#`; over zbus one queue, over Danube one topic."
    ],
    count: Annotated[int | None, "--count N", "Stop after N messages.", {"min": 1}] = None,
    timeout: Annotated[float | None, "--timeout SECONDS", "Stop after this many seconds."] = None,
    raw: Annotated[bool, "--raw", "Write only the payloads, unchanged; not to a terminal."] = False,
    subjects: Annotated[
        list[str] | None, "--subject TOPIC", "zbus: topic of a publish/subscribe queue. Default: all."
    ] = None,
    subscription: Annotated[
        str | None, "--subscription NAME", "Danube: durable subscription. Default: a temporary one."
    ] = None,
) -> None:
    """Print messages as they are published, until Ctrl-C.

    With --count and --timeout, status 4 means that fewer than N messages arrived in time. Messages published while the
    connection was lost are missing, and a note says so. Over zbus each printed message is consumed from the queue, and
    no other. Over Danube each printed message is acknowledged; with --subscription a later command continues after it,
    and several commands share the messages.
    """
    if raw and sys.stdout.isatty():
        output.misuse("--raw writes untrusted bytes unchanged: redirect it to a file or a pipe")
    show = _show_raw if raw else _show_json if cli.as_json else _show_line

    async def receive() -> int:
        address = cli.address()
        talk = talk_of(address)
        talk.check("sub")
        wanted = Wanted(patterns, tuple(subjects or "*"), subscription, count, timeout)
        async with cli.connect(address, reconnect=True) as client:
            return await talk.receive(client, wanted, show)

    came = asyncio.run(receive())
    if count is not None and came < count:
        output.fail(f"{came} of {count} messages arrived within {timeout} s", output.ExitCode.TIMEOUT)


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
    timeout_ms: Annotated[int | None, "--timeout-ms MS", "Timeout of the request. Default: that of the bus."] = None,
    version: Version = "1.0.0",
) -> None:
    """Send a request and print the answer.

    Ends with status 5 if the answer is an error (printed on standard error), 4 if there was none in time, and 1 if no
    service serves the topic.
    """
    (question,) = _read_messages(payload, file, lines=False)

    async def ask() -> bytes:
        address = cli.address()
        talk = talk_of(address)
        talk.check("request")
        async with cli.connect(address) as client:
            answer: bytes = await client.request(topic, question, timeout_ms=timeout_ms, **talk.requesting(version))
            return answer

    began = time.monotonic()
    answer = asyncio.run(ask())
    elapsed_ms = round((time.monotonic() - began) * 1000, 3)
    if not cli.prints_json({"topic": topic, "answer": answer, "elapsed_ms": elapsed_ms}):
        print(printable(answer))


# ---- topics ----------------------------------------------------------------------------------------------------------


def topics(cli: ClientOptions) -> None:
    """List patterns and their subscribers; for a bus found by its data folder also the topics stored."""
    address = cli.address()
    talk_of(address).check("topics")

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
    for sentence in bus.blocked_subscriptions(console, cli.credential) if console and not cli.as_json else ():
        output.complain(sentence)


def _named(subscribers: Iterable[Any], names: dict[str, str]) -> list[str]:
    return [names.get(subscriber.service_id) or subscriber.service_id for subscriber in subscribers]
