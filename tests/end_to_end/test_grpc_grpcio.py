"""The gRPC door under grpcio's clients, sync and asyncio, plain and over TLS."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme

from raceway.wires.danube.codec.pb.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.rigs.grpc_door import Certificate, Door, running_door
from tests.rigs.server import wait_until

LIMIT = 4 * 1024 * 1024 - 64 * 1024


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with running_door() as door:
        yield door


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.issue(trustme.CA(), tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure_door(certificate: Certificate) -> Iterator[Door]:
    with running_door(certificate) as door:
        yield door


@pytest.fixture(params=["plain", "tls"])
def channel(request: pytest.FixtureRequest) -> Iterator[grpc.Channel]:
    if request.param == "plain":
        channel = grpc.insecure_channel(request.getfixturevalue("door").address)
    else:
        address = request.getfixturevalue("secure_door").address
        channel = grpc.secure_channel(address, credentials(request.getfixturevalue("certificate")))
    with channel:
        yield channel


def credentials(certificate: Certificate) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(Path(certificate.authority).read_bytes())


def len_of(stream: Iterable[bytes]) -> int:
    return sum(1 for _ in stream)


def unary(channel: Any, method: str) -> Any:
    """A method that takes and gives bytes as they are."""
    return channel.unary_unary(f"/test.Echo/{method}")


def server_stream(channel: Any, method: str) -> Any:
    return channel.unary_stream(f"/test.Echo/{method}")


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_530, 65_531, 1_000_000, 4_000_000])
def test_messages_of_all_sizes_come_back(channel: grpc.Channel, size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    assert unary(channel, "Say")(body) == body


def test_a_thousand_calls_at_once(channel: grpc.Channel) -> None:
    say = unary(channel, "Say")
    futures = [say.future(b"call %d" % number) for number in range(1000)]
    assert [future.result(30) for future in futures] == [b"call %d" % number for number in range(1000)]


def test_many_large_messages_at_once(channel: grpc.Channel) -> None:
    """100 MB at a time are more than the door keeps for one connection: they wait for one another."""
    measure = unary(channel, "Measure")
    futures = [measure.future(bytes([number]) * 1_000_000) for number in range(100)]
    assert [future.result(60) for future in futures] == [b"%d 1000000" % number for number in range(100)]


def test_answers_may_come_later(channel: grpc.Channel) -> None:
    later = unary(channel, "Later")
    futures = [later.future(b"%d" % number) for number in range(50)]
    assert [future.result(30) for future in futures] == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_arrives_with_its_text(channel: grpc.Channel, code: grpc.StatusCode) -> None:
    text = "50 % of nothing \N{EM DASH} gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n\n"
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Fail")(f"{code.value[0]} {text}".encode())
    assert (caught.value.code(), caught.value.details()) == (code, text)


def test_a_paused_refusal_arrives(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Pause")(b"")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_an_unknown_method_is_not_implemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Nothing")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_an_unknown_stream_is_not_implemented_even_if_nothing_is_ever_sent(channel: grpc.Channel) -> None:
    silence = threading.Event()
    calls = channel.stream_stream("/test.Echo/Nothing")(iter(silence.wait, True))
    with pytest.raises(grpc.RpcError) as caught:
        next(calls)
    silence.set()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_handler_that_breaks_is_internal(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Break")(b"")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "internal error")


@pytest.mark.parametrize("size", [LIMIT + 1, 20_000_000])
def test_a_message_over_the_limit_is_an_invalid_argument(channel: grpc.Channel, size: int) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Say")(bytes(size))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == f"a message of {size} bytes is over the limit of {LIMIT}"
    assert unary(channel, "Say")(b"the connection lives") == b"the connection lives"


def test_metadata_arrives(channel: grpc.Channel) -> None:
    sent = [("authorization", "Bearer abc"), ("x-number", "1"), ("x-number", "2"), ("trace-bin", bytes(range(256)))]
    found = json.loads(unary(channel, "Metadata")(b"", metadata=sent))
    assert found == [
        ["authorization", "Bearer abc"], ["x-number", "1"], ["x-number", "2"], ["trace-bin", bytes(range(256)).hex()],
    ]  # fmt: skip


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_may_be_compressed(channel: grpc.Channel, compression: grpc.Compression) -> None:
    body = b"again and " * 100_000
    assert unary(channel, "Say")(body, compression=compression) == body


def test_a_compressed_message_may_not_become_too_large(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Say")(bytes(50_000_000), compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_deadline_passes(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        unary(channel, "Never")(b"", timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert unary(channel, "Say")(b"x", timeout=30) == b"x"


def test_a_stream_arrives_complete_and_in_order(channel: grpc.Channel) -> None:
    numbers = [int(body.split()[0]) for body in server_stream(channel, "Count")(b"20000 100")]
    assert numbers == list(range(20_000))


def test_a_stream_of_messages_larger_than_any_window(channel: grpc.Channel) -> None:
    bodies = list(server_stream(channel, "Count")(b"5 3000000"))
    assert [(body.split()[0], len(body)) for body in bodies] == [(b"%d" % number, 3_000_002) for number in range(5)]


def test_a_slow_reader_gets_everything_too(door: Door) -> None:
    """The client's windows fill up and open again; the door keeps little meanwhile."""
    with grpc.insecure_channel(door.address, options=[("grpc.http2.lookahead_bytes", 65_536)]) as channel:
        before = door.rss()
        stream = server_stream(channel, "Count")(b"20000 10000")
        first = next(stream)
        wait_until(lambda: unary(channel, "Say")(b"x") == b"x", 10)
        assert door.rss() - before < 50 << 20, "200 MB wait for their reader at the source, not in the door"
        assert [int(body.split()[0]) for body in (first, *stream)] == list(range(20_000))


