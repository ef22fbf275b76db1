"""The published Danube client in a process of its own, told what to do line by line.

    with danube_process(f"http://127.0.0.1:{server.port('danube')}") as client:
        client.create("p", topic="/default/orders", reliable=True)
        client.send("p", b"hello", attributes={"a": "1"})

Verbs are methods of `DanubeProcess` here and of `_Child` there. What the client raises comes back as `RefusedError`,
with the gRPC status where there was one. Messages come back as plain records.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from typing import Any, NamedTuple

from tests.rigs.server import wait_until

# Longest wait for the child: beyond everything a test waits for.
ANSWER_S = 60.0
# How long a message on its way is waited for.
LAST_SEND_S = 10.0


class RefusedError(Exception):
    """What the client raised. `status` is empty where gRPC had no part in it."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


class Received(NamedTuple):
    """A message as the client was given it; `raw` is the whole, encoded."""

    payload: bytes
    offset: int
    topic: str
    broker: str
    subscription: str
    producer: str
    producer_id: int
    request_id: int
    sent_ms: int
    attributes: dict[str, str]
    key: str | None
    schema_id: int | None
    schema_version: int | None
    raw: bytes


class Came(NamedTuple):
    """What is noted of a message when there are many."""

    consumer: str
    offset: int
    number: int
    key: str


