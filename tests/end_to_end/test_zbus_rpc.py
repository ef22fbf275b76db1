"""zbus requests: services, answers that find their way back, and everyone who leaves in between."""

from __future__ import annotations

import random

import pytest

from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import (
    EVERY_BYTE,
    UUID,
    Client,
    Dial,
    Message,
    broker_address,
    compose,
    dial_server,
    fresh_name,
    new_id,
    zbus_port,
)

LARGE = b"large" * (1 << 20)


def ask_and_take(caller: Client, service: Client, mq: str, body: bytes | str = b"?", **keys: str) -> Message:
    """A request as the service sees it; the answer is still to be given."""
    caller.request(mq, body, **keys)
    return service.take(mq)


# ---- there and back --------------------------------------------------------------------------------------------------


def test_a_thousand_requests_open_on_one_connection_answered_in_random_order(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    questions = {f"r-{number}": f"question {number}" for number in range(1000)}
    caller.write(
        b"".join(compose({"cmd": "request", "mq": mq, "msgid": i}, question) for i, question in questions.items())
    )
    service.send("consume", mq=mq, msgid="c", window="-1")
    deliveries = [service.receive() for _ in questions]
    assert [delivery.raw_id for delivery in deliveries] == list(questions)
    random.Random(1).shuffle(deliveries)
    reply_queue = deliveries[0].headers["mq-reply"]
    service.write(
        b"".join(
            compose({"cmd": "produce", "mq": reply_queue, "msgid": str(d.raw_id), "ack": "0"}, b"re: " + d.body)
            for d in deliveries
        )
    )
    answers = [caller.receive() for _ in deliveries]
    assert [answer.msgid for answer in answers] == [delivery.raw_id for delivery in deliveries]
    assert all(answer.body == f"re: {questions[str(answer.msgid)]}".encode() for answer in answers)
    assert caller.settled() == service.settled() == []


def test_a_service_sees_what_it_needs_to_answer(dial: Dial, mq: str, server: Server) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, EVERY_BYTE, msgid="r-1", x_user="anna", encoding="raw")
    headers = delivery.headers
    assert delivery.body == EVERY_BYTE
    assert (headers["cmd"], headers["ack"], headers["mq"]) == ("request", "0", mq)
    assert (headers["msgid-raw"], headers["msgid_raw"]) == ("r-1", "r-1")
    assert headers["mq-reply"] == headers["mq_reply"]
    assert UUID.fullmatch(headers["mq-reply"])
    assert headers["broker"] == broker_address(server)
    assert (headers["x-user"], headers["encoding"]) == ("anna", "raw")
    assert headers["remote-addr"] == "{}:{}".format(*caller.socket.getsockname())


def test_an_answer_arrives_whole_with_the_services_headers(dial: Dial, mq: str, server: Server) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r-1")
    service.answer(delivery, EVERY_BYTE, x_took="5 ms", content_type="x/y", encoding="raw")
    answer = caller.reply("r-1")
    assert (answer.first, answer.body) == ("HTTP/1.1 200 OK", EVERY_BYTE)
    assert (answer.headers["x-took"], answer.headers["content-type"]) == ("5 ms", "x/y")
    assert answer.headers["broker"] == broker_address(server)


def test_two_callers_may_use_the_same_id(dial: Dial, mq: str) -> None:
    """An answer is matched by reply queue and id."""
    one, two, service = dial(), dial(), dial()
    first = ask_and_take(one, service, mq, "one", msgid="same")
    second = ask_and_take(two, service, mq, "two", msgid="same")
    service.answer(second, "for two")
    service.answer(first, "for one")
    assert (one.reply("same").body, two.reply("same").body) == (b"for one", b"for two")


def test_two_callers_may_name_the_same_reply_queue(dial: Dial, mq: str) -> None:
    one, two, service, box = dial(), dial(), dial(), fresh_name()
    first = ask_and_take(one, service, mq, msgid="of one", mq_reply=box)
    second = ask_and_take(two, service, mq, msgid="of two", mq_reply=box)
    service.answer(second, "for two")
    service.answer(first, "for one")
    assert (one.reply("of one").body, two.reply("of two").body) == (b"for one", b"for two")


