"""`raceway sub`, `request` and `topics`: receive messages of a running bus, and ask its services.

`sub` uses the console port, which has every topic and tells everything about a message, unless a wire is named.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from typing import Annotated, Any

from raceway import wires
from raceway.cli import bus, output
from raceway.cli.clients import (
    HTTP,
    ClientOptions,
    OldVersion,
    PayloadArgument,
    PayloadFile,
    PayloadVersion,
    TimedClient,
    WireTopic,
    read_messages,
    refusals,
)
from raceway.cli.moments import place_of
from raceway.cli.talk import VERSION, ShownMessage, Wanted, is_http, talk_of
from raceway.model.text import printable
from raceway.net.codec.message_documents import payload_fields

# ---- sub -------------------------------------------------------------------------------------------------------------


def sub(
    cli: ClientOptions,
    patterns: Annotated[
        list[str], "Topics or patterns: `flight.+.gate`, `baggage.#`; over zbus one queue, over Danube one topic."
    ],
    count: Annotated[int | None, "--count N", "Stop after N messages.", {"min": 1}] = None,
    timeout: Annotated[float | None, "--timeout SECONDS", "Stop after this many seconds."] = None,
    start: Annotated[
        str | None,
        "--from PLACE",
        "Begin at `first`, `last` (only new messages; the default), an offset (of a single topic), or a time: "
        "2026-01-31T08:00, or 90m, 12h, 7d for an age.",
    ] = None,
    durable: Annotated[
        str | None,
        "--durable, --subscription NAME",
        "Consume from a durable subscription of one topic, which is created if needed (over Danube).",
    ] = None,
    headers: Annotated[
        bool, "--headers", "Print time, offset, sender, id, key and headers under each message."
    ] = False,
    raw: Annotated[bool, "--raw", "Write only the payloads, unchanged; not to a terminal."] = False,
    subjects: Annotated[
        list[str] | None, "--subject TOPIC", "zbus: topic of a publish/subscribe queue. Default: all."
    ] = None,
) -> None:
    """Print messages as they are published, until Ctrl-C.

    With --count and --timeout, status 4 means that fewer than N messages arrived in time. After a lost connection it
    continues where it was; over MB messages of that time are missing, and a note says so. With --durable each printed
    message is acknowledged: a later command continues after it, and several commands share the messages. Over zbus each
    printed message is consumed from the queue, and no other.
    """
    if raw and sys.stdout.isatty():
        output.misuse("--raw writes untrusted bytes unchanged: redirect it to a file or a pipe")
    show = _show_raw if raw else _show_json if cli.as_json else _show_whole if headers else _show_line
    address = cli.place(HTTP if durable is None else next(wire.name for wire in wires.WIRES if wire.durable))
    begin = None if start is None else place_of(start)
    is_bus = cli.named is None or bus.maybe_console(cli.named.url) is not None
    wanted = Wanted(patterns, tuple(subjects or "*"), durable, count, timeout, begin, creates=is_bus)
    talk = talk_of(address)
    talk.check("sub")
    talk.check_options({"--from": begin, "--durable": durable, "--subject": subjects})

    async def receive() -> int:
        async with cli.connect(address, reconnect=True) as client:
            return await talk.receive(client, wanted, show)

    with refusals(address):
        came = asyncio.run(receive())
    if count is not None and came < count:
        output.fail(f"{came} of {count} messages arrived within {timeout} s", output.ExitCode.TIMEOUT)


def _show_line(message: ShownMessage) -> None:
    print(printable(message.topic), printable(message.payload), flush=True)


def _show_whole(message: ShownMessage) -> None:
    """Print a message with an indented line about it, and one for each header."""
    when = output.moment(message.time_us, "milliseconds") if message.time_us else None
    facts = {
        "offset": message.offset,
        "from": message.sender,
        "over": message.wire,
        "key": message.key,
        "id": message.id,
    }
    told = [when, *(f"{name} {value}" for name, value in facts.items() if value not in (None, ""))]
    _show_line(message)
    print("  ", printable("  ".join(text for text in told if text)))
    for name, value in message.headers.items():
        print("  ", printable(f"{name}: {value}"))
    sys.stdout.flush()


def _show_json(message: ShownMessage) -> None:
    row: dict[str, Any] = {"topic": message.topic, "version": message.version, "id": message.id}
    more = {
        "offset": message.offset, "time_us": message.time_us, "sender": message.sender, "wire": message.wire,
        "key": message.key, "headers": dict(message.headers) or None,
    }  # fmt: skip
    row |= {name: value for name, value in more.items() if value not in (None, "")}
    output.print_json(row | payload_fields(message.payload))
    sys.stdout.flush()


def _show_raw(message: ShownMessage) -> None:
    with output.ending_with_its_reader():
        sys.stdout.buffer.write(message.payload + b"\n")
        sys.stdout.buffer.flush()


# ---- request ---------------------------------------------------------------------------------------------------------


def request(
    cli: TimedClient,
    topic: WireTopic,
    payload: PayloadArgument = None,
    file: PayloadFile = None,
    timeout_ms: Annotated[int | None, "--timeout-ms MS", "Timeout of the request. Default: that of the bus."] = None,
    version: PayloadVersion = None,
    old_version: OldVersion = None,
) -> None:
    """Send a request and print the answer.

    Ends with status 5 if the answer is an error (printed on standard error), 4 if there was none in time, and 1 if no
    service serves the topic.
    """
    (question,) = read_messages(payload, file, lines=False)
    if timeout_ms is None and cli.timeout is not None:
        timeout_ms = round(cli.timeout * 1000)
    address = cli.place(wires.WIRES[0].name)
    if is_http(address):
        output.misuse(f"requests go over a wire: --wire {HTTP} is not possible")
    talk = talk_of(address)
    talk.check("request")

    async def ask() -> bytes:
        async with cli.connect(address) as client:
            keywords = talk.requesting(version or old_version or VERSION)
            answer: bytes = await client.request(topic, question, timeout_ms=timeout_ms, **keywords)
            return answer

    began = time.monotonic()
    answer = asyncio.run(ask())
    elapsed_ms = round((time.monotonic() - began) * 1000, 3)
    if not cli.prints_json({"topic": topic, "answer": answer, "elapsed_ms": elapsed_ms}):
        print(printable(answer))


# ---- topics ----------------------------------------------------------------------------------------------------------


def topics(cli: TimedClient) -> None:
    """List patterns and their subscribers; unless --url names a single wire, also the topics stored."""
    address = cli.place(wires.WIRES[0].name)
    if is_http(address):
        output.misuse(f"this command uses a wire: --wire {HTTP} is not possible")
    talk_of(address).check("topics")

    async def ask() -> tuple[list[Any], dict[str, str]]:
        async with cli.connect(address) as client:
            return await client.topics(), {service.id: service.name for service in await client.services()}

    rows, names = cli.run(address, ask())
    console = cli.maybe_console
    stored = list(bus.list_all(console, "/api/topics", "topics", cli.credential, cli.wait_s)) if console else None
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
