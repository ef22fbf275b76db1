"""zbus and MB on one bus: publishes, requests and errors that cross from one wire to the other, and their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raceway.journal.read.reader import Reader
from tests.rigs.mb_wire import SUCCESS, Peer, connect, fresh_topic
from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import EVERY_BYTE, PUBSUB, UUID, Client, Dial, dial_server, fresh_name

Row = dict[str, Any]
TIMEOUT_MS = 400
MAX_OUTSTANDING = 20
LONG_MS = 60_000
TEXT = '{"größe": "中", "n": 1.0e3 }\n\t'.encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__ZBUS__REQUEST_TIMEOUT_MS=TIMEOUT_MS, RACEWAY_BROKER__MAX_OUTSTANDING=MAX_OUTSTANDING
    ) as server:
        yield server


@pytest.fixture
def peer(server: Server) -> Iterator[Peer]:
    """A service on MB."""
    with connect(server, "tcp") as peer:
        yield peer


@pytest.fixture
def mq(client: Client) -> str:
    """A queue whose name MB can spell."""
    return client.create(fresh_topic())


def code_of(peer: Peer, topic: str, **more: Any) -> str:
    return str(peer.ask(topic, **more).json()["error"]["code"])


# ---- publishes -------------------------------------------------------------------------------------------------------


def test_what_zbus_produces_reaches_subscribers_on_mb(client: Client, mq: str, peer: Peer) -> None:
    peer.subscribe(mq)
    peer.subscribe(f"{mq.split('.')[0]}.#")
    client.produce(mq, TEXT, x_shop="Nord")
    copy = peer.receive()
    assert (copy.action, copy.topic, copy.fields[2], copy.payload) == ("publish", mq, "1.0.0", TEXT)
    assert peer.settled() == [], "once per subscriber"
    assert client.take(mq).body == TEXT, "and it is in the queue as well"


def test_bytes_that_are_no_text_are_whole_on_zbus_and_marked_on_mb(client: Client, mq: str, peer: Peer) -> None:
    peer.subscribe(mq)
    client.produce(mq, EVERY_BYTE)
    assert peer.receive().payload == EVERY_BYTE.decode("utf-8", "replace").encode()
    assert client.take(mq).body == EVERY_BYTE


def test_what_mb_publishes_is_consumed_from_the_queue(client: Client, mq: str, peer: Peer) -> None:
    message_id = new_uuid()
    assert peer.publish(mq, TEXT, message_id=message_id).payload == SUCCESS, "a queue is a subscription"
    peer.send(f"publish:{mq.upper()}:1.0.0", EVERY_BYTE)
    first, second = client.take(mq), client.take(mq)
    assert (first.status, first.body, first.raw_id) == (200, TEXT, message_id)
    assert (first.headers["cmd"], first.headers["mq"]) == ("produce", mq)
    assert (second.body, bool(UUID.fullmatch(second.raw_id or ""))) == (EVERY_BYTE, True)


def test_messages_of_both_wires_share_the_queue_in_order(client: Client, mq: str, peer: Peer) -> None:
    for number in range(10):
        if number % 2:
            client.produce(mq, str(number))
        else:
            peer.publish(mq, str(number))
    assert [client.take(mq).body for _ in range(10)] == [b"%d" % number for number in range(10)]


def test_mb_spells_a_queue_with_capitals_its_own_way(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    mq = client.create(topic.upper())
    assert peer.publish(topic, "x").payload == SUCCESS
    assert client.take(mq).body == b"x"
    peer.subscribe(topic)
    client.produce(mq, "y")
    assert peer.receive().payload == b"y"


def test_a_queue_whose_name_differs_from_mbs_in_case_alone_is_refused(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.publish(topic)
    refusal = client.admin("create_mq", f'{{"mqName":"{topic.title()}","mqMode":1}}')
    assert (refusal.status, topic in refusal.body.decode()) == (400, True)
    assert client.ask("produce", mq=topic.title()).status == 404


def test_a_queue_starts_with_what_comes_after_it(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.publish(topic, "before")
    client.create(topic)
    peer.publish(topic, "after")
    assert client.take(topic).body == b"after"


def test_producing_without_a_queue_needs_a_topic_or_a_subscriber(client: Client, peer: Peer) -> None:
    subscribed, published = fresh_topic(), fresh_topic()
    assert client.ask("produce", mq=subscribed).status == 404
    peer.subscribe(subscribed)
    client.produce(subscribed, "heard")
    assert peer.receive().payload == b"heard"
    peer.publish(published)
    assert client.ask("produce", mq=published).status == 200
    for topic in (subscribed, published):
        assert client.ask("consume", mq=topic).status == 404, "there is still no queue"


def test_a_pubsub_queue_hears_mb_under_the_canonical_name(dial: Dial, peer: Peer) -> None:
    subscriber, other, topic = dial(), dial(), fresh_topic()
    subscriber.create(topic, mode=PUBSUB)
    armed = subscriber.arm(topic, topic=topic)
    other.arm(topic, topic="else")
    assert peer.publish(topic, TEXT).payload == SUCCESS
    delivery = subscriber.reply(armed)
    assert (delivery.body, delivery.headers["topic"]) == (TEXT, topic)
    assert other.settled() == []


def test_mb_hears_everything_from_a_pubsub_queue(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    client.create(topic, mode=PUBSUB)
    peer.subscribe(topic)
    client.produce(topic, "filtered", topic="hk")
    client.produce(topic, "bare")
    assert [peer.receive().payload for _ in range(2)] == [b"filtered", b"bare"]


def test_a_queue_with_a_name_that_mb_cannot_spell_stays_on_zbus(client: Client, peer: Peer) -> None:
    peer.subscribe("#")
    mq = client.create("under_score-" + fresh_name())
    client.produce(mq, "x")
    client.take(mq)
    assert not [message for message in peer.settled() if message.payload == b"x"]
    peer.unsubscribe("#")


# ---- an MB request, answered on zbus ---------------------------------------------------------------------------------


def test_a_zbus_service_answers_mb(dial: Dial, mq: str, peer: Peer) -> None:
    service, message_id = dial(), new_uuid()
    armed = service.arm(mq)
    peer.send(f"request:{mq}:1.0.0:{message_id}::{LONG_MS}", TEXT)
    delivery = service.reply(armed)
    assert (delivery.body, delivery.headers["cmd"], delivery.headers["ack"]) == (TEXT, "request", "0")
    service.answer(delivery, b"answer " + TEXT)
    reply = peer.reply(message_id)
    assert (reply.topic, reply.payload) == (mq, b"answer " + TEXT)


def test_many_mb_requests_are_answered_in_any_order(dial: Dial, mq: str, peer: Peer) -> None:
    service = dial()
    service.arm(mq, window="-1", msgid="c")
    ids = [new_uuid() for _ in range(MAX_OUTSTANDING)]
    for number, message_id in enumerate(ids):
        peer.send(f"request:{mq}:1.0.0:{message_id}::{LONG_MS}", str(number))
    for delivery in reversed([service.receive() for _ in ids]):
        service.answer(delivery, b"re: " + delivery.body)
    assert [peer.reply(message_id).payload for message_id in ids] == [b"re: %d" % n for n in range(len(ids))]


def test_an_mb_request_enters_a_queue_only_while_a_consumer_is_connected(dial: Dial, mq: str, peer: Peer) -> None:
    """Nobody there: NO_ROUTE_FOUND at once instead of a deadline, and the queue stays empty."""
    assert code_of(peer, mq) == "NO_ROUTE_FOUND"
    service = dial()
    service.arm(mq)
    service.close()
    wait_until(lambda: code_of(peer, mq, timeout_ms=1) == "NO_ROUTE_FOUND", what="the consumer to be forgotten")
    late = dial()
    late.arm(mq)
    assert [delivery for delivery in late.settled() if delivery.headers["cmd"] == "produce"] == []


def test_a_zbus_service_that_is_too_slow_for_mb(dial: Dial, mq: str, peer: Peer) -> None:
    service = dial()
    armed = service.arm(mq)
    error = peer.ask(mq, timeout_ms=50).json()["error"]
    assert error["code"] == "TIMEOUT"
    assert UUID.fullmatch(error["details"]["targetServiceId"])
    service.answer(service.reply(armed), "too late")
    assert peer.settled() == []


def test_a_zbus_service_that_fails_is_an_error_on_mb(dial: Dial, mq: str, peer: Peer) -> None:
    service = dial()
    for body in (b'{"error":{"code":"BROKEN","message":"m"}}', b"division by zero"):
        armed, message_id = service.arm(mq), new_uuid()
        peer.send(f"request:{mq}:1.0.0:{message_id}::{LONG_MS}")
        service.answer(service.reply(armed), body, reply_code="500")
        error = peer.reply(message_id).json()["error"]
        assert error["code"]
    assert "division by zero" in str(error)


# ---- a zbus request, answered on MB ----------------------------------------------------------------------------------


def test_an_mb_responder_answers_zbus_without_a_queue(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    msgid = client.request(topic, TEXT)
    assert peer.serve_one(b"answer " + TEXT).payload == TEXT
    answer = client.reply(msgid)
    assert (answer.status, answer.body) == (200, b"answer " + TEXT)


def test_a_request_goes_to_one_responder_by_priority(dial: Dial, mq: str, peer: Peer) -> None:
    """A queue with a consumer counts as priority 0, without one not at all."""
    caller, service = dial(), dial()
    peer.subscribe(mq, "request", -1)
    msgid = caller.request(mq, "no consumer")
    peer.serve_one("by mb")
    assert caller.reply(msgid).body == b"by mb"
    armed = service.arm(mq)
    msgid = caller.request(mq, "a consumer")
    service.answer(service.reply(armed), "by zbus")
    assert caller.reply(msgid).body == b"by zbus"
    peer.subscribe(mq, "request", 1)
    service.arm(mq)
    msgid = caller.request(mq, "a better one")
    peer.serve_one("by mb again")
    assert caller.reply(msgid).body == b"by mb again"
    assert service.settled() == []


def test_nobody_there_is_404(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    assert client.ask("request", mq=topic).status == 404
    peer.subscribe(topic)
    assert client.ask("request", mq=topic).status == 404, "a subscriber answers nothing"


def test_too_late_is_504(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    msgid = client.request(topic)
    request = peer.next_request()
    assert client.reply(msgid).status == 504
    peer.answer(request, "too late")
    peer.settled()
    assert client.settled() == []


def test_busy_is_503(client: Client, peer: Peer) -> None:
    """One open request too many turns out the oldest."""
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    msgids = [client.request(topic, str(number)) for number in range(MAX_OUTSTANDING + 1)]
    assert client.reply(msgids[0]).status == 503
    assert {client.reply(msgid).status for msgid in msgids[1:]} == {504}


def test_a_failed_answer_of_mb_is_500(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    msgid = client.request(topic)
    peer.serve_one(b'{"error":{"code":"BROKEN","message":"m"}}')
    answer = client.reply(msgid)
    assert (answer.status, answer.json()["error"]["code"]) == (500, "BROKEN")


def test_a_request_without_ack_to_mb_is_silent(client: Client, peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    client.request(topic, "work", ack="0")
    peer.serve_one("done")
    peer.settled()
    assert client.settled() == []


# ---- the journal -----------------------------------------------------------------------------------------------------


class Play(NamedTuple):
    """The rows that a play left, and what its actors saw."""

    rows: list[Row]
    seen: dict[str, Any]

    def of(self, topic: str, kind: str | None = None) -> list[Row]:
        return [row for row in self.rows if row["topic"] == topic and kind in (None, row["kind"])]

    def one(self, topic: str, kind: str) -> Row:
        (row,) = self.of(topic, kind)
        return row


def read_rows(folder: Path) -> list[Row]:
    return [row for batch in Reader(folder).read(0) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with running_server() as server:
        with dial_server(server) as caller, dial_server(server) as service, connect(server, "tcp") as peer:
            seen: dict[str, Any] = {"caller": "{}:{}".format(*caller.socket.getsockname())}
            seen["service"] = "{}:{}".format(*service.socket.getsockname())
            perform_produce(caller, service, seen)
            perform_requests(caller, service, seen)
            perform_crossings(caller, service, peer, seen)
            service.synchronise()
            caller.synchronise()
        server.stop()
        yield Play(read_rows(server.data), seen)


def perform_produce(caller: Client, service: Client, seen: dict[str, Any]) -> None:
    caller.create("shop.orders", access_token="s3cret")
    keys = {"token": "s3cret", "topic": "hk", "x_shop": "Größe", "encoding": "gbk", "content_type": "a/b"}
    caller.produce("shop.orders", EVERY_BYTE, msgid="p-1", routing_key="k1", **keys)
    caller.produce("shop.orders", "plain", msgid="p-1", mq_reply="box", token="s3cret")
    seen["first"] = service.take("shop.orders", token="s3cret")
    seen["second"] = service.take("shop.orders", token="s3cret")
    assert caller.ask("produce", "refused", mq="shop.orders").status == 403
    assert caller.ask("produce", "unknown", mq="shop.nowhere").status == 404


def perform_requests(caller: Client, service: Client, seen: dict[str, Any]) -> None:
    for mq in ("calc.add", "calc.fail"):
        caller.create(mq)
    caller.request("calc.add", "1+1", msgid="r-1")
    delivery = service.take("calc.add")
    seen["box"] = delivery.headers["mq-reply"]
    service.answer(delivery, "2")
    assert caller.reply("r-1").body == b"2"
    service.answer(delivery, "3")
    service.answer(delivery, "to nothing", msgid="never asked")
    caller.request("calc.fail", "1/0", msgid="r-2")
    service.answer(service.take("calc.fail"), "division by zero", reply_code="500")
    assert caller.reply("r-2").status == 500


def perform_crossings(caller: Client, service: Client, peer: Peer, seen: dict[str, Any]) -> None:
    seen["peer"] = peer.service_id()
    peer.subscribe("cross.to.mb", "request")
    msgid = caller.request("cross.to.mb", "?", msgid="x-1")
    peer.serve_one("!")
    assert caller.reply(msgid).body == b"!"
    caller.create("cross.to.zbus")
    armed, seen["mb id"] = service.arm("cross.to.zbus"), new_uuid()
    peer.send(f"request:cross.to.zbus:1.0.0:{seen['mb id']}", "?")
    service.answer(service.reply(armed), "!")
    assert peer.reply(seen["mb id"]).payload == b"!"


def test_a_produce_is_a_publish_of_wire_zbus(play: Play) -> None:
    first, second = play.of("shop.orders")
    for number, row in enumerate((first, second)):
        assert (row["wire"], row["kind"], row["message_id"], row["offset"]) == ("zbus", "publish", "p-1", number)
        assert (row["answers"], row["error"], row["forwarded_id"]) == (None, None, None)
        assert row["producer"] == play.seen["caller"]
    assert (first["payload"], second["payload"]) == (EVERY_BYTE, b"plain")
    assert first["routing_key"] == "k1"
    assert "gbk" in (first["encoding"], dict(first["attributes"]).get("zbus.encoding"))


def test_the_reply_queue_is_kept(play: Play) -> None:
    first, second = play.of("shop.orders")
    assert first["reply_to"] == play.seen["first"].headers["mq-reply"]
    assert second["reply_to"] == play.seen["second"].headers["mq-reply"] == "box"


def test_unknown_headers_are_attributes(play: Play) -> None:
    attributes = dict(play.of("shop.orders")[0]["attributes"])
    assert attributes["x-shop"] == "Größe"
    assert "hk" in attributes.values(), "the topic key"
    assert "a/b" in [*attributes.values(), play.of("shop.orders")[0]["encoding"]], "the content type"


def test_no_row_holds_a_token(play: Play) -> None:
    messages = [row for row in play.rows if row["kind"] != "control"]
    assert "s3cret" not in str(messages)


def test_a_request_and_its_answer(play: Play) -> None:
    request, (answer, second) = play.one("calc.add", "request"), play.of("calc.add", "response")
    assert (request["wire"], request["message_id"], request["payload"]) == ("zbus", "r-1", b"1+1")
    assert (request["reply_to"], request["offset"]) == (play.seen["box"], 0)
    assert (answer["wire"], answer["message_id"], answer["payload"]) == ("zbus", "r-1", b"2")
    assert (answer["answers"], answer["offset"], answer["error"]) == (request["sequence"], None, None)
    assert answer["producer"] == play.seen["service"]
    assert (second["payload"], second["error"], second["answers"]) == (b"3", "duplicate", request["sequence"])


def test_an_answer_carries_the_hop(play: Play) -> None:
    request, answer = play.one("calc.fail", "request"), play.one("calc.fail", "response")
    hop = answer["hops"][-1]
    assert hop["sid"]
    assert hop["rid"]
    assert hop["mid"] == "r-2"
    times = [moment for moment in hop["tms"] if moment is not None]
    assert len(times) >= 3, "accepted, handed over, answered"
    assert times == sorted(times)
    assert request["time_us"] // 1000 - 100 <= times[0] <= times[-1] <= answer["time_us"] // 1000 + 100


def test_a_failed_answer_keeps_its_status(play: Play) -> None:
    answer = play.one("calc.fail", "response")
    assert (answer["error"], answer["payload"]) == ("500", b"division by zero")


def test_correlation_runs_along_request_and_answer(play: Play) -> None:
    for topic in ("calc.add", "calc.fail", "cross.to.mb", "cross.to.zbus"):
        rows = play.of(topic)
        assert {row["correlation_id"] for row in rows} == {rows[0]["message_id"]}


def test_crossings_keep_the_wire_of_each_side(play: Play) -> None:
    for topic, there, back, message_id in (
        ("cross.to.mb", "zbus", "mb", "x-1"),
        ("cross.to.zbus", "mb", "zbus", play.seen["mb id"]),
    ):
        request, answer = play.one(topic, "request"), play.one(topic, "response")
        assert (request["wire"], answer["wire"]) == (there, back)
        assert (request["message_id"], answer["message_id"]) == (message_id, message_id)
        assert answer["answers"] == request["sequence"]
        assert len(answer["hops"]) == 1
    assert play.one("cross.to.mb", "response")["hops"][0]["rid"] == play.seen["peer"]
    assert play.one("cross.to.zbus", "response")["hops"][0]["sid"] == play.seen["peer"]


def test_what_was_refused_or_answers_nothing_is_not_kept(play: Play) -> None:
    payloads = {row["payload"] for row in play.rows}
    assert payloads.isdisjoint({b"refused", b"unknown", b"to nothing"})
    assert not play.of(play.seen["box"])