def test_streams_and_calls_share_a_connection(channel: grpc.Channel) -> None:
    streams = [server_stream(channel, "Count")(b"3000 1000") for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        counts = [pool.submit(len_of, stream) for stream in streams]
        say = unary(channel, "Say")
        assert [say(b"%d" % number) for number in range(200)] == [b"%d" % number for number in range(200)]
        assert [count.result(60) for count in counts] == [3000] * 10


def test_a_caller_that_leaves_its_stream_is_noticed(channel: grpc.Channel) -> None:
    closed = unary(channel, "Closed")
    before = int(closed(b""))
    stream = server_stream(channel, "Tick")(b"")
    assert next(stream) == b"tick"
    stream.cancel()
    wait_until(lambda: int(closed(b"")) == before + 1, 10, "the door hears of it")


def test_a_caller_that_vanishes_is_noticed(door: Door) -> None:
    with grpc.insecure_channel(door.address) as observer:
        before = int(unary(observer, "Closed")(b""))
        with grpc.insecure_channel(door.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            streams = [server_stream(channel, "Tick")(b"") for _ in range(3)]
            assert [next(stream) for stream in streams] == [b"tick"] * 3
        wait_until(lambda: int(unary(observer, "Closed")(b"")) == before + 3, 10, "the door hears of it")


def test_a_stream_ends_at_its_deadline(channel: grpc.Channel) -> None:
    stream = server_stream(channel, "Tick")(b"", timeout=0.3)
    assert next(stream) == b"tick"
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_both_directions_stream(channel: grpc.Channel) -> None:
    bodies = [b"one", b"", bytes(200_000), *(b"%d" % number for number in range(1000))]
    assert list(channel.stream_stream("/test.Echo/Chat")(iter(bodies))) == bodies


def test_health(channel: grpc.Channel) -> None:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check", HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    assert check(HealthCheckRequest(service="test.Echo")).status == HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as caught:
        check(HealthCheckRequest(service="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_after_a_farewell_the_client_goes_on_elsewhere_and_loses_no_call() -> None:
    with running_door() as door, grpc.insecure_channel(door.address) as channel:
        later = unary(channel, "Later")
        stream = server_stream(channel, "Tick")(b"")
        assert next(stream) == b"tick"
        done = 0
        for number in range(20):
            futures = [later.future(b"%d" % call) for call in range(50)]
            if number % 5 == 2:
                door.drain()
            done += len([future.result(30) for future in futures])
        assert done == 1000
        stream.cancel()


def test_a_keepalive_ping_is_answered_by_an_idle_client() -> None:
    eager = running_door(keepalive_ms=100, keepalive_timeout_ms=500, sweep_ms=50)
    with eager as door, grpc.insecure_channel(door.address) as channel:
        stream = server_stream(channel, "Tick")(b"")
        assert next(stream) == b"tick"
        assert not threading.Event().wait(1.5), "ten pings long"
        assert int(unary(channel, "Closed")(b"")) == 0, "the stream has lived all the time"
        stream.cancel()


def test_the_asyncio_client() -> None:
    async def talk(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            say = unary(channel, "Say")
            bodies = [b"call %d" % number for number in range(1000)]
            assert await asyncio.gather(*(say(body) for body in bodies)) == bodies
            counted = [int(body.split()[0]) async for body in server_stream(channel, "Count")(b"5000 100")]
            assert counted == list(range(5000))
            chat = channel.stream_stream("/test.Echo/Chat")()
            for body in bodies[:10]:
                await chat.write(body)
                assert await chat.read() == body
            await chat.done_writing()
            assert await chat.read() is grpc.aio.EOF
            batches = json.loads(await unary(channel, "Batches")(b""))
            assert sum(batches) == 1000
            assert max(batches) > 10, "calls that come together are handed over together"

    with running_door() as door:
        asyncio.run(talk(door.address))


def test_the_asyncio_client_over_tls(secure_door: Door, certificate: Certificate) -> None:
    async def talk() -> bytes:
        async with grpc.aio.secure_channel(secure_door.address, credentials(certificate)) as channel:
            return bytes(await unary(channel, "Say")(b"hidden"))

    assert asyncio.run(talk()) == b"hidden"