def test_a_connection_may_serve_itself(client: Client, mq: str) -> None:
    armed = client.arm(mq)
    msgid = client.request(mq, "?")
    client.answer(client.reply(armed), "!")
    assert client.reply(msgid).body == b"!"


def test_a_request_waits_for_a_service(dial: Dial, mq: str) -> None:
    caller = dial()
    msgid = caller.request(mq, "patience")
    assert caller.settled() == []
    service = dial()
    service.answer(service.take(mq), "rewarded")
    assert caller.reply(msgid).body == b"rewarded"


def test_requests_are_spread_over_waiting_services(dial: Dial, mq: str) -> None:
    caller, services = dial(), [dial() for _ in range(3)]
    armed = [service.arm(mq) for service in services]
    msgids = [caller.request(mq, str(number)) for number in range(3)]
    for number, (service, consume) in enumerate(zip(services, armed, strict=True)):
        delivery = service.reply(consume)
        assert delivery.body == b"%d" % number
        service.answer(delivery, b"by %d" % number)
    assert [caller.reply(msgid).body for msgid in msgids] == [b"by 0", b"by 1", b"by 2"]


def test_produced_and_requested_messages_share_the_queue_in_order(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    caller.send("produce", "1", mq=mq, ack="0")
    caller.request(mq, "2")
    caller.send("produce", "3", mq=mq, ack="0")
    seen = [(delivery.body, delivery.headers["cmd"]) for delivery in (service.take(mq) for _ in range(3))]
    assert seen == [(b"1", "produce"), (b"2", "request"), (b"3", "produce")]


def test_an_answer_with_ack_is_acknowledged(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq)
    service.answer(delivery, "x", ack="1")
    assert service.reply(str(delivery.raw_id)).status == 200


# ---- status ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 201, 299, 302, 400, 404, 418, 500, 503, 504, 599])
def test_a_services_status_reaches_the_caller(dial: Dial, mq: str, code: int) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="by code")
    service.answer(delivery, "why", reply_code=str(code))
    assert (caller.reply("by code").status, delivery.status) == (code, 200)
    delivery = ask_and_take(caller, service, mq, msgid="by line")
    keys = {"cmd": "produce", "mq": delivery.headers["mq-reply"], "msgid": "by line", "ack": "0"}
    service.write(compose(keys, "why", f"HTTP/1.1 {code} Because"))
    answer = caller.reply("by line")
    assert (answer.status, answer.body) == (code, b"why")


@pytest.mark.parametrize("code", ["", "x", "0", "99", "1000", "100", "-200", "2e2", "200 OK", "²00"])
def test_a_status_that_is_none_does_not_break_the_reply(dial: Dial, mq: str, code: str) -> None:
    """Refused or replaced: the caller gets a message that can be read, or the service is told."""
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r")
    service.answer(delivery, "body", reply_code=code, ack="1")
    told = service.reply("r")
    assert told.status in (200, 400)
    if told.status == 200:
        answer = caller.reply("r")
        assert 200 <= answer.status <= 599
        assert answer.body == b"body"


