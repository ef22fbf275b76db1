"""Where a zbus message ends, and which bytes of a client may stand in a head: nothing is smuggled, no line injected."""

from __future__ import annotations

import socket

import pytest

from tests.rigs.zbus_wire import Client, Dial, compose

# ---- where one message ends and the next begins ----------------------------------------------------------------------

SMUGGLED = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: {mq}\r\ncontent-length: 8\r\n\r\nsmuggled"


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: 0\r\ncontent-length: %d",
        b"content-length: %d\r\ncontent-length: 0",
        b"content-length: 0\r\nContent-Length: %d",
        b"content-length: 0, %d",
        b"content-length: %d\r\ntransfer-encoding: chunked",
        b"transfer-encoding: chunked\r\ncontent-length: %d",
        b"Transfer-Encoding: identity\r\nx: %d",
        b"transfer-encoding:\r\nx: %d",
        b"transfer-encoding : chunked\r\nx: %d",
        b"content-length : 0\r\ncontent-length: %d",
        b"content-length: 0\r\n content-length: %d",
        b"x: y\r\n\tz\r\ncontent-length: %d",
        b"x: y\ncontent-length: 0\r\ncontent-length: %d",
        b"x: y\rcontent-length: 0\r\ncontent-length: %d",
        b"content-length: 0\n\r\nx: %d",
        b"content-length: \x0b%d",
        b"content-length: \xc2\xa0%d",
        b"content-length: %d\0",
        b"content-length: 0x%d",
        b"content-length: +%d",
        b"content-length: -%d",
        b"content-length: %d_0",
    ],
)
def test_a_message_whose_end_could_be_read_in_two_ways_is_refused(
    dial: Dial, client: Client, mq: str, lines: bytes
) -> None:
    smuggled = SMUGGLED.replace(b"{mq}", mq.encode())
    head = b"POST / HTTP/1.1\r\ncmd: heartbeat\r\n" + lines % len(smuggled) + b"\r\n\r\n"
    attacker = dial()
    attacker.write(head + smuggled)
    assert {message.status for message in attacker.until_closed()} == {400}
    client.arm(mq)
    assert client.settled() == []


def test_equal_lengths_are_no_conflict_or_refused(dial: Dial, mq: str) -> None:
    client = dial()
    client.write(b"POST / HTTP/1.1\r\ncontent-length: 0\r\ncontent-length: 0\r\n\r\n")
    assert client.receive().status in (200, 400)


@pytest.mark.parametrize("key", ["content-length", "transfer-encoding", "expect"])
def test_framing_is_said_in_the_head_alone(client: Client, mq: str, key: str) -> None:
    """In the URI these are keys like any others: they move no border, here or at the consumer."""
    client.get(f"/{mq}?cmd=produce&msgid=1&body=ab&{key}=5")
    client.get(f"/{mq}?cmd=produce&msgid=2&body=cd&{key}=chunked")
    assert [client.reply(msgid).status for msgid in ("1", "2")] in ([200, 200], [400, 400])
    client.produce(mq, "last")
    while (delivery := client.take(mq)).body != b"last":
        assert delivery.body in (b"ab", b"cd")
        assert "transfer-encoding" not in delivery.headers
        assert delivery.headers["content-length"] == "2"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\n\n",
        b"GET / HTTP/1.1\n\r\n\r\n",
        b"POST / HTTP/1.1\r\ncmd: heartbeat\n\r\n\r\n",
        b"POST / HTTP/1.1\r\ncmd: heart\rbeat\r\n\r\n",
    ],
)
def test_a_bare_line_feed_or_return_ends_no_line(dial: Dial, data: bytes) -> None:
    client = dial()
    client.write(data + b"GET / HTTP/1.1\r\n\r\n")
    assert [message.status for message in client.until_closed()] == [400]


