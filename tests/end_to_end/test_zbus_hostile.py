"""What strangers may send to the zbus door: it ends in a refusal or a close, memory stays flat, the server lives on."""

from __future__ import annotations

import random
import resource
import socket
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.rigs.rounds import SOAKING, rounds
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import EVERY_BYTE, PUBSUB, Client, Dial, Message, compose, dial_server, fresh_name, zbus_port

MIB = 1 << 20
HEAD_S, BODY_RATE = 0.5, 1024
HEAD_LIMIT, HEADER_LIMIT, BODY_LIMIT = 64 * 1024, 200, 64 * MIB
OWN_HOST = "bus.example"
# What allocators may keep beyond caches that are full already; hostile input below is a multiple of it.
GROWTH = 32 * MIB
SLOW_CLIENTS = 500
# All of them in the soak. Each needs a descriptor here and one in the server.
CONSUMERS = 5000 if SOAKING else 500
BYTES_PER_CONSUMER = 100_000_000 // 5000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CONSUMERS + 1000)), hard))
    with running_server(
        RACEWAY_LISTEN__HEAD_S=HEAD_S,
        RACEWAY_LISTEN__BODY_RATE=BODY_RATE,
        RACEWAY_LISTEN__ZBUS__SWEEP_MS=50,
        RACEWAY_LISTEN__HOSTS=OWN_HOST,
    ) as server:
        with dial_server(server) as client:
            pass_through(client, client.create(), 100_000)
        yield server


def pass_through(client: Client, mq: str, count: int) -> None:
    """Produce `count` messages of 1 kB into a queue that nobody reads, then consume them and check their order."""
    ids = [str(number) for number in range(count)]
    for start in range(0, len(ids), 1000):
        chunk = ids[start : start + 1000]
        client.write(b"".join(compose({"cmd": "produce", "mq": mq, "msgid": i}, i.rjust(1000)) for i in chunk))
        assert [client.receive().msgid for _ in chunk] == chunk
    client.send("consume", mq=mq, msgid="c", window="-1")
    assert [client.receive().body.strip().decode() for _ in ids] == ids


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """After each test a well-behaved client is served, and the server has not ended."""
    yield
    server.assert_not_ended_by_itself()
    with dial_server(server) as client:
        mq = client.create()
        client.produce(mq, "x")
        assert client.take(mq).body == b"x"


@pytest.fixture
def flat(server: Server) -> Iterator[None]:
    """Memory stays flat during the test."""
    server.forget_peak()
    before = server.rss()
    yield
    assert server.peak_rss() - before < GROWTH