def test_a_reply_code_on_a_produced_message_is_the_status_of_its_delivery(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    producer.produce(mq, "x", reply_code="207")
    assert consumer.take(mq).status == 207


# ---- nobody there ----------------------------------------------------------------------------------------------------


def test_a_request_to_a_queue_that_is_not_there(client: Client) -> None:
    assert client.ask("request", mq=fresh_name()).status == 404


def test_a_request_with_the_wrong_token(client: Client) -> None:
    mq = client.create(access_token="open")
    assert client.ask("request", mq=mq, token="close").status == 403


def test_a_request_without_ack_is_served_in_silence(dial: Dial, mq: str) -> None:
    """Neither refusals nor answers; and the answer is nobody's."""
    caller, service = dial(), dial()
    caller.request(fresh_name(), ack="0")
    delivery = ask_and_take(caller, service, mq, "work", ack="0")
    assert (delivery.headers["cmd"], delivery.body) == ("request", b"work")
    service.answer(delivery, "done")
    service.synchronise()
    assert caller.settled() == []


# ---- a service that dies ---------------------------------------------------------------------------------------------


def test_a_service_that_dies_with_a_request_in_hand(dial: Dial, mq: str) -> None:
    """It was delivered, so it is gone: the caller hears nothing of it, and the next request is served."""
    caller, dying, heir = dial(), dial(), dial()
    ask_and_take(caller, dying, mq, "lost", msgid="r-1")
    dying.reset()
    armed = heir.arm(mq)
    assert caller.settled() == heir.settled() == []
    caller.request(mq, "next", msgid="r-2")
    heir.answer(heir.reply(armed), "served")
    assert [(answer.msgid, answer.body) for answer in [caller.receive()]] == [("r-2", b"served")]


def test_a_request_that_was_not_wholly_sent_is_served_by_the_next(dial: Dial, mq: str, server: Server) -> None:
    caller, heir = dial(), dial()
    dying = Client(zbus_port(server), receive_buffer=4096)
    dying.arm(mq)
    caller.request(mq, LARGE, msgid="r-1")
    caller.synchronise()
    dying.socket.recv(100)
    dying.reset()
    delivery = heir.take(mq)
    assert (delivery.body, delivery.raw_id, delivery.headers["cmd"]) == (LARGE, "r-1", "request")
    heir.answer(delivery, "served")
    assert caller.reply("r-1").body == b"served"


def test_another_service_may_answer_with_what_it_was_handed(dial: Dial, mq: str) -> None:
    """Two workers of one queue: whoever was handed the reply queue once may answer into it."""
    caller, one, two = dial(), dial(), dial()
    first = ask_and_take(caller, one, mq, msgid="r-1")
    second = ask_and_take(caller, two, mq, msgid="r-2")
    two.answer(first, "by two")
    one.answer(second, "by one")
    assert (caller.reply("r-1").body, caller.reply("r-2").body) == (b"by two", b"by one")


# ---- a caller that goes away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", ["", "a box"])
def test_the_reply_queue_goes_with_its_caller(dial: Dial, mq: str, box: str) -> None:
    caller, service = dial(), dial()
    named = {"mq_reply": fresh_name()} if box else {}
    delivery = ask_and_take(caller, service, mq, **named)
    caller.close()
    probe = {"mq": delivery.headers["mq-reply"]}
    wait_until(lambda: service.ask("produce", msgid=new_id(), **probe).status == 404, what="the reply queue to go")
    service.answer(delivery, "too late", ack="1")
    assert service.reply(str(delivery.raw_id)).status == 404
    service.answer(delivery, "too late", ack="0")
    assert service.settled() == []


def test_a_caller_that_goes_away_disturbs_nobody(dial: Dial, mq: str) -> None:
    staying, service = dial(), dial()
    for number in range(5):
        leaving = dial()
        abandoned = ask_and_take(leaving, service, mq, "abandoned")
        delivery = ask_and_take(staying, service, mq, "kept", msgid=f"r-{number}")
        leaving.reset()
        service.answer(abandoned, "x")
        service.answer(delivery, "y")
        assert staying.reply(f"r-{number}").body == b"y"
    assert service.settled() == []


def test_a_request_of_a_caller_that_has_gone_is_still_delivered(dial: Dial, mq: str) -> None:
    """It is in the queue; nobody takes it out again."""
    caller, service = dial(), dial()
    caller.request(mq, "last will")
    caller.synchronise()
    caller.close()
    assert service.take(mq).body == b"last will"


def test_a_request_waits_over_a_restart_and_its_caller_does_not() -> None:
    with running_server() as server:
        with dial_server(server) as caller:
            mq = caller.create()
            caller.request(mq, "last will", msgid="r-1", x_user="anna")
            caller.synchronise()
        server.restart()
        with dial_server(server) as service:
            delivery = service.take(mq)
            assert (delivery.body, delivery.raw_id, delivery.headers["cmd"]) == (b"last will", "r-1", "request")
            assert delivery.headers["x-user"] == "anna"
            service.answer(delivery, "too late", ack="1")
            assert service.reply("r-1").status == 404


# ---- answers nobody waits for ----------------------------------------------------------------------------------------


def test_an_answer_nobody_waits_for_is_fetched_by_its_id(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r-1")
    box = delivery.headers["mq-reply"]
    service.answer(delivery, "for later", msgid="other-1")
    service.answer(delivery, "for much later", msgid="other-2")
    service.answer(delivery, "now")
    assert caller.reply("r-1").body == b"now"
    assert caller.settled() == []
    for msgid, body in (("other-2", b"for much later"), ("other-1", b"for later")):
        caller.send("consume", mq=box, msgid=msgid)
        assert caller.reply(msgid).body == body


def test_a_second_answer_is_not_pushed_but_can_be_fetched(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r-1")
    service.answer(delivery, "first")
    service.answer(delivery, "second")
    service.synchronise()
    assert [answer.body for answer in caller.settled()] == [b"first"]
    caller.send("consume", mq=delivery.headers["mq-reply"], msgid="r-1")
    assert caller.reply("r-1").body == b"second"


# ---- answers by strangers --------------------------------------------------------------------------------------------


def test_a_guessed_reply_queue_is_forbidden(dial: Dial, mq: str) -> None:
    """Nobody but those to whom a reply queue was handed may answer into it."""
    caller, service, stranger = dial(), dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r-1")
    box = delivery.headers["mq-reply"]
    for msgid in ("r-1", "r-2"):
        assert stranger.ask("produce", "forged", mq=box, msgid=msgid).status == 403
    stranger.send("produce", "forged", mq=box, msgid="r-1", ack="0")
    assert stranger.settled() == []
    service.answer(delivery, "genuine")
    service.synchronise()
    assert [answer.body for answer in caller.settled()] == [b"genuine"]


def test_a_named_reply_queue_is_no_weaker(dial: Dial, mq: str) -> None:
    caller, service, stranger, box = dial(), dial(), dial(), fresh_name()
    delivery = ask_and_take(caller, service, mq, msgid="r-1", mq_reply=box)
    assert stranger.ask("produce", "forged", mq=box, msgid="r-1").status == 403
    service.answer(delivery, "genuine")
    assert caller.reply("r-1").body == b"genuine"


def test_a_stranger_cannot_fetch_an_answer(dial: Dial, mq: str) -> None:
    caller, service, stranger = dial(), dial(), dial()
    delivery = ask_and_take(caller, service, mq, msgid="r-1")
    box = delivery.headers["mq-reply"]
    service.answer(delivery, "private", msgid="other")
    service.synchronise()
    assert stranger.ask("consume", mq=box, msgid="other").status in (403, 404)
    assert caller.ask("consume", mq=box, msgid="other").body == b"private"


def test_a_stranger_cannot_answer_through_an_ordinary_queue(dial: Dial, mq: str) -> None:
    """The queue is open to all, but an open request is answered only by those to whom it was handed."""
    caller, service, stranger = dial(), dial(), dial()
    box = caller.create()
    delivery = ask_and_take(caller, service, mq, msgid="r-1", mq_reply=box)
    assert stranger.ask("produce", "forged", mq=box, msgid="r-1").status in (200, 403)
    service.answer(delivery, "genuine")
    assert caller.reply("r-1").body == b"genuine"


def test_a_wrong_token_does_not_reach_a_guarded_service(dial: Dial) -> None:
    owner, service, stranger = dial(), dial(), dial()
    mq = owner.create(access_token="open")
    armed = service.arm(mq, token="open")
    assert stranger.ask("request", mq=mq, token="guess").status == 403
    msgid = stranger.request(mq, "?", token="open")
    service.answer(service.reply(armed), "!")
    assert stranger.reply(msgid).body == b"!"
