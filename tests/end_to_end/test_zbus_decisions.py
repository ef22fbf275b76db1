"""The decisions behind the zbus wire, one by one.

D1 to D24: places where the protocol's own text and the servers that were built after it differ, or both are silent, and
this server had to choose. Each has a test here whose docstring names it.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import PUBSUB, UUID, Client, Dial, compose, dial_server, fresh_name

ADMIN_TOKEN = "let me in"
PUBSUB_MESSAGES = 5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__ZBUS__TRACKER="true", RACEWAY_BROKER__PUBSUB_MESSAGES=PUBSUB_MESSAGES
    ) as server:
        yield server


def test_both_spellings_are_taken_and_both_are_sent(dial: Dial) -> None:
    """D1: where both stand in one message, the hyphen counts."""
    caller, service = dial(), dial()
    mq = fresh_name()
    caller.write(compose({"cmd": "admin", "sub_cmd": "create_mq", "msgid": "1", "mq_name": mq, "mq_mode": "1"}))
    assert caller.reply("1").status == 200
    caller.write(compose({"cmd": "produce", "mq": mq, "msgid": "2", "mq_reply": "old", "ack": "0"}))
    caller.write(compose({"cmd": "produce", "mq": mq, "msgid": "3", "mq_reply": "old", "mq-reply": "new", "ack": "0"}))
    for raw_id, reply_queue in (("2", "old"), ("3", "new")):
        headers = service.take(mq).headers
        assert (headers["msgid-raw"], headers["msgid_raw"]) == (raw_id, raw_id)
        assert (headers["mq-reply"], headers["mq_reply"]) == (reply_queue, reply_queue)
    both = compose({"cmd": "admin", "sub_cmd": "fly", "method": "data", "msgid": "4"})
    caller.write(both)
    assert caller.reply("4").status == 200
    msgid = caller.request(mq)
    delivery = service.take(mq)
    keys = {"cmd": "produce", "mq": delivery.headers["mq_reply"], "msgid": delivery.headers["msgid_raw"]}
    service.write(compose(keys | {"reply_code": "409", "ack": "0"}, "old style"))
    assert caller.reply(msgid).status == 409


def test_a_path_without_a_command_is_the_page(client: Client, mq: str) -> None:
    """D2: the path names a queue, and the command is admin."""
    for uri in (f"/{mq}", "/nowhere", "/index", "/favicon.ico", "/%C3%BC"):
        client.get(uri)
        assert client.receive().is_page, uri


def test_body_in_the_uri_is_the_body_unless_the_message_has_one(client: Client, mq: str) -> None:
    """D3: and it is never relayed as a header."""
    client.get(f"/{mq}?cmd=produce&msgid=1&body=a%20b%26c+d")
    client.write(compose({"cmd": "produce", "msgid": "2"}, "own", f"POST /{mq}?body=uri HTTP/1.1"))
    deliveries = [client.take(mq) for _ in range(2)]
    assert [delivery.body for delivery in deliveries] == [b"a b&c d", b"own"]
    assert all("body" not in delivery.headers for delivery in deliveries)


def test_escapes_in_the_path_are_decoded_always(client: Client) -> None:
    """D4: with and without a query behind."""
    name = "größe-" + fresh_name()
    mq = client.create(name)
    path = urllib.parse.quote(mq)
    client.write(compose({"cmd": "produce", "msgid": "1"}, "no query", f"POST /{path} HTTP/1.1"))
    client.get(f"/{path}?cmd=produce&msgid=2&body=query")
    client.get(f"/{name}?cmd=produce&msgid=3&body=plain")
    assert [client.reply(msgid).status for msgid in ("1", "2", "3")] == [200, 200, 200]
    assert [client.take(mq).body for _ in range(3)] == [b"no query", b"query", b"plain"]


def test_the_page_echoes_the_id(client: Client) -> None:
    """D5."""
    client.get("/?msgid=ix-9")
    page = client.receive()
    assert page.is_page
    assert page.msgid == "ix-9"


def test_a_pubsub_delivery_keeps_the_producers_id(dial: Dial) -> None:
    """D6."""
    subscriber, producer = dial(), dial()
    mq = producer.create(mode=PUBSUB)
    armed = subscriber.arm(mq, topic="t")
    producer.produce(mq, topic="t", msgid="first")
    assert subscriber.reply(armed).raw_id == "first"


def test_all_requests_open_on_a_connection_are_answered(dial: Dial, mq: str) -> None:
    """D7: not the latest alone."""
    caller, service = dial(), dial()
    msgids = [caller.request(mq, str(number)) for number in range(5)]
    deliveries = [service.take(mq) for _ in msgids]
    for delivery in reversed(deliveries):
        service.answer(delivery, b"answer to " + delivery.body)
    assert [caller.reply(msgid).body for msgid in msgids] == [b"answer to %d" % number for number in range(5)]


def test_a_request_without_ack_gets_no_reply_of_any_kind(dial: Dial, mq: str) -> None:
    """D8: but the service runs."""
    caller, service = dial(), dial()
    caller.request(fresh_name(), ack="0")
    caller.request(mq, "work", ack="false")
    delivery = service.serve_one(mq, "done")
    assert (delivery.body, delivery.headers["cmd"]) == (b"work", "request")
    service.synchronise()
    assert caller.settled() == []


def test_the_default_reply_queue_is_the_connection(dial: Dial, mq: str) -> None:
    """D9: for produce and for request."""
    first, second, consumer = dial(), dial(), dial()
    for client in (first, second):
        client.produce(mq)
        client.request(mq)
        client.synchronise()
    queues = [consumer.take(mq).headers["mq-reply"] for _ in range(4)]
    assert queues[0] == queues[1] != queues[2] == queues[3]
    assert all(UUID.fullmatch(name) for name in queues)


def test_a_missing_id_is_made_by_the_server(dial: Dial, mq: str) -> None:
    """D10: for produce, consume and request."""
    client, service = dial(), dial()
    client.send("produce", "a", mq=mq)
    made = client.receive().msgid
    assert made
    assert UUID.fullmatch(made)
    client.send("consume", mq=mq)
    delivery = client.receive()
    assert delivery.raw_id == made
    assert UUID.fullmatch(delivery.msgid or "")
    assert delivery.msgid != made
    client.send("request", "b", mq=mq)
    request = service.serve_one(mq, "c")
    answer = client.receive()
    assert answer.body == b"c"
    assert answer.msgid == request.raw_id
    assert UUID.fullmatch(answer.msgid or "")


def test_a_missing_queue_is_not_found(client: Client) -> None:
    """D11."""
    for cmd in ("produce", "consume", "request"):
        assert client.ask(cmd).status == 404
        assert client.ask(cmd, mq="").status == 404
    client.get("/?cmd=produce&msgid=x")
    assert client.reply("x").status == 404


def test_tracker_commands_are_taken_under_admin_and_at_the_top(dial: Dial) -> None:
    """D12."""
    subscribers, reporter = [dial(), dial()], dial()
    tables = [subscribers[0].ask("track_sub"), subscribers[1].admin("track_sub")]
    assert {table.status for table in tables} == {200}
    for number, keys in enumerate([{"cmd": "track_report"}, {"cmd": "admin", "method": "track_report"}]):
        address = f"10.0.0.{number}:15555"
        reporter.write(compose(keys, f'{{"broker":"{address}","lastUpdatedTime":1,"mqTable":{{}}}}'))
        assert reporter.settled() == []
        for subscriber in subscribers:
            push = subscriber.wait_for_push(address)
            assert (push.first, push.headers["cmd"], push.msgid) == ("GET / HTTP/1.1", "track_pub", None)


def test_create_without_body_is_refused_and_without_access_token_open(client: Client) -> None:
    """D13."""
    assert client.admin("create_mq").status == 400
    mq = fresh_name()
    assert client.admin("create_mq", f'{{"mqName":"{mq}","mqMode":"1"}}').status == 200
    assert client.ask("produce", mq=mq).status == 200


def test_the_admin_token_is_enforced_where_there_is_one() -> None:
    """D14: and it opens admin alone."""
    with (
        running_server(RACEWAY_SECURITY__ADMIN_TOKEN=ADMIN_TOKEN) as guarded,
        dial_server(guarded) as client,
    ):
        for keys in ({}, {"token": ""}, {"token": "let me"}, {"token": ADMIN_TOKEN + "!"}):
            for method in ("index", "data", "create_mq", "fly"):
                assert client.admin(method, **keys).status == 403
            client.get("/")
            assert client.receive().status == 403
        assert client.admin("index", token=ADMIN_TOKEN).is_page
        client.get("/?token=let+me+in")
        assert client.receive().is_page
        mq = client.create(token=ADMIN_TOKEN)
        closed = client.create(access_token="other", token=ADMIN_TOKEN)
        assert client.ask("produce", mq=mq).status == 200
        assert client.ask("produce", mq=closed, token=ADMIN_TOKEN).status == 403


def test_the_token_is_never_handed_on(dial: Dial) -> None:
    """D15: neither to consumers nor with answers, from head or URI."""
    caller, service = dial(), dial()
    mq = caller.create(access_token="open")
    caller.produce(mq, token="open")
    caller.get(f"/{mq}?cmd=produce&msgid=u&token=open")
    caller.reply("u")
    msgid = caller.request(mq, token="open")
    for _ in range(2):
        assert "open" not in str(service.take(mq, token="open").headers)
    delivery = service.take(mq, token="open")
    assert "open" not in str(delivery.headers)
    service.answer(delivery, "x", token="open")
    assert "open" not in str(caller.reply(msgid).headers)


def test_pipelined_messages_keep_their_order(dial: Dial, mq: str) -> None:
    """D16: of the acknowledgements and of the queue."""
    producer, consumer = dial(), dial()
    ids = [f"p-{number}" for number in range(500)]
    producer.write(b"".join(compose({"cmd": "produce", "mq": mq, "msgid": i}, i) for i in ids))
    assert [producer.receive().msgid for _ in ids] == ids
    consumer.send("consume", mq=mq, msgid="c", window="-1")
    assert [consumer.receive().raw_id for _ in ids] == ids


def test_what_is_acknowledged_is_stored() -> None:
    """D17: killed right behind the acknowledgement, the message is there."""
    with running_server() as other:
        with dial_server(other) as client:
            mq = client.create()
            client.produce(mq, "safe")
            other.kill()
        other.start()
        with dial_server(other) as client:
            assert client.take(mq).body == b"safe"


@pytest.mark.parametrize("uri", ["/%", "/%zz?cmd=produce", "/x?cmd=produce&msgid=%g1", "/x?%=1", "/x?a=%C"])
def test_a_bad_escape_is_refused_and_the_connection_lives(client: Client, uri: str) -> None:
    """D18: framing is not lost."""
    client.get(uri)
    assert client.receive().status == 400
    assert client.settled() == []


@pytest.mark.parametrize("length", ["many", "-1", "+1", "1.0", "0x1", "1 1", "1,1", "١", "", "1e3"])
def test_a_broken_length_is_refused_and_the_connection_closed(dial: Dial, length: str) -> None:
    """D18: nobody knows where the next message begins."""
    client = dial()
    client.write(compose({"cmd": "heartbeat", "msgid": "z", "content-length": length}) + b"GET / HTTP/1.1\r\n\r\n")
    (refusal,) = client.until_closed()
    assert (refusal.status, refusal.msgid) == (400, "z")


def test_a_consume_that_its_client_has_given_up_stays_armed(dial: Dial, mq: str) -> None:
    """D19: the wire cannot take it back; the delivery comes under its id, and ours never gives one up."""
    consumer, producer = dial(), dial()
    armed = consumer.arm(mq)
    with pytest.raises(TimeoutError):
        consumer.receive(0.05)
    producer.produce(mq, "late")
    assert consumer.reply(armed).body == b"late"


def test_a_reply_queue_may_be_an_ordinary_queue(dial: Dial, mq: str) -> None:
    """D20: what answers an open request goes to the caller, all else is queued."""
    caller, service = dial(), dial()
    box = caller.create()
    msgid = caller.request(mq, "?", mq_reply=box)
    delivery = service.take(mq)
    service.produce(box, "of another id")
    service.answer(delivery, "the answer")
    assert caller.reply(msgid).body == b"the answer"
    assert caller.take(box).body == b"of another id"
    service.produce(box, "a second answer", msgid=msgid)
    assert caller.take(box).body == b"a second answer"


def test_a_subscribers_buffer_has_a_limit_and_loses_nothing(dial: Dial, server: Server) -> None:
    """D21: what does not fit is read from the journal."""
    before = server.metric("raceway_detached_subscribers_total")
    subscriber, producer = dial(), dial()
    mq = producer.create(mode=PUBSUB)
    armed = subscriber.arm(mq, topic="*")
    count = 4 * PUBSUB_MESSAGES
    for number in range(count):
        producer.produce(mq, str(number), topic="t")
    assert server.metric("raceway_detached_subscribers_total") > before
    assert subscriber.reply(armed).body == b"0"
    kept = [subscriber.take(mq).body for _ in range(count - 1)]
    assert kept == [str(number).encode() for number in range(1, count)]
    subscriber.arm(mq)
    assert subscriber.settled() == []
    producer.produce(mq, "live", topic="t")
    assert subscriber.receive().body == b"live"


def test_creating_again_as_the_other_kind_is_refused(client: Client) -> None:
    """D22: and nothing but the kind counts."""
    mq = fresh_name()
    for mode, status in ((1, 200), (2, 400), (3, 400), (0, 200), (1, 200), (6, 400)):
        assert client.admin("create_mq", f'{{"mqName":"{mq}","mqMode":{mode}}}').status == status, mode


def test_the_oldest_dialect_is_not_spoken(client: Client, mq: str) -> None:
    """D23: `/produce` is a queue like any other."""
    for word in ("produce", "consume", "request", "heartbeat", "admin"):
        client.write(compose({"mq": mq, "msgid": word}, first=f"GET /{word} HTTP/1.1"))
        assert client.reply(word).is_page
    client.arm(mq)
    assert client.settled() == []


def test_refusals_name_no_reply_queue_but_the_senders_own(dial: Dial, mq: str) -> None:
    """D24."""
    client, consumer = dial(), dial()
    client.produce(mq)
    own = consumer.take(mq).headers["mq-reply"]
    for refusal in (client.ask("produce", mq=fresh_name()), client.ask("fly"), client.admin("fly")):
        assert refusal.headers.get("mq-reply", own) == own


def test_every_decision_has_a_test_that_names_it() -> None:
    docstrings = " ".join(str(value.__doc__) for name, value in globals().items() if name.startswith("test_"))
    assert {f"D{number}" for number in range(1, 25)} <= set(re.findall(r"\bD\d+\b", docstrings))