class DanubeProcess:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                self._lines.put(line)

    def do(self, verb: str, **arguments: Any) -> Any:
        """Raises RefusedError, or AssertionError when the child does not answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()
        try:
            kind, value = json.loads(self._lines.get(timeout=ANSWER_S))
        except Empty:
            raise AssertionError(f"the client does not come back from {verb} {arguments}") from None
        if kind == "refused":
            raise RefusedError(*value)
        return value

    # ---- producers ---------------------------------------------------------------------------------------------------

    def create(self, name: str, topic: str, *, reliable: bool = True, partitions: int = 0, **schema: Any) -> None:
        """`schema`: subject, and version or min_version."""
        self.do("create", name=name, topic=topic, reliable=reliable, partitions=partitions, **schema)

    def send(
        self, name: str, *payloads: bytes, attributes: dict[str, str] | None = None, key: str | None = None
    ) -> list[int]:
        """One after another; the request ids."""
        encoded = [base64.b64encode(payload).decode() for payload in payloads]
        sent: list[int] = self.do("send", name=name, payloads=encoded, attributes=attributes, key=key)
        return sent

    # ---- consumers ---------------------------------------------------------------------------------------------------

    def subscribe(
        self, name: str, topic: str, subscription: str, type: str = "EXCLUSIVE", filters: tuple[str, ...] = ()
    ) -> None:
        """Subscribes, and opens its streams."""
        self.do("subscribe", name=name, topic=topic, subscription=subscription, type=type, filters=filters)

    def receive(self, name: str, count: int = 1, *, ack: bool = False, within_s: float = 10.0) -> list[Received]:
        """The next messages; fewer when the time is over. With `ack` each is acknowledged before the next."""
        found = self.do("receive", name=name, count=count, ack=ack, within_s=within_s)
        return [Received(**(each | {key: base64.b64decode(each[key]) for key in ("payload", "raw")})) for each in found]

    def ack(self, name: str, message: Received) -> None:
        self.do("ack", name=name, raw=base64.b64encode(message.raw).decode())

    def nack(self, name: str, message: Received, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        raw = base64.b64encode(message.raw).decode()
        self.do("nack", name=name, raw=raw, delay_ms=delay_ms, reason=reason)

    def close(self, name: str) -> None:
        """A producer or a consumer goes."""
        self.do("close", name=name)

    # ---- the registry ------------------------------------------------------------------------------------------------

    def schema(self, verb: str, *arguments: Any) -> Any:
        """A verb of the client's registry; bytes go as text, enums by their value."""
        return self.do("schema", call=verb, arguments=arguments)

    def wait_for_channel(self) -> None:
        """After a restart: gRPC's channel tries again after a pause of its own, and fails calls until then."""

        def is_open() -> bool:
            try:
                self.schema("get_latest_schema", "no-such-subject")
            except RefusedError as error:
                return error.status != "UNAVAILABLE"
            return True

        wait_until(is_open, 30, "the client's channel is open again")

    # ---- at work while the test does something else ------------------------------------------------------------------

    def keep_sending(self, name: str, keys: tuple[str, ...] = ()) -> None:
        """Numbers from 0 on, one after the other, with the keys in turn; a number that failed is sent again."""
        self.do("keep_sending", name=name, keys=keys)

    def keep_receiving(self, *names: str, work_s: float = 0.0) -> None:
        """Each acknowledges one message after the other, when it has worked so long on it."""
        self.do("keep_receiving", names=names, work_s=work_s)

    def progress(self) -> tuple[dict[str, int], dict[str, int]]:
        """How much each producer got stored and how much each consumer received."""
        sent, received = self.do("progress")
        return sent, received

    def stop_sending(self) -> list[str]:
        """All of them; what was raised to them meanwhile, by its status."""
        raised: list[str] = self.do("stop_sending")
        return raised

    def came(self, *names: str) -> list[Came]:
        """What consumers that keep receiving were given, all together, in the order it came."""
        return [Came(*each) for each in self.do("came", names=names)]

    def kill(self) -> None:
        """As by a fault: the connection is gone and nobody said goodbye."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


@contextmanager
def danube_process(url: str, *, ca_file: str = "", token: str = "", **env: str) -> Iterator[DanubeProcess]:
    command = [sys.executable, "-m", "tests.rigs.danube_process", url, ca_file, token]
    # It says a hundred times a second that a bus is away.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=os.environ | env,
    )  # fmt: skip
    client = DanubeProcess(process)
    try:
        yield client
    finally:
        client.end()


# ---- the child -------------------------------------------------------------------------------------------------------


class _Child:
    """Everything of the published package is imported here only: the parent never has it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._queues: dict[str, asyncio.Queue[Any]] = {}
        self._senders: list[asyncio.Task[None]] = []
        self._stops_sending = False
        self._receivers: list[asyncio.Task[None]] = []
        self._stored: dict[str, int] = {}
        self._came: list[Came] = []
        self._received: Counter[str] = Counter()
        self._raised: list[str] = []

    async def create(self, name: str, topic: str, reliable: bool, partitions: int, **schema: Any) -> None:
        from danube import DispatchStrategy

        builder = self._client.new_producer().with_topic(topic).with_name(name)
        builder = builder.with_dispatch_strategy(DispatchStrategy(int(reliable)))
        if partitions:
            builder = builder.with_partitions(partitions)
        if "version" in schema:
            builder = builder.with_schema_version(schema["subject"], schema["version"])
        elif "min_version" in schema:
            builder = builder.with_schema_min_version(schema["subject"], schema["min_version"])
        elif schema:
            builder = builder.with_schema_subject(schema["subject"])
        producer = builder.build()
        await producer.create()
        self._producers[name] = producer

    async def send(
        self, name: str, payloads: list[str], attributes: dict[str, str] | None, key: str | None
    ) -> list[int]:
        producer, sent = self._producers[name], []
        for payload in map(base64.b64decode, payloads):
            if key is None:
                sent.append(await producer.send(payload, attributes))
            else:
                sent.append(await producer.send_with_key(payload, attributes, key))
        return sent

    async def subscribe(self, name: str, topic: str, subscription: str, type: str, filters: list[str]) -> None:
        from danube import SubType

        builder = self._client.new_consumer().with_topic(topic).with_consumer_name(name)
        builder = builder.with_subscription(subscription).with_subscription_type(SubType[type])
        consumer = builder.with_key_filters(filters).build()
        await consumer.subscribe()
        self._consumers[name] = consumer
        self._queues[name] = await consumer.receive()

    async def receive(self, name: str, count: int, ack: bool, within_s: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(within_s):
                while len(found) < count:
                    message = await self._queues[name].get()
                    found.append(_record(message))
                    if ack:
                        await self._consumers[name].ack(message)
        except TimeoutError:
            pass
        return found

    async def ack(self, name: str, raw: str) -> None:
        await self._consumers[name].ack(_message(raw))

    async def nack(self, name: str, raw: str, delay_ms: int | None, reason: str | None) -> None:
        await self._consumers[name].nack(_message(raw), delay_ms, reason)

    async def close(self, name: str) -> None:
        user = self._producers.pop(name, None) or self._consumers.pop(name)
        await user.close()

    async def keep_sending(self, name: str, keys: list[str]) -> None:
        self._senders.append(asyncio.create_task(self._send_on(name, keys)))

    async def _send_on(self, name: str, keys: list[str]) -> None:
        import grpc

        producer = self._producers[name]
        self._stored[name] = 0
        while not self._stops_sending:
            payload = b"%d" % self._stored[name]
            try:
                if keys:
                    await producer.send_with_key(payload, None, keys[self._stored[name] % len(keys)])
                else:
                    await producer.send(payload)
            except grpc.aio.AioRpcError as error:
                self._raised.append(error.code().name)
                await asyncio.sleep(0.1)
            else:
                self._stored[name] += 1

    async def keep_receiving(self, names: list[str], work_s: float) -> None:
        self._receivers += [asyncio.create_task(self._receive_on(name, work_s)) for name in names]

    async def _receive_on(self, name: str, work_s: float) -> None:
        import grpc

        while True:
            message = await self._queues[name].get()
            self._came.append(Came(name, message.msg_id.topic_offset, int(message.payload), message.routing_key))
            self._received[name] += 1
            await asyncio.sleep(work_s)
            # A bus that is away takes no acknowledgement; the message comes again.
            with suppress(grpc.aio.AioRpcError):
                await self._consumers[name].ack(message)

    async def progress(self) -> tuple[dict[str, int], dict[str, int]]:
        return self._stored, self._received

    async def stop_sending(self) -> list[str]:
        """What is on its way is waited for, so that `progress` tells all that was stored, unless the bus is away."""
        self._stops_sending = True
        _, waiting = await asyncio.wait(self._senders, timeout=LAST_SEND_S)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders.clear()
        self._stops_sending = False
        return self._raised

    async def came(self, names: list[str]) -> list[Came]:
        return [each for each in self._came if each.consumer in names]

    async def schema(self, call: str, arguments: list[Any]) -> Any:
        from danube.schema import CompatibilityMode, SchemaType

        registry = self._client.schema()
        if call == "register":
            subject, kind, definition = arguments
            builder = registry.register_schema(subject).with_type(SchemaType(kind))
            return await builder.with_schema_data(definition.encode()).execute()
        if call == "check_compatibility":
            subject, definition, kind = arguments[:3]
            mode = CompatibilityMode(arguments[3]) if len(arguments) > 3 else None
            result = await registry.check_compatibility(subject, definition.encode(), SchemaType(kind), mode)
            return _plain(result)
        if call == "set_compatibility_mode":
            return _plain(await registry.set_compatibility_mode(arguments[0], CompatibilityMode(arguments[1])))
        return _plain(await getattr(registry, call)(*arguments))


def _record(message: Any) -> dict[str, Any]:
    identity = message.msg_id
    return {
        "payload": base64.b64encode(message.payload).decode(),
        "offset": identity.topic_offset,
        "topic": identity.topic_name,
        "broker": identity.broker_addr,
        "subscription": message.subscription_name,
        "producer": message.producer_name,
        "producer_id": identity.producer_id,
        "request_id": message.request_id,
        "sent_ms": message.publish_time,
        "attributes": dict(message.attributes),
        "key": message.routing_key if message.HasField("routing_key") else None,
        "schema_id": message.schema_id if message.HasField("schema_id") else None,
        "schema_version": message.schema_version if message.HasField("schema_version") else None,
        "raw": base64.b64encode(message.SerializeToString()).decode(),
    }


def _message(raw: str) -> Any:
    from danube.proto import DanubeApi_pb2

    return DanubeApi_pb2.StreamMessage.FromString(base64.b64decode(raw))


def _plain(value: Any) -> Any:
    """What JSON can say of an answer."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if hasattr(value, "DESCRIPTOR"):
        return {field.name: _plain(getattr(value, field.name)) for field in value.DESCRIPTOR.fields}
    if hasattr(value, "__dict__"):
        return {name: _plain(each) for name, each in vars(value).items()}
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str | dict) else value


async def _serve(url: str, ca_file: str, token: str) -> None:
    from danube import DanubeClientBuilder

    builder = DanubeClientBuilder().service_url(url)
    if ca_file:
        builder = builder.with_tls(ca_file)
    if token:
        builder = builder.with_token(token)
    child = _Child(await builder.build())
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        verb, arguments = json.loads(line)
        try:
            answer = ["done", await getattr(child, verb)(**arguments)]
        except Exception as error:
            code = getattr(error, "code", None)
            details = getattr(error, "details", None)
            answer = ["refused", [code().name if code else "", (details() if details else None) or str(error)]]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:4]))
