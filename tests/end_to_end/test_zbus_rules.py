"""The rules of the zbus wire, one by one.

S1 to S23 are the rules of the protocol's own text, in its order: form (S1-S4), keys (S5-S9), first line (S10), produce
(S11, S12), consume (S13, S14), request (S15, S16), admin (S17, S18), URI (S19-S22), heartbeat (S23). Each has a test
here whose docstring names it. The decisions D1 to D24 are in `test_zbus_decisions.py`.
"""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import EVERY_BYTE, TIME_MS, UUID, Client, Dial, broker_address, compose, fresh_name


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__ZBUS__TRACKER="true") as server:
        yield server


# ---- the form --------------------------------------------------------------------------------------------------------


def test_a_message_is_a_head_with_keys_and_a_body_with_data(client: Client, mq: str) -> None:
    """S1: nothing in a body is read as keys, whatever it looks like."""
    body = b"cmd: admin\r\nmq: other\r\ncontent-length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n" + EVERY_BYTE
    client.produce(mq, body)
    assert client.take(mq).body == body
    assert client.settled() == []


@pytest.mark.parametrize("value", ["close", "keep-alive", "Close", "upgrade"])
def test_a_connection_stays_open_whatever_the_client_says_of_it(client: Client, mq: str, value: str) -> None:
    """S2: a browser may use it, but connections live long."""
    for number in range(3):
        client.produce(mq, str(number), connection=value)
    client.write(b"GET / HTTP/1.0\r\nconnection: close\r\n\r\n")
    assert client.receive().is_page
    assert [client.take(mq, connection=value).body for _ in range(3)] == [b"0", b"1", b"2"]


def test_the_keys_of_the_text_are_all_a_client_needs(dial: Dial) -> None:
    """S3, S4: command, address, matching and access code, spelled as in the text, carry a whole conversation."""
    caller, service, mq = dial(), dial(), fresh_name()
    caller.write(compose({"cmd": "admin", "method": "create_mq", "msgid": "1", "mq": mq, "mq_mode": "1"}))
    assert caller.reply("1").status == 200
    service.write(compose({"cmd": "consume", "mq": mq, "msgid": "2", "token": ""}, first="GET /"))
    caller.write(compose({"cmd": "request", "mq": mq, "msgid": "3", "mq-reply": "box-of-s3", "token": ""}, "1+1"))
    delivery = service.reply("2")
    assert (delivery.body, delivery.headers["mq-reply"], delivery.raw_id) == (b"1+1", "box-of-s3", "3")
    service.write(compose({"cmd": "produce", "mq": "box-of-s3", "msgid": "3", "token": ""}, "2"))
    assert caller.reply("3").body == b"2"
    assert service.reply("3").status == 200, "the acknowledgement of the answer"


# ---- the keys --------------------------------------------------------------------------------------------------------


def test_the_command_decides_and_admin_is_the_default(client: Client, mq: str) -> None:
    """S5: produce, consume, request, heartbeat, admin; absent is admin; anything else is refused."""
    client.write(compose({"msgid": "none"}))
    assert client.reply("none").is_page
    client.write(compose({"msgid": "data", "method": "data"}))
    assert client.reply("data").headers["content-type"] == "application/json"
    for wrong in ("publish", "Produce", "PRODUCE", "produces", "track_pub", "*"):
        assert client.ask(wrong, mq=mq).status == 400
    assert client.settled() == []


def test_mq_is_the_target_and_mq_reply_the_queue_of_the_answer(dial: Dial, mq: str) -> None:
    """S6."""
    producer, consumer = dial(), dial()
    producer.produce(mq, "a", mq_reply="somewhere")
    delivery = consumer.take(mq)
    assert (delivery.headers["mq"], delivery.headers["mq-reply"]) == (mq, "somewhere")


def test_queue_names_are_compared_exactly(client: Client) -> None:
    """S6: letters keep their case."""
    mq = client.create("Q" + fresh_name())
    assert client.ask("produce", mq=mq.lower()).status == 404
    assert client.ask("produce", mq=mq).status == 200


def test_the_id_changes_on_the_way_and_the_first_one_is_kept(dial: Dial, mq: str) -> None:
    """S7."""
    producer, consumer = dial(), dial()
    producer.produce(mq, msgid="the first")
    delivery = consumer.take(mq, msgid="the second")
    assert (delivery.msgid, delivery.raw_id) == ("the second", "the first")