def pour(client: Client, data: bytes, limit: int) -> int:
    """Sends `data` again and again until `limit` bytes, or until the server has closed; returns how much was taken."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        while sent < limit:
            sent += client.socket.send(data)
    return sent


def statuses(messages: list[Message]) -> list[int]:
    return [message.status for message in messages]


def refused_and_closed(client: Client, data: bytes) -> Message:
    """The one message that comes before the server closes."""
    client.write(data)
    (refusal,) = client.until_closed()
    return refusal


# ---- too large -------------------------------------------------------------------------------------------------------


def test_a_body_of_the_largest_size_is_carried(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    body = EVERY_BYTE * (BODY_LIMIT // 256)
    producer.produce(mq, body)
    assert consumer.take(mq).body == body


def test_one_byte_more_is_refused_by_its_head_alone(dial: Dial, mq: str, flat: None) -> None:
    for length in (BODY_LIMIT + 1, 10 * BODY_LIMIT, 10**15):
        keys = {"cmd": "produce", "mq": mq, "msgid": "big", "content-length": str(length)}
        refusal = refused_and_closed(dial(), compose(keys))
        assert (refusal.status, refusal.msgid) == (413, "big")


def test_a_length_of_very_many_digits_is_refused(dial: Dial) -> None:
    refusal = refused_and_closed(dial(), compose({"cmd": "produce", "content-length": "9" * 10_000}))
    assert refusal.status in (400, 413)


def test_who_asks_before_sending_too_much_is_told_not_to(dial: Dial, mq: str) -> None:
    keys = {"cmd": "produce", "mq": mq, "expect": "100-continue", "content-length": str(BODY_LIMIT + 1)}
    assert refused_and_closed(dial(), compose(keys)).status == 413


def test_who_asks_before_sending_is_told_to_go_on_once(client: Client, mq: str) -> None:
    head = compose({"cmd": "produce", "mq": mq, "msgid": "p", "Expect": "100-Continue", "content-length": "3"})
    client.write(head)
    assert client.receive().first == "HTTP/1.1 100 Continue"
    client.write(b"abc")
    assert client.reply("p").status == 200
    client.write(head.replace(b"msgid: p", b"msgid: q") + b"abc")
    client.reply("q")
    assert {message.first for message in client.settled()} <= {"HTTP/1.1 100 Continue"}, "with the body it may be left"
    deliveries = [client.take(mq) for _ in range(2)]
    assert [delivery.body for delivery in deliveries] == [b"abc", b"abc"]


def test_a_head_of_the_largest_size_is_read_and_a_longer_one_refused(dial: Dial, mq: str) -> None:
    client = dial()
    keys = {"cmd": "produce", "mq": mq, "msgid": "p"}
    fill = HEAD_LIMIT - len(compose(keys | {"x-fill": ""}))
    client.write(compose(keys | {"x-fill": "x" * fill}))
    assert client.reply("p").status == 200
    assert client.take(mq).headers["x-fill"] == "x" * fill
    assert refused_and_closed(client, compose(keys | {"x-fill": "x" * (fill + 1)})).status == 400


@pytest.mark.parametrize("data", [b"x", b"x: y\r\n", b"\r", b" ", b"\x00", b"GET / HTTP/1.1\r\n", b"\n"])
def test_a_head_that_never_ends(dial: Dial, flat: None, data: bytes) -> None:
    """A megabyte of header line, no line end at all, endless header lines: refused long before it is buffered."""
    for _ in range(5):
        client = dial()
        assert pour(client, b"GET / HTTP/1.1\r\nx: " + data * 65_536, 64 * MIB) < 64 * MIB
        # None when the reset that answers the rest of the flood was faster.
        assert statuses(client.until_closed()) in ([400], [])


def test_too_many_headers_are_refused(dial: Dial, mq: str) -> None:
    client, keys = dial(), {"cmd": "produce", "mq": mq, "msgid": "p"}
    own = len(keys) + 1
    client.write(compose(keys | {f"x-{number}": "" for number in range(HEADER_LIMIT - own)}))
    assert client.reply("p").status == 200
    more = compose(keys | {f"x-{number}": "" for number in range(HEADER_LIMIT - own + 1)})
    assert refused_and_closed(client, more).status == 400


def test_a_query_of_ten_thousand_keys_is_bounded_too(dial: Dial, mq: str) -> None:
    client = dial()
    client.get(f"/{mq}?cmd=produce&msgid=p&" + "&".join(f"k{number}" for number in range(10_000)))
    reply = client.receive()
    assert reply.status in (200, 400)
    if reply.status == 200:
        assert len(client.take(mq).headers) <= HEADER_LIMIT


def test_a_long_query_costs_no_more_than_its_length(client: Client) -> None:
    for text in ("&" * 60_000, "=" * 60_000, "%41" * 20_000, "+" * 60_000, "a" * 60_000, "?" * 60_000):
        began = time.monotonic()
        client.get("/?" + text)
        client.receive()
        assert time.monotonic() - began < 1


def test_blanks_in_a_header_cost_no_more_than_their_number(dial: Dial) -> None:
    """A pattern that tries every split of the blanks would be busy for seconds."""
    for filling in (b" " * 60_000 + b"\0", b"\t " * 30_000 + b"\x7f", b" " * 60_000):
        client = dial()
        began = time.monotonic()
        client.write(b"POST / HTTP/1.1\r\ncmd: heartbeat\r\nx:" + filling + b"\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        client.receive()
        assert time.monotonic() - began < 1


# ---- any bytes -------------------------------------------------------------------------------------------------------


def test_a_body_may_hold_every_byte(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    for byte in range(256):
        producer.send("produce", bytes([byte]) * 3, mq=mq, ack="0")
    for byte in range(256):
        assert consumer.take(mq).body == bytes([byte]) * 3
    chance = random.Random(7)
    for size in (0, 1, 4095, 4096, 65_535, 65_536, 262_145, 3 * MIB):
        body = chance.randbytes(size)
        producer.produce(mq, body)
        assert consumer.take(mq).body == body


@pytest.mark.parametrize(
    "name", ["a/b", "/etc/passwd", "../x", "x" * 300, "a b", "é" * 256, "a%00b", "<b>", "*", "a?b", "a#b"]
)
def test_a_queue_name_that_cannot_be(client: Client, name: str) -> None:
    for cmd in ("produce", "consume", "request"):
        assert client.ask(cmd, mq=name).status in (400, 404)
    client.get(f"/{urllib.parse.quote(name, safe='')}?cmd=produce&msgid=u")
    assert client.reply("u").status in (400, 404)
    assert client.admin("create_mq", f'{{"mqName":"{name}","mqMode":1}}').status == 400
    assert name not in client.data()["mqTable"]


def test_a_nul_in_the_head_is_refused(dial: Dial) -> None:
    for data in (b"mq: a\0b\r\n", b"a\0b: c\r\n", b"x: \0\r\n"):
        client = dial()
        assert refused_and_closed(client, b"POST / HTTP/1.1\r\ncmd: produce\r\n" + data + b"\r\n").status == 400
    client = dial()
    client.get("/a%00b?cmd=produce&msgid=u")
    assert client.receive().status in (400, 404)


@pytest.mark.parametrize("name", ["system.message", "system.heartbeat", "raceway.rejected", "System.Log"])
def test_the_brokers_own_topics_are_not_for_clients(client: Client, name: str) -> None:
    for cmd in ("produce", "consume", "request"):
        assert client.ask(cmd, "forged", mq=name).status in (400, 403, 404)
    assert client.admin("create_mq", f'{{"mqName":"{name}","mqMode":1}}').status == 400


# ---- from another site -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Origin", "http://evil.example"),
        ("Origin", "https://evil.example:15555"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1.evil.example"),
        ("Origin", "http://localhost.evil.example"),
        ("Origin", "file://"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Host", "evil.example"),
        ("Host", "evil.example:15555"),
        ("Host", "127.0.0.1.evil.example"),
        ("Host", "127.0.0.1@evil.example"),
    ],
)
def test_what_a_browser_sends_for_another_site_is_refused(client: Client, mq: str, name: str, value: str) -> None:
    """Or for another name that was made to point here."""
    for cmd in ("produce", "consume", "request"):
        client.write(compose({"cmd": cmd, "mq": mq, "msgid": cmd, name: value}, "forged"))
        assert client.reply(cmd).status == 403
    for method in ("index", "data", "create_mq"):
        client.write(compose({"method": method, "msgid": method, name: value, "mq_name": "forged", "mq_mode": "1"}))
        assert client.reply(method).status == 403
    client.produce(mq, "own")
    assert client.take(mq).body == b"own"
    assert "forged" not in client.data()["mqTable"]


def test_what_is_ours_is_admitted(client: Client, mq: str, server: Server) -> None:
    port = zbus_port(server)
    for name, value in [
        ("Host", f"127.0.0.1:{port}"),
        ("Host", f"localhost:{port}"),
        ("Host", f"[::1]:{port}"),
        ("Host", "LOCALHOST"),
        ("Host", OWN_HOST),
        ("Host", f"Bus.Example:{port}"),
        ("Origin", f"http://127.0.0.1:{port}"),
        ("Origin", f"http://localhost:{port}"),
        ("Origin", f"http://{OWN_HOST}"),
        ("Sec-Fetch-Site", "none"),
        ("Sec-Fetch-Site", "same-origin"),
    ]:
        client.write(compose({"cmd": "produce", "mq": mq, "msgid": value, name: value}))
        assert client.reply(value).status == 200, (name, value)


def test_the_uri_cannot_stand_in_for_a_browsers_headers(client: Client, mq: str) -> None:
    """A page chooses the URI; the browser alone chooses these headers."""
    client.write(
        f"GET /{mq}?cmd=produce&msgid=u&host=127.0.0.1&origin=http://127.0.0.1 HTTP/1.1\r\n"
        "Host: evil.example\r\nOrigin: http://evil.example\r\n\r\n".encode()
    )
    assert client.receive().status == 403


# ---- too slow --------------------------------------------------------------------------------------------------------


def test_slow_clients_are_closed_while_others_are_served(server: Server, dial: Dial, mq: str) -> None:
    """Slowloris: each byte comes in time, the whole head does not."""
    producer, consumer = dial(), dial()
    head = compose({"cmd": "produce", "mq": mq, "x-slow": "y" * 5000})
    with ExitStack() as stack:
        slow = {stack.enter_context(dial_server(server)) for _ in range(SLOW_CLIENTS)}
        began, step, longest = time.monotonic(), 0, 0.0
        while slow:
            assert time.monotonic() - began < 20 * HEAD_S
            slow -= {client for client in slow if not drip(client, head[step : step + 1])}
            before = time.monotonic()
            producer.produce(mq, str(step))
            assert consumer.take(mq).body == str(step).encode()
            longest = max(longest, time.monotonic() - before)
            step += 1
            time.sleep(0.02)
        assert time.monotonic() - began >= HEAD_S - 0.1
        assert longest < 2


def drip(client: Client, byte: bytes) -> bool:
    """False when the server has closed."""
    client.socket.setblocking(False)
    try:
        client.socket.send(byte)
        while client.socket.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_a_body_that_trickles_is_closed(dial: Dial, mq: str) -> None:
    """It must keep up a rate; the head came at once."""
    clients = [dial() for _ in range(20)]
    for client in clients:
        client.write(compose({"cmd": "produce", "mq": mq, "content-length": "100000"}))
    began = time.monotonic()
    while clients:
        assert time.monotonic() - began < 10
        clients = [client for client in clients if drip(client, b"x")]
        time.sleep(0.02)


def test_a_body_that_keeps_up_the_rate_is_served(client: Client, mq: str) -> None:
    """Longer than a head may take."""
    body = bytes(3 * BODY_RATE)
    client.write(compose({"cmd": "produce", "mq": mq, "msgid": "p", "content-length": str(len(body))}))
    began, sent = time.monotonic(), 0
    while sent < len(body):
        client.write(body[sent : sent + BODY_RATE // 8])
        sent += BODY_RATE // 8
        time.sleep(0.05)
    assert time.monotonic() - began > HEAD_S
    assert client.reply("p").status == 200


def test_silence_between_messages_is_no_offence(dial: Dial, mq: str) -> None:
    """Armed or idle or having said nothing yet: none has begun a message."""
    silent, armed, idle = dial(), dial(), dial()
    msgid = armed.arm(mq)
    idle.synchronise()
    with dial() as half:
        half.write(b"G")
        half.until_closed()
    for client in (silent, idle):
        assert client.settled() == []
    silent.produce(mq, "x")
    assert armed.reply(msgid).body == b"x"


# ---- too many --------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_thousands_of_idle_armed_consumers_cost_little_and_are_each_served(server: Server, dial: Dial) -> None:
    producer = dial()
    mq = producer.create()
    with ExitStack() as stack:
        consumers = [stack.enter_context(dial_server(server)) for _ in range(20)]
        before = server.rss()
        consumers += [stack.enter_context(dial_server(server)) for _ in range(CONSUMERS)]
        for consumer in consumers:
            consumer.send("consume", mq=mq, msgid="c")
        wait_until(
            lambda: producer.data()["mqTable"][mq]["consumerCount"] == len(consumers), 60, "all consumers to be armed"
        )
        growth = server.rss() - before
        print(f"{growth / CONSUMERS / 1024:.1f} KiB for each of {CONSUMERS} armed consumers")
        # The `data` document of thousands of consumers passes through the same memory.
        assert growth < CONSUMERS * BYTES_PER_CONSUMER + 8 * MIB
        bodies = [str(number) for number in range(len(consumers))]
        for start in range(0, len(bodies), 500):
            messages = [{"cmd": "produce", "mq": mq, "msgid": body} for body in bodies[start : start + 500]]
            producer.write(b"".join(compose(keys, keys["msgid"]) for keys in messages))
            producer.reply(messages[-1]["msgid"])
        got = [consumer.reply("c").body.decode() for consumer in consumers]
        assert sorted(got, key=int) == bodies


def test_a_client_that_asks_and_never_reads_cannot_fill_the_memory(server: Server, flat: None) -> None:
    with Client(zbus_port(server), receive_buffer=4096) as deaf:
        deaf.socket.settimeout(0.5)
        asked = 0
        with suppress(OSError):
            for _ in range(2000):
                deaf.socket.sendall(compose({"method": "index"}) * 100)
                asked += 100
        assert asked < 200_000, "reading must have paused, or the connection must be closed"


def test_consumers_that_take_and_leave(server: Server, dial: Dial, mq: str) -> None:
    """Each breaks off with a consume armed; whatever is produced meanwhile reaches the one that stays."""
    producer, count = dial(), 100
    accepted = server.metric("raceway_connections_total")
    for number in range(count):
        with dial_server(server) as leaving:
            leaving.send("consume", mq=mq, msgid="c")
            leaving.reset()
        producer.send("produce", str(number), mq=mq, ack="0")
    producer.synchronise()
    wait_until(lambda: server.metric("raceway_connections_total") == accepted + count, what="all to have come")
    wait_until(lambda: producer.data()["mqTable"][mq]["consumerCount"] == 0, what="all to be forgotten")
    left = producer.data()["mqTable"][mq]["unconsumedMsgCount"]
    staying = dial()
    got = [int(staying.take(mq).body) for _ in range(left)]
    assert got == sorted(got)
    assert set(got) <= set(range(count))


# ---- too much to remember --------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_reads_costs_no_memory(client: Client, mq: str, flat: None) -> None:
    """100 MB of messages: they are in the journal, and come from there in order."""
    pass_through(client, mq, 100_000)


def test_answers_that_nobody_fetches_cost_no_memory(dial: Dial, mq: str, flat: None) -> None:
    caller, service = dial(), dial()
    caller.request(mq)
    delivery = service.take(mq)
    for number in range(2000):
        service.answer(delivery, bytes(65_536), msgid=str(number))
    service.synchronise()


def test_topics_that_a_subscriber_adds_for_ever_cost_no_memory(client: Client, flat: None) -> None:
    news = client.create(mode=PUBSUB)
    for number in range(2000):
        client.send("consume", mq=news, topic=",".join(f"{number}-{n}-{'y' * 50}" for n in range(1000)), ack="0")
    client.synchronise()


# ---- nonsense --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_random_bytes_end_in_a_refusal_or_a_close(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        with dial_server(server) as client:
            with suppress(OSError):
                client.write(chance.randbytes(chance.randrange(1, 3000)) + b"\r\n\r\n")
                client.socket.shutdown(socket.SHUT_WR)
            assert set(statuses(client.until_closed())) <= {200, 400, 403, 404, 413}


@pytest.mark.parametrize("seed", range(rounds(3)))
def test_almost_valid_messages_are_answered_or_refused(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        with dial_server(server) as client:
            with suppress(OSError):
                client.write(b"".join(mutated(chance) for _ in range(3)))
                client.socket.shutdown(socket.SHUT_WR)
            assert set(statuses(client.until_closed())) <= {100, 200, 400, 403, 404, 413, 422}


def mutated(chance: random.Random) -> bytes:
    """A valid message with one byte replaced, removed or doubled."""
    keys = {"cmd": chance.choice(["produce", "consume", "request", "admin", "heartbeat"]), "mq": "no-queue"}
    keys |= {"msgid": "m", "method": chance.choice(["data", "index", "create_mq"]), "topic": "a,b", "window": "2"}
    first = chance.choice(["GET /a?b=c%20d&&e HTTP/1.1", "POST / HTTP/1.1", "HTTP/1.1 200 OK", "GET /"])
    message = bytearray(compose(keys, '{"mqName":"no.queue","mqMode":"2"}', first))
    at = chance.randrange(len(message))
    message[at : at + 1] = chance.choice([b"", bytes([chance.randrange(256)]), bytes(message[at : at + 1]) * 2])
    return bytes(message)


def test_names_that_no_queue_has_leave_nothing_behind(client: Client, server: Server, flat: None) -> None:
    for _ in range(20):
        names = [fresh_name() for _ in range(500)]
        client.write(b"".join(compose({"cmd": "produce", "mq": name, "msgid": name}) for name in names))
        assert {client.receive().status for _ in names} == {404}
