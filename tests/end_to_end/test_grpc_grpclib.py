"""The gRPC door under grpclib, a client that is Python down to the frames."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from grpclib.client import Channel, StreamStreamMethod, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError

from tests.rigs.grpc_door import NO_TLS, Certificate, running_door


class Plain(CodecBase):
    """Messages are bytes already."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


def talk(conversation: Callable[[Channel], Awaitable[None]], certificate: Certificate = NO_TLS) -> None:
    async def connected(port: int) -> None:
        context = None
        if certificate.authority:
            context = ssl.create_default_context(cafile=certificate.authority)
            context.set_alpn_protocols(["h2"])
        async with Channel("127.0.0.1", port, codec=Plain(), ssl=context) as channel:
            await conversation(channel)
            # What TLS still has to say after a close would outlast the loop, and the socket with it.
            assert channel._protocol is not None
            channel._protocol.connection._transport.abort()

    with running_door(certificate) as door:
        asyncio.run(connected(door.port))


def unary(channel: Channel, method: str) -> Any:
    return UnaryUnaryMethod(channel, f"/test.Echo/{method}", bytes, bytes)


async def say(channel: Channel) -> None:
    for size in (0, 10, 70_000, 3_000_000):
        assert await unary(channel, "Say")(bytes(size)) == bytes(size)
    bodies = [b"%d" % number for number in range(200)]
    assert await asyncio.gather(*(unary(channel, "Say")(body) for body in bodies)) == bodies


def test_calls() -> None:
    talk(say)


def test_calls_over_tls(tmp_path: Path) -> None:
    talk(say, Certificate.issue(trustme.CA(), tmp_path))


def test_statuses() -> None:
    async def fail(channel: Channel) -> None:
        with pytest.raises(GRPCError) as caught:
            await unary(channel, "Fail")("9 gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n".encode())
        assert (caught.value.status, caught.value.message) == (Status.FAILED_PRECONDITION, "grün")
        with pytest.raises(GRPCError) as caught:
            await unary(channel, "Nothing")(b"")
        assert caught.value.status is Status.UNIMPLEMENTED
        with pytest.raises((GRPCError, asyncio.TimeoutError)):
            await unary(channel, "Never")(b"", timeout=0.2)

    talk(fail)


def test_streams() -> None:
    async def stream(channel: Channel) -> None:
        count: Any = UnaryStreamMethod(channel, "/test.Echo/Count", bytes, bytes)
        assert [int(body.split()[0]) for body in await count(b"3000 500")] == list(range(3000))
        chat: Any = StreamStreamMethod(channel, "/test.Echo/Chat", bytes, bytes)
        async with chat.open() as open_chat:
            for body in (b"a", bytes(150_000), b"c"):
                await open_chat.send_message(body)
                assert await open_chat.recv_message() == body
            await open_chat.end()
            assert await open_chat.recv_message() is None

    talk(stream)
