"""`raceway pub`: over the console port, which has every topic and tells offsets, or over a wire."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from raceway import wires
from raceway.cli import bus, output
from raceway.cli.clients import (
    HTTP,
    OldVersion,
    PayloadArgument,
    PayloadFile,
    PayloadVersion,
    TimedClient,
    WireTopic,
    read_messages,
    refusals,
)
from raceway.cli.talk import Sending, is_http, talk_of
from raceway.errors import RequestTimeoutError

if TYPE_CHECKING:
    from raceway.client import Receipt

# Messages between two updates of the progress bar: about 10 ms on a wire. With --rate: those of a tenth of a second.
CHUNK, SLICE_S = 4096, 0.1
# Messages and bytes of payload in one request over HTTP.
BATCH, BATCH_BYTES = 500, 1024 * 1024


def pub(
    cli: TimedClient,
    topic: WireTopic,
    payload: PayloadArgument = None,
    file: PayloadFile = None,
    lines: Annotated[bool, "--lines", "Publish each line of the input as a message."] = False,
    count: Annotated[int, "--count N", "Publish the input this many times.", {"min": 1}] = 1,
    rate: Annotated[float | None, "--rate N", "Messages a second, at most.", {"min": 0.001}] = None,
    headers: Annotated[
        list[str] | None, "--header, -H NAME=VALUE", "Header (attribute) of the messages; may be repeated."
    ] = None,
    key: Annotated[str | None, "--key KEY", "Routing key; messages with the same key stay in order."] = None,
    no_ack: Annotated[bool, "--no-ack", "Over a wire: do not wait until the bus has stored the message."] = False,
    version: PayloadVersion = None,
    old_version: OldVersion = None,
    subject: Annotated[str | None, "--subject TOPIC", "zbus: topic within a publish/subscribe queue."] = None,
) -> None:
    """Publish one message or many. Returns when the bus has stored them on disk, and tells their offsets.

    A topic without subscribers is not an error: the bus stores the message. Over zbus (`--wire zbus`) the message
    goes into a queue, and a queue that does not exist is an error. Over Danube every message is acknowledged. Over
    Seneca the topic is a pattern such as `role:math,cmd:sum`, and the payload an object to which its keys are added.
    """
    messages, version = list(read_messages(payload, file, lines)), version or old_version
    attributes = dict(map(_header, headers or ()))
    # Only wires can leave the acknowledgement out; MB is the first.
    address = cli.place(wires.WIRES[0].name if no_ack else HTTP)
    sending = Sending(address, not no_ack, version, subject, key, attributes)
    talk = talk_of(address)
    talk.check_options(
        {"--header": headers, "--key": key, "--payload-version": version, "--subject": subject}
        | ({"--no-ack": no_ack} if is_http(address) else {})
    )
    sent, size = len(messages) * count, sum(map(len, messages)) * count
    began = time.monotonic()
    pace = _Pace(topic, messages, count, rate)
    told: dict[str, Any] = {"topic": topic, "messages": sent, "bytes": size}
    keywords = talk.publishing(sending)
    if is_http(address):
        stored = _publish_http(cli, address, topic, pace, keywords)
        told |= {"acknowledged": True, "subscribers": stored.routed, **stored.offsets()}
        cli.tell(told, stored.text(sent, topic, time.monotonic() - began))
        return
    confirm = keywords.get("confirm", True)

    async def send() -> bool:
        async with cli.connect(address) as client:
            return await _publish(client, topic, pace, keywords)

    routed = cli.run(address, send())
    what = f"{output.counted(sent, 'message')} on {topic} in {time.monotonic() - began:.2f} s"
    text = f"stored {what}" if confirm else f"sent {what}, not acknowledged"
    cli.tell(told | {"acknowledged": confirm, "subscribers": routed}, text)


def _header(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (found and name):
        output.misuse(f"--header {text}: use NAME=VALUE")
    return name, value


class _Stored:
    """Where messages were stored: offsets of the first and the last, if all are of one topic and none is a repeat."""

    def __init__(self) -> None:
        self.routed = False
        self._topics: set[str] = set()
        self._count, self._first, self._last = 0, 0, 0

    def add(self, receipts: Iterable[Receipt]) -> None:
        for receipt in receipts:
            self.routed = not receipt.no_route
            self._topics.add(receipt.topic)
            if receipt.offset is not None:
                self._first = self._first if self._count else receipt.offset
                self._last = receipt.offset
                self._count += 1

    def offsets(self) -> dict[str, int]:
        if len(self._topics) != 1 or not self._count:
            return {}
        return {"first_offset": self._first, "last_offset": self._last}

    def text(self, sent: int, topic: str, took_s: float) -> str:
        if len(self._topics) != 1 or self._count < sent:  # partitions, or repeats that were recognized
            return f"stored {output.counted(sent, 'message')} on {topic} in {took_s:.2f} s"
        place = f"of {min(self._topics)}"
        if sent == 1:
            return f"stored at offset {self._first} {place}"
        offsets = f"offsets {self._first} to {self._last} {place}"
        return f"stored {output.counted(sent, 'message')} at {offsets} in {took_s:.2f} s"


class _Pace:
    """The messages to publish, in chunks, at the wanted rate, with a progress bar."""

    def __init__(self, topic: str, messages: Sequence[bytes], count: int, rate: float | None) -> None:
        self._topic, self._messages, self._count, self._rate = topic, messages, count, rate

    def chunks(self, most: int, most_bytes: int) -> Iterator[tuple[list[bytes], float]]:
        """Yield chunks, each with the seconds to wait before it is sent."""
        if self._rate is not None:
            most = max(1, min(most, int(self._rate * SLICE_S)))
        sent, began = 0, time.monotonic()
        with output.progress(f"publishing on {self._topic}", len(self._messages) * self._count) as bar:
            for chunk in self._parts(most, most_bytes):
                due_s = sent / self._rate if self._rate else 0.0
                yield chunk, max(0.0, due_s - (time.monotonic() - began))
                sent += len(chunk)
                bar.advance(bar.task_ids[0], len(chunk))

    def _parts(self, most: int, most_bytes: int) -> Iterator[list[bytes]]:
        part: list[bytes] = []
        size = 0
        for message in (message for _ in range(self._count) for message in self._messages):
            if part and (len(part) >= most or size + len(message) > most_bytes):
                yield part
                part, size = [], 0
            part.append(message)
            size += len(message)
        if part:
            yield part


def _publish_http(cli: TimedClient, address: str, topic: str, pace: _Pace, keywords: dict[str, Any]) -> _Stored:
    """Publish everything in order. Ends the command if the bus refuses a message.

    `--timeout` is of each request: a long list of messages, or a low rate, takes its time.
    """
    stored = _Stored()

    async def send() -> None:
        async with cli.connect(address) as client:
            for chunk, wait_s in pace.chunks(BATCH, BATCH_BYTES):
                await asyncio.sleep(wait_s)
                stored.add(await client.publish_batch(topic, chunk, **keywords))

    try:
        with refusals(address):
            asyncio.run(send())
    except RequestTimeoutError as error:
        raise bus.too_late(address, cli.wait_s) from error
    return stored


async def _publish(client: Any, topic: str, pace: _Pace, keywords: dict[str, Any]) -> bool:
    """Publish everything in order over a wire; return whether there was a subscriber."""
    routed = True
    for chunk, wait_s in pace.chunks(CHUNK, sys.maxsize):
        await asyncio.sleep(wait_s)
        sent = await client.publish_many(topic, chunk, **keywords)
        routed = routed and not sent.no_route
    if not keywords.get("confirm", True):
        # Without acknowledgements, too, the messages must have been sent before the process ends.
        await client.heartbeat()
    return routed
