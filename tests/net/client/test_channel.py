"""Calls of the gRPC client, with grpcio's server as the peer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from raceway.errors import ConnectionLostError, MalformedError, RacewayError, RemoteError, RequestTimeoutError
from raceway.net.client.address import Address
from raceway.net.client.channel import Channel
from raceway.net.client.options import Options
from raceway.wires.danube.codec.pb.danube_api_pb2 import ReceiveRequest, StreamMessage
from tests.rigs.ports import free_port_base

ECHO, COUNT, FAIL, HANG, NONSENSE = (
    f"/test.Service/{name}".encode() for name in ("Echo", "Count", "Fail", "Hang", "Nonsense")
)


class Service(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """What the tests call: an echo, a stream, a refusal, silence, and bytes that are no message."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def service(self, details: Any) -> Any:
        handlers = {
            ECHO: grpc.unary_unary_rpc_method_handler(lambda request, context: request),
            COUNT: grpc.unary_stream_rpc_method_handler(self._count),
            FAIL: grpc.unary_unary_rpc_method_handler(self._fail),
            HANG: grpc.unary_unary_rpc_method_handler(self._hang),
            NONSENSE: grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff"),
        }
        return handlers.get(details.method.encode())

    def _count(self, request: bytes, context: Any) -> Iterator[bytes]:
        for number in range(ReceiveRequest.FromString(request).consumer_id):
            yield StreamMessage(request_id=number, payload=b"x" * 1000).SerializeToString()

    def _fail(self, request: bytes, context: Any) -> bytes:
        metadata = dict(context.invocation_metadata())
        context.abort(grpc.StatusCode.NOT_FOUND, f"grüß {metadata.get('authorization')}")
        return b""

    def _hang(self, request: bytes, context: Any) -> bytes:
        self.released.wait(20)
        return request


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=(service,))
    port = server.add_insecure_port(f"127.0.0.1:{free_port_base()}")
    server.start()
    yield port
    service.released.set()
    server.stop(None).wait()


def over(port: int, scene: Callable[[Channel], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def play() -> None:
        channel = Channel(Address("danube", "127.0.0.1", port), Options(**options))
        async with asyncio.timeout(30):
            await channel.open()
            try:
                await scene(channel)
            finally:
                await channel.close()

    asyncio.run(play())


def test_calls_are_answered_each_with_its_own(port: int) -> None:
    async def scene(channel: Channel) -> None:
        async def ask(number: int) -> None:
            request = StreamMessage(request_id=number, payload=b"x" * (number * 997))
            assert await channel.call(ECHO, request, StreamMessage) == request

        await asyncio.gather(*(ask(number) for number in range(300)))

    over(port, scene)


def test_the_largest_messages_pass_both_ways(port: int) -> None:
    async def scene(channel: Channel) -> None:
        request = StreamMessage(payload=b"x" * (4 * 1024 * 1024 - 100))
        assert await channel.call(ECHO, request, StreamMessage) == request

    over(port, scene)


def test_a_refusal_has_its_status_its_text_and_heard_the_token(port: int) -> None:
    async def scene(channel: Channel) -> None:
        with pytest.raises(RemoteError) as refused:
            await channel.call(FAIL, ReceiveRequest(), ReceiveRequest)
        assert (refused.value.reported, refused.value.text) == ("NOT_FOUND", "grüß Bearer secret")
        with pytest.raises(RemoteError) as refused:
            await channel.call(b"/test.Service/Nothing", ReceiveRequest(), ReceiveRequest)
        assert refused.value.reported == "UNIMPLEMENTED"

    over(port, scene, token="secret")


def test_silence_ends_a_call_and_nothing_else(port: int) -> None:
    async def scene(channel: Channel) -> None:
        with pytest.raises(RequestTimeoutError):
            await channel.call(HANG, ReceiveRequest(), ReceiveRequest)
        assert await channel.call(ECHO, ReceiveRequest(consumer_id=3), ReceiveRequest) == ReceiveRequest(consumer_id=3)

    over(port, scene, patience_s=0.3)


def test_bytes_that_are_no_answer_are_said_to_be_so(port: int) -> None:
    async def scene(channel: Channel) -> None:
        with pytest.raises(MalformedError, match="ReceiveRequest"):
            await channel.call(NONSENSE, ReceiveRequest(), ReceiveRequest)

    over(port, scene)


class Reader:
    """Takes a stream in; gives back what it took when it is told to."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ended_with: asyncio.Future[RacewayError | None] = asyncio.get_running_loop().create_future()

    def answered(self, stream: int, message: bytes) -> None:
        self.messages.append(message)

    def ended(self, stream: int, error: RacewayError | None) -> None:
        self.ended_with.set_result(error)


def test_a_stream_comes_in_order_to_its_end(port: int) -> None:
    async def scene(channel: Channel) -> None:
        reader = Reader()
        await channel.listen(COUNT, ReceiveRequest(consumer_id=5000), reader)
        assert await reader.ended_with is None
        numbers = [StreamMessage.FromString(message).request_id for message in reader.messages]
        assert numbers == list(range(5000))

    over(port, scene)


def test_a_stream_that_is_not_read_stops_and_keeps_no_other_back(port: int) -> None:
    async def scene(channel: Channel) -> None:
        reader = Reader()
        link, stream = await channel.listen(COUNT, ReceiveRequest(consumer_id=20_000), reader)
        while link.calls.allowance(stream) > 16_384:  # noqa: ASYNC110 - until the server has sent what it may
            await asyncio.sleep(0.01)
        request = StreamMessage(payload=b"x" * 100_000)
        assert await channel.call(ECHO, request, StreamMessage) == request
        assert 7000 < len(reader.messages) < 9000  # eight megabytes of them
        read = 0
        while not reader.ended_with.done():
            for message in reader.messages[read:]:
                link.calls.give_back(stream, message)
            read = len(reader.messages)
            await asyncio.sleep(0)
        assert len(reader.messages) == 20_000

    over(port, scene)


def test_many_calls_together_raise_the_first_refusal_when_all_are_answered(port: int) -> None:
    async def scene(channel: Channel) -> None:
        await channel.call_many(ECHO, [b"x" * number for number in range(2000)])
        with pytest.raises(RemoteError, match="NOT_FOUND"):
            await channel.call_many(FAIL, [b""] * 10)

    over(port, scene)


def test_a_server_that_goes_away_is_a_lost_connection() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=(Service(),))
    port = server.add_insecure_port(f"127.0.0.1:{free_port_base()}")
    server.start()

    async def scene(channel: Channel) -> None:
        call = asyncio.ensure_future(channel.call(HANG, ReceiveRequest(), ReceiveRequest))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.stop(None).wait)
        with pytest.raises((ConnectionLostError, RemoteError)):
            await call

    over(port, scene, reconnect=False)