@pytest.mark.parametrize("first", [b"GET", b"/", b"GET  /", b"\x16\x03\x01\x02", b"HTTP/1.1", b"HTTP/1.1 x y"])
def test_a_first_line_that_is_none_is_refused(dial: Dial, first: bytes) -> None:
    """Also a TLS greeting. What can be read in some way is answered as that; nothing hangs."""
    client = dial()
    client.write(first + b"\r\n\r\n")
    assert client.receive().status in (200, 400)


def test_what_came_before_the_clients_farewell_is_answered(dial: Dial, mq: str) -> None:
    """As from `nc -N`: it has said all, and listens."""
    client = dial()
    client.write(compose({"cmd": "produce", "mq": mq, "msgid": "p"}, "x") + b"GET / HTTP/1.1\r\n\r\nPOST / HT")
    client.socket.shutdown(socket.SHUT_WR)
    replies = client.until_closed()
    assert sorted(str(reply.msgid) for reply in replies if reply.status == 200) == ["None", "p"]


# ---- injected lines --------------------------------------------------------------------------------------------------

INJECTED = "v%0d%0ax-evil:+1%0d%0a%0d%0aHTTP/1.1+200+OK"


@pytest.mark.parametrize(
    "query",
    [
        f"cmd=produce&msgid={INJECTED}",
        f"cmd=produce&mq-reply={INJECTED}",
        f"cmd=produce&topic={INJECTED}",
        f"cmd=produce&encoding={INJECTED}",
        f"cmd=produce&unknown={INJECTED}",
        f"cmd=produce&content-type={INJECTED}",
        f"cmd=produce&reply-code={INJECTED}",
        f"cmd=produce&{INJECTED}=x",
        "cmd=produce&x-evil%3a+1%0d%0ay=z",
        "cmd=produce&a%00b=c%00d",
        "cmd=produce&a=b%0ac%0dd",
        f"cmd={INJECTED}",
        f"cmd=admin&method={INJECTED}",
        f"cmd=produce&mq={INJECTED}",
    ],
)
def test_nothing_from_a_uri_becomes_a_line_of_a_head(dial: Dial, mq: str, query: str) -> None:
    """Neither in the reply nor in the delivery: refused, or made harmless."""
    attacker, victim = dial(), dial()
    attacker.get(f"/{mq}?{query}")
    reply = attacker.receive()
    assert reply.status in (200, 400, 404)
    assert "x-evil" not in reply.headers
    assert attacker.settled() == []
    attacker.produce(mq, "last")
    while (delivery := victim.take(mq)).body != b"last":
        assert "x-evil" not in delivery.headers
    assert victim.settled() == []


@pytest.mark.parametrize("reason", ["OK\rx-evil: 1", "<script>", "", "ü" * 100, "x" * 10_000])
def test_a_services_reason_does_no_harm(dial: Dial, mq: str, reason: str) -> None:
    caller, service = dial(), dial()
    msgid = caller.request(mq)
    delivery = service.take(mq)
    keys = {"cmd": "produce", "mq": delivery.headers["mq-reply"], "msgid": msgid}
    service.write(compose(keys, "x", f"HTTP/1.1 500 {reason}"))
    if service.receive().status == 200:
        answer = caller.reply(msgid)
        assert answer.first == "HTTP/1.1 500 Internal Server Error"
        assert "x-evil" not in answer.headers


@pytest.mark.parametrize("key", ["msgid-raw", "msgid_raw", "broker", "remote-addr"])
def test_a_producer_cannot_forge_what_the_server_says(client: Client, mq: str, key: str) -> None:
    keys = {"cmd": "produce", "mq": mq, "msgid": "true"}
    client.write(compose(keys, "x", f"POST /?{key}=forged HTTP/1.1") + compose(keys | {key: "forged"}, "x"))
    for _ in range(2):
        headers = client.take(mq).headers
        assert "forged" not in headers.values()
        assert headers["msgid-raw"] == headers["msgid_raw"] == "true"