def test_the_access_code_is_empty_unless_given(client: Client) -> None:
    """S8."""
    guarded, free = client.create(access_token="pass word"), client.create()
    for cmd in ("produce", "consume", "request"):
        assert client.ask(cmd, mq=guarded).status == 403
        assert client.ask(cmd, mq=guarded, token="").status == 403
        assert client.ask(cmd, mq=guarded, token="pass").status == 403
    assert client.ask("produce", mq=guarded, token=" pass word ").status == 200, "values are trimmed"
    assert client.take(guarded, token="pass word").status == 200
    assert client.ask("produce", mq=free, token="").status == 200
    assert client.ask("produce", mq=free).status == 200


def test_broker_is_the_servers_address_whatever_the_producer_claims(client: Client, mq: str, server: Server) -> None:
    """S9: and `remote-addr` is the producer's."""
    client.produce(mq, broker="10.0.0.1:1", remote_addr="10.0.0.1:2")
    delivery = client.take(mq)
    assert delivery.headers["broker"] == broker_address(server)
    host, port = client.socket.getsockname()
    assert delivery.headers["remote-addr"] == f"{host}:{port}"


def test_topic_and_encoding_travel_along_unread(client: Client, mq: str) -> None:
    """S9."""
    client.produce(mq, b"\xff", topic="a.b", encoding="no-such-charset", content_type="x/y")
    headers = client.take(mq).headers
    assert (headers["topic"], headers["encoding"], headers["content-type"]) == ("a.b", "no-such-charset", "x/y")


@pytest.mark.parametrize(
    ("value", "is_wanted"),
    [("1", True), ("true", True), ("TRUE", True), ("True", True), ("0", False), ("false", False), ("", False)]
    + [(value, False) for value in ("yes", "on", "2", "01", "truee")],
)
def test_ack_is_true_for_1_and_true_alone(client: Client, mq: str, value: str, is_wanted: bool) -> None:
    """S9, S12: absent is true, all else is false; the message is stored either way."""
    client.send("produce", "x", mq=mq, msgid="p", ack=value)
    assert [message.msgid for message in client.settled()] == (["p"] if is_wanted else [])
    assert client.take(mq).raw_id == "p"


def test_method_is_the_command_under_admin(client: Client) -> None:
    """S9, S17: elsewhere it is a key like any other, for a request may well name its method."""
    assert client.admin("data").json()["mqTable"]
    mq = client.create()
    client.produce(mq, method="create_mq")
    assert client.take(mq).headers["method"] == "create_mq"


# ---- the first line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    ["GET / HTTP/1.1", "POST / HTTP/1.1", "GET /", "POST /", "GET / HTTP/1.0", "get / http/1.1", "BREW / HTTP/1.1"],
)
def test_the_first_line_is_read_as_in_http(client: Client, mq: str, first: str) -> None:
    """S10: any method word, and the version may be missing."""
    client.write(compose({"cmd": "produce", "mq": mq, "msgid": "p"}, "body", first))
    reply = client.reply("p")
    assert reply.first == "HTTP/1.1 200 OK"
    assert client.take(mq).body == b"body"


@pytest.mark.parametrize("first", ["HTTP/1.1 200 OK", "HTTP/1.1 404 Not Found", "http/1.0 500 x", "HTTP/1.1 299"])
def test_a_client_may_send_a_status_line(dial: Dial, mq: str, first: str) -> None:
    """S10: old services send their answers so; the status travels on."""
    caller, service = dial(), dial()
    msgid = caller.request(mq)
    delivery = service.take(mq)
    service.write(compose({"cmd": "produce", "mq": delivery.headers["mq-reply"], "msgid": msgid}, "x", first))
    reply = caller.reply(msgid)
    assert (reply.status, reply.body) == (int(first.split()[1]), b"x")


def test_reasons_are_those_of_http(dial: Dial, mq: str) -> None:
    """S10."""
    caller, service = dial(), dial()
    msgid = caller.request(mq)
    service.serve_one(mq, "x", reply_code="503")
    assert caller.reply(msgid).first == "HTTP/1.1 503 Service Unavailable"
    assert caller.ask("produce", mq=fresh_name()).first == "HTTP/1.1 404 Not Found"
    assert caller.ask("fly").first == "HTTP/1.1 400 Bad Request"


