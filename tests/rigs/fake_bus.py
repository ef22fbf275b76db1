"""A bus for client tests that can misbehave on command: vanish, stay silent, answer late or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from raceway.model.intents.batches import Publish, Request, Respond
from raceway.model.intents.kinds import Done
from raceway.wires.mb.codec.encode import acknowledgements, initialize, tcp_frame
from raceway.wires.mb.codec.header import MbHeader, MbLimits
from raceway.wires.mb.codec.receiver import MbReceiver, SystemCall
from raceway.wires.mb.codec.system import system_reply
from tests.rigs.ports import free_port_base


class FakeBus:
    """Says yes to every call and acknowledges publishes, unless told otherwise.

    `heard` is everything that came, row by row, in order: (kind, topic, message id, parent id, timeout, payload); calls
    are ("call", topic, payload).
    """

    def __init__(self) -> None:
        self.port = free_port_base()
        self.heard: list[tuple[Any, ...]] = []
        self.connections = 0
        self.silent = False
        self.greet = True
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"mb://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """No more connections, and the present ones end."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def send(self, data: bytes) -> None:
        for writer in self._writers:
            writer.write(data)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - the condition is the client's state, which has no event
                await asyncio.sleep(0.002)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        receiver = MbReceiver(MbLimits(), framed=True)
        if self.greet:
            writer.write(initialize(tcp_frame))
        try:
            while data := await reader.read(65536):
                for event in receiver.receive_data(data):
                    self._take(event, writer)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _take(self, event: Any, writer: asyncio.StreamWriter) -> None:
        if isinstance(event, Publish | Request | Respond):
            batch = event.batch
            names = ("kind", "topic", "message_id", "parent_id", "timeout_ms", "payload")
            self.heard += [tuple(batch.item(name, row) for name in names) for row in range(batch.count)]
            ids = [each for row in range(batch.count) if (each := batch.item("message_id", row)) is not None]
            if isinstance(event, Publish) and ids and not self.silent:
                assert isinstance(batch.topic, bytes)
                writer.write(acknowledgements(batch.topic, b"1.0.0", ids, tcp_frame))
        elif isinstance(event, SystemCall):
            self.heard.append(("call", event.head.topic.decode(), event.payload))
            if not self.silent:
                writer.write(self._reply(event.head))
        else:
            self.heard.append((type(event).__name__, event.head.message_id))

    @staticmethod
    def _reply(head: MbHeader) -> bytes:
        return system_reply(head, Done(), tcp_frame)