# ---- produce ---------------------------------------------------------------------------------------------------------


def test_produce_needs_a_command_and_a_queue_and_takes_the_rest(dial: Dial, mq: str) -> None:
    """S11: and unknown keys travel to the consumer unchanged, those of the head and those of the URI."""
    producer, consumer = dial(), dial()
    keys = {"cmd": "produce", "mq": mq, "X-Shop": "Straße 1: ¥", "traceparent": "00-a-b-01"}
    producer.write(compose(keys, "data", f"POST /?{urllib.parse.urlencode({'color': 'deep blue'})} HTTP/1.1"))
    assert producer.receive().status == 200
    delivery = consumer.take(mq)
    assert delivery.body == b"data"
    assert (delivery.headers["x-shop"], delivery.headers["traceparent"]) == ("Straße 1: ¥", "00-a-b-01")
    assert delivery.headers["color"] == "deep blue"
    assert delivery.headers["cmd"] == "produce"


def test_the_reply_to_produce_has_the_requests_id_and_the_time(client: Client, mq: str) -> None:
    """S12."""
    before = time.time() * 1000
    reply = client.ask("produce", mq=mq, msgid="p-1")
    assert (reply.status, reply.msgid) == (200, "p-1")
    assert TIME_MS.fullmatch(reply.body)
    assert before - 1000 < int(reply.body) < time.time() * 1000 + 1000


# ---- consume ---------------------------------------------------------------------------------------------------------


def test_consume_waits_and_gives_one_message(dial: Dial, mq: str) -> None:
    """S13."""
    consumer, producer = dial(), dial()
    armed = consumer.arm(mq, topic="of no interest on a queue")
    assert consumer.settled() == []
    producer.produce(mq, "1")
    producer.produce(mq, "2")
    assert consumer.reply(armed).body == b"1"
    assert consumer.settled() == []


def test_a_delivery_says_where_it_comes_from_and_where_an_answer_goes(dial: Dial, mq: str, server: Server) -> None:
    """S14."""
    producer, consumer = dial(), dial()
    producer.produce(mq, "data", msgid="p-1")
    delivery = consumer.take(mq, msgid="c-1")
    assert (delivery.first, delivery.msgid, delivery.raw_id) == ("HTTP/1.1 200 OK", "c-1", "p-1")
    assert UUID.fullmatch(delivery.headers["mq-reply"])
    assert delivery.headers["broker"] == broker_address(server)
    assert delivery.body == b"data"


@pytest.mark.parametrize("ack", ["0", "1"])
def test_ack_on_a_consume_silences_refusals_alone(client: Client, mq: str, ack: str) -> None:
    """S13, S14: an acknowledgement switched off does not switch off the delivery."""
    client.send("consume", mq=fresh_name(), msgid="nowhere", ack=ack)
    assert [message.status for message in client.settled()] == ([404] if ack == "1" else [])
    client.send("consume", mq=mq, msgid="c", ack=ack)
    client.produce(mq, "x")
    assert client.reply("c").body == b"x"


# ---- request ---------------------------------------------------------------------------------------------------------


def test_a_request_goes_to_a_service_and_its_answer_to_the_sender(dial: Dial, mq: str) -> None:
    """S15, S16: no acknowledgement; the answer has the request's id."""
    caller, service = dial(), dial()
    caller.request(mq, "1+1", msgid="r-1")
    assert caller.settled() == []
    delivery = service.serve_one(mq, "2")
    assert (delivery.body, delivery.raw_id) == (b"1+1", "r-1")
    assert (delivery.headers["cmd"], delivery.headers["ack"]) == ("request", "0")
    assert UUID.fullmatch(delivery.headers["mq-reply"])
    (answer,) = caller.settled()
    assert (answer.msgid, answer.body) == ("r-1", b"2")


# ---- admin -----------------------------------------------------------------------------------------------------------


def test_admin_methods_and_their_default(client: Client) -> None:
    """S17."""
    assert client.ask("admin").is_page
    assert client.admin("index").is_page
    assert client.admin("create_mq", f'{{"mqName":"{fresh_name()}","mqMode":1}}').status == 200
    assert client.admin("track_sub").headers["content-type"] == "application/json"
    assert client.admin("fly").status == 404


def test_admin_replies_carry_the_requests_id(client: Client) -> None:
    """S18: `ask` finds them by it; without one none is made up."""
    for method in ("index", "data", "create_mq", "fly"):
        assert client.admin(method, msgid=f"of {method}").msgid == f"of {method}"
    client.get("/")
    assert client.receive().msgid is None


# ---- the URI ---------------------------------------------------------------------------------------------------------


def test_the_bare_uri_is_the_monitoring_page(client: Client) -> None:
    """S19."""
    for uri in ("/", "/?cmd=admin&&method=index", "/?", "/?method=index"):
        client.get(uri)
        assert client.receive().is_page, uri


def test_the_path_is_the_queue(client: Client, mq: str) -> None:
    """S20."""
    client.write(compose({"cmd": "produce", "msgid": "p"}, "by path", f"POST /{mq} HTTP/1.1"))
    assert client.reply("p").status == 200
    client.get(f"/{mq}?cmd=consume&msgid=c")
    assert client.reply("c").body == b"by path"


def test_the_examples_of_the_text(dial: Dial) -> None:
    """S21."""
    browser, service = dial(), dial()
    browser.create("MyMQ")
    browser.get("/MyMQ?cmd=produce&&msgid=aed14-2343-1dea0-32&&body=xxxyyyzzz")
    assert browser.reply("aed14-2343-1dea0-32").status == 200
    browser.get("/MyMQ?cmd=consume&&msgid=aed14-2343-1dea0-32")
    delivery = browser.receive()
    assert (delivery.msgid, delivery.raw_id, delivery.body) == (*["aed14-2343-1dea0-32"] * 2, b"xxxyyyzzz")
    browser.get("/MyMQ?cmd=request&&msgid=aed14-2343-1dea0-32")
    service.serve_one("MyMQ", "served")
    assert browser.receive().body == b"served"


def test_keys_of_the_uri_count_less_than_those_of_the_head(client: Client, mq: str) -> None:
    """S22: the head, then the query, then (for the queue alone) the path."""
    client.write(compose({"cmd": "produce"}, "1", f"POST /nowhere?mq={mq}&cmd=consume&msgid=a HTTP/1.1"))
    assert client.reply("a").status == 200, "the query's queue beats the path"
    client.write(compose({"mq": mq, "msgid": "b"}, "2", "POST /nowhere?mq=neither&cmd=produce&msgid=x HTTP/1.1"))
    assert client.reply("b").status == 200, "the head's queue beats both"
    assert [client.take(mq).raw_id for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("a=1&&b=2", {"a": "1", "b": "2"}),
        ("a=1&b=2", {"a": "1", "b": "2"}),
        ("&&a=1&&&&b=2&", {"a": "1", "b": "2"}),
        ("A=x%20y&b=p+q", {"a": "x y", "b": "p q"}),
        ("a=1=2&b", {"a": "1=2", "b": ""}),
        ("a=1?2&b=%3D%26", {"a": "1?2", "b": "=&"}),
        ("%61=1&+b+=2", {"a": "1", "b": "2"}),
        ("a=%E4%B8%AD&b=ü", {"a": "中", "b": "ü"}),
        ("a=1&b=2&a=3", {"a": "3", "b": "2"}),
    ],
)
def test_what_follows_the_first_question_mark_is_keys(
    client: Client, mq: str, query: str, keys: dict[str, str]
) -> None:
    """S22: single or double `&`, escapes, names folded."""
    client.get(f"/{mq}?cmd=produce&msgid=p&{query}")
    assert client.reply("p").status == 200
    headers = client.take(mq).headers
    assert {name: headers.get(name) for name in keys} == keys


def test_a_heartbeat_is_never_answered(client: Client) -> None:
    """S23."""
    client.send("heartbeat")
    client.send("heartbeat", msgid="h-1")
    client.send("heartbeat", msgid="h-2", ack="true", mq=fresh_name())
    client.get("/?cmd=heartbeat")
    assert client.settled() == []


# ---- all of them -----------------------------------------------------------------------------------------------------


def test_every_rule_has_a_test_that_names_it() -> None:
    docstrings = " ".join(str(value.__doc__) for name, value in globals().items() if name.startswith("test_"))
    assert {f"S{number}" for number in range(1, 24)} <= set(re.findall(r"\bS\d+\b", docstrings))
