"""MB request and response: who is asked, how the answer finds its way back, and what happens when none comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.rigs.mb_wire import (
    SUCCESS,
    UUID4,
    Join,
    Message,
    Peer,
    Transport,
    assert_error,
    compose,
    connect,
    fresh_topic,
    new_id,
    reply_header,
)
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import I, P

DEFAULT_TIMEOUT_MS = 400
MAX_OUTSTANDING = 40
LONG_MS = 60_000
# Five digits instead of seven: the longest header, and with it the largest frame, is two bytes shorter.
TIMEOUT_MAX_MS = 99_999
HEADER_LIMIT, FRAME_LIMIT = 365, 16_384 + 365


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_BROKER__REQUEST_TIMEOUT_MS=DEFAULT_TIMEOUT_MS,
        RACEWAY_BROKER__REQUEST_TIMEOUT_MAX_MS=TIMEOUT_MAX_MS,
        RACEWAY_BROKER__MAX_OUTSTANDING=MAX_OUTSTANDING,
    ) as server:
        yield server


def unmatched(message_id: str) -> str:
    return f"No matching request found for requestId: {message_id}"


def ask_one(requester: Peer, responder: Peer, topic: str) -> Message:
    """A request as the responder sees it; the answer is still to be given."""
    requester.send(f"request:{topic}:1.0.0:{I}::{LONG_MS}", b"question")
    return responder.next_request()


# ---- the way there ---------------------------------------------------------------------------------------------------


def test_a_request_without_responder_is_refused(peer: Peer) -> None:
    topic = fresh_topic()
    reply = peer.ask(topic, message_id=I)
    assert reply.header == reply_header(topic, I)
    assert_error(reply, "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")


def test_a_request_is_forwarded_as_sent_under_a_masked_id(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    spelled = topic.title()
    requester.send(f"request:{spelled}:4.5.6:{I}:{P}:{LONG_MS}", b"a\nb")
    forwarded = responder.next_request()
    assert forwarded == (f"request:{spelled}:4.5.6:{forwarded.id}", b"a\nb")
    assert UUID4.fullmatch(forwarded.id or "")
    assert forwarded.id != I
    responder.answer(forwarded, b"c\nd")
    assert requester.reply(I) == (reply_header(spelled, I, "4.5.6"), b"c\nd")
    assert responder.settled() == requester.settled() == []


def test_only_the_highest_priority_is_asked(join: Join) -> None:
    topic = fresh_topic()
    low, high, default, requester = join(), join(), join(), join()
    low.subscribe(topic, "request", -3)
    default.subscribe(topic, "request")
    high.subscribe(topic, "request", 0.5)
    for _ in range(20):
        requester.send(f"request:{topic}:1.0.0:{I}")
        high.serve_one(b"high")
        assert requester.reply(I).payload == b"high"
    assert low.settled() == default.settled() == []


def test_a_lower_priority_is_not_asked_even_after_a_timeout(join: Join) -> None:
    topic = fresh_topic()
    low, high, requester = join(), join(), join()
    low.subscribe(topic, "request", 1)
    high.subscribe(topic, "request", 2)
    assert requester.ask(topic, timeout_ms=20).json()["error"]["code"] == "TIMEOUT"
    assert len(high.settled()) == 1
    assert low.settled() == []


def test_subscribing_again_replaces_the_priority(join: Join) -> None:
    topic = fresh_topic()
    first, second, requester = join(), join(), join()
    first.subscribe(topic, "request", 5)
    second.subscribe(topic, "request", 4)
    first.subscribe(topic.upper(), "request", 3)
    requester.send(f"request:{topic}:1.0.0:{I}")
    second.serve_one(b"second")
    assert requester.reply(I).payload == b"second"
    first.subscribe(topic, "request")
    rows = first.ask("system.service.subscriptions").json()["subscriptions"]
    assert rows == [{"action": "request", "topic": topic, "priority": 0}]


def test_the_next_priority_is_asked_once_the_highest_has_left(join: Join) -> None:
    topic = fresh_topic()
    low, high, requester = join(), join(), join()
    low.subscribe(topic, "request", 1)
    high.subscribe(topic, "request", 2)
    high.unsubscribe(topic, "request")
    requester.send(f"request:{topic}:1.0.0:{I}")
    low.serve_one(b"low")
    assert requester.reply(I).payload == b"low"


def test_the_highest_priority_over_all_matching_patterns_counts(join: Join) -> None:
    """One candidate per service, with its best pattern, whether exact or not."""
    topic = fresh_topic()
    start = topic.split(".")[0]
    exact, wild, requester = join(), join(), join()
    exact.subscribe(topic, "request", 5)
    wild.subscribe(f"{start}.+", "request", 1)
    wild.subscribe(f"{start}.#", "request", 6)
    for _ in range(10):
        requester.send(f"request:{topic}:1.0.0:{I}")
        wild.serve_one(b"wild")
        assert requester.reply(I).payload == b"wild"
    assert exact.settled() == []


def test_equals_are_chosen_at_random(join: Join) -> None:
    """One of three has two matching patterns and is still one candidate.

    300 requests, a third each: 100 plus or minus 8; bounds of seven deviations fail once in 10^11 runs.
    """
    topic = fresh_topic()
    responders, requester = [join() for _ in range(3)], join()
    for responder in responders:
        responder.subscribe(topic, "request", 1)
    responders[0].subscribe(f"{topic.split('.')[0]}.+", "request", 1)
    for _ in range(30):
        requester.write_messages(compose(f"request:{topic}:1.0.0:{new_id()}::0") for _ in range(10))
        assert [requester.receive().action for _ in range(10)] == ["response"] * 10
    shares = [len(responder.settled()) for responder in responders]
    assert sum(shares) == 300
    assert all(45 <= share <= 160 for share in shares), shares


def test_the_requester_itself_may_be_asked(peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic, "request")
    forwarded = ask_one(peer, peer, topic)
    assert forwarded.id != I
    peer.answer(forwarded, b"myself")
    assert peer.reply(I) == (reply_header(topic, I), b"myself")


# ---- the way back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"\n", b'{"error":{"code":"X","message":"no"}}', b"error:{}", "ä".encode()])
def test_an_answer_is_passed_on_unchanged(join: Join, payload: bytes) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    responder.answer(ask_one(requester, responder, topic), payload)
    assert requester.reply(I) == (reply_header(topic, I), payload)


@pytest.mark.parametrize(
    "form",
    [
        "response:{topic}:1.0.0:{masked}",
        "response:{topic}:1.0.0:{masked}:{masked}",
        "response:{topic}:1.0.0:{masked}:{other}",
        "response:{topic}:1.0.0:{other}:{masked}",
        "response:{topic}:1.0.0::{masked}",
        "RESPONSE:Quite.Another.Topic:9.9.9:{masked}",
        "response:{topic}:1.0.0:{upper}",
        "response:{topic}:1.0.0:{other}:{upper}",
    ],
)
def test_an_answer_is_matched_by_id_else_by_parent(join: Join, form: str) -> None:
    """Both forms are read; topic and version are not compared, ids in either case."""
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    masked = ask_one(requester, responder, topic).id or ""
    responder.send(form.format(topic=topic, masked=masked, upper=masked.upper(), other=new_id()), b"answer")
    assert requester.reply(I) == (reply_header(topic, I), b"answer")
    assert responder.settled() == []


def test_the_requesters_spelling_of_its_id_is_kept(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    requester.send(f"request:{topic}:1.0.0:{I.upper()}")
    responder.serve_one(b"x")
    assert requester.receive().header == reply_header(topic, I.upper())


@pytest.mark.parametrize("parent", ["", f":{P}"])
def test_an_answer_to_nothing_is_refused_to_its_sender(peer: Peer, parent: str) -> None:
    message_id = new_id()
    peer.send(f"response:some.topic:1.2.3:{message_id}{parent}")
    reply = peer.receive()
    assert reply.header == reply_header("some.topic", message_id, "1.2.3")
    assert_error(reply, "INVALID_REQUEST_ID", unmatched(message_id))


def test_an_answer_without_id_is_refused(peer: Peer) -> None:
    peer.send("response:some.topic:1.0.0")
    reply = peer.receive()
    assert_error(reply, "INVALID_REQUEST_ID", "Received response message without requestId.")
    assert reply.header == f"response:some.topic:1.0.0:{reply.id}"


def test_a_second_answer_is_refused(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    forwarded = ask_one(requester, responder, topic)
    responder.answer(forwarded, b"first")
    responder.answer(forwarded, b"second")
    assert_error(responder.receive(), "INVALID_REQUEST_ID", unmatched(forwarded.id or ""))
    assert [message.payload for message in requester.settled()] == [b"first"]


def test_a_late_answer_is_refused(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    assert requester.ask(topic, timeout_ms=10).json()["error"]["code"] == "TIMEOUT"
    forwarded = responder.serve_one(b"late")
    assert_error(responder.receive(), "INVALID_REQUEST_ID", unmatched(forwarded.id or ""))
    assert requester.settled() == []


def test_an_answer_by_another_service_is_refused_and_disturbs_nothing(join: Join) -> None:
    responder, requester, stranger = join(), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    forwarded = ask_one(requester, responder, topic)
    for message_id in (forwarded.id or "", I):
        stranger.send(f"response:{topic}:1.0.0:{message_id}", b"forged")
        assert_error(stranger.receive(), "INVALID_REQUEST_ID", unmatched(message_id))
    stranger.send(f"response:{topic}:1.0.0:{P.replace('-12d3-', '-42d3-')}:{forwarded.id}", b"forged by parent")
    assert stranger.receive().json()["error"]["code"] == "INVALID_REQUEST_ID"
    responder.answer(forwarded, b"true")
    assert requester.reply(I).payload == b"true"
    assert requester.settled() == []


def test_a_responder_does_not_learn_and_cannot_use_the_original_id(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    forwarded = ask_one(requester, responder, topic)
    responder.send(f"response:{topic}:1.0.0:{I}", b"by the original id")
    assert_error(responder.receive(), "INVALID_REQUEST_ID", unmatched(I))
    responder.answer(forwarded)
    requester.reply(I)


def test_an_id_may_be_used_again_while_it_is_pending(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    requests = [ask_one(requester, responder, topic) for _ in range(3)]
    assert len({request.id for request in requests}) == 3
    for number, request in enumerate(reversed(requests)):
        responder.answer(request, str(number))
    assert [requester.reply(I).payload for _ in requests] == [b"0", b"1", b"2"]
    assert requester.settled() == []


def test_two_requesters_may_use_the_same_id(join: Join) -> None:
    responder, one, two = join(), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    for_one, for_two = ask_one(one, responder, topic), ask_one(two, responder, topic)
    responder.answer(for_two, b"two")
    responder.answer(for_one, b"one")
    assert (one.reply(I).payload, two.reply(I).payload) == (b"one", b"two")


def test_many_requests_in_flight_each_get_their_own_answer(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    ids = [new_id() for _ in range(MAX_OUTSTANDING)]
    requester.write_messages(compose(f"request:{topic}:1.0.0:{i}::{LONG_MS}", i) for i in ids)
    requests = [responder.next_request() for _ in ids]
    assert [request.payload.decode() for request in requests] == ids
    for request in reversed(requests):
        responder.answer(request, request.payload)
    assert all(requester.reply(i).payload == i.encode() for i in ids)


# ---- no answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, 1, 150])
def test_a_request_times_out_after_the_time_its_header_names(join: Join, timeout_ms: int) -> None:
    """0 expires at once, after the request has been forwarded."""
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    target = responder.service_id()
    began = time.monotonic()
    reply = requester.ask(topic, timeout_ms=timeout_ms, message_id=I)
    took_ms = (time.monotonic() - began) * 1000
    assert reply.header == reply_header(topic, I)
    assert_error(reply, "TIMEOUT", "Request timed out", {"targetServiceId": target})
    assert timeout_ms <= took_ms < timeout_ms + 1500
    assert [message.action for message in responder.settled()] == ["request"]


def test_a_request_without_timeout_has_the_configured_one(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    began = time.monotonic()
    assert requester.ask(topic).json()["error"]["code"] == "TIMEOUT"
    assert DEFAULT_TIMEOUT_MS <= (time.monotonic() - began) * 1000 < DEFAULT_TIMEOUT_MS + 1500


def test_timeouts_fire_in_the_order_of_their_deadlines(join: Join) -> None:
    responder, requester = join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    by_timeout = {timeout_ms: new_id() for timeout_ms in (600, 0, 300)}
    for timeout_ms, message_id in by_timeout.items():
        requester.send(f"request:{topic}:1.0.0:{message_id}::{timeout_ms}")
    assert [requester.receive().id for _ in by_timeout] == [by_timeout[timeout] for timeout in (0, 300, 600)]


def test_the_answer_to_a_requester_that_left_is_dropped_without_an_error(
    server: Server, transport: Transport, join: Join
) -> None:
    responder = join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    with connect(server, transport) as requester:
        gone = requester.service_id()
        forwarded = ask_one(requester, responder, topic)
    wait_until(lambda: gone not in responder.ask("system.service.list").payload.decode())
    responder.answer(forwarded)
    assert responder.settled() == []


def test_a_request_to_a_responder_that_left_waits_for_its_timeout(
    server: Server, transport: Transport, join: Join
) -> None:
    requester = join()
    topic = fresh_topic()
    began = time.monotonic()
    with connect(server, transport) as responder:
        target = responder.service_id()
        responder.subscribe(topic, "request")
        requester.send(f"request:{topic}:1.0.0:{I}::300")
        responder.next_request()
    assert_error(requester.reply(I), "TIMEOUT", "Request timed out", {"targetServiceId": target})
    assert time.monotonic() - began >= 0.3


def test_the_configured_longest_timeout_limits_timeouts_headers_and_frames(join: Join) -> None:
    peer = join()
    assert peer.ask(fresh_topic(), timeout_ms=TIMEOUT_MAX_MS).json()["error"]["code"] == "NO_ROUTE_FOUND"
    peer.send(f"request:a.b:1.0.0:{I}::{TIMEOUT_MAX_MS + 1}")
    assert_error(peer.receive(), "MALFORMED_MESSAGE", "Invalid timeout value", {"timeout": TIMEOUT_MAX_MS + 1})
    text = "Invalid message format: no newline separator found within the maximum header length of"
    peer.write_messages([b"x" * FRAME_LIMIT])
    assert_error(peer.receive(), "MALFORMED_MESSAGE", f"{text} {HEADER_LIMIT} bytes")
    peer.write_messages([b"x" * (FRAME_LIMIT + 1)])
    messages, _ = peer.until_closed()
    assert messages == []


def test_an_eviction_is_logged_as_a_warning(join: Join) -> None:
    watcher, responder, requester = join(), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    assert watcher.ask("system.log.subscribe", {"levels": ["warn"]}).payload == SUCCESS
    ids = [new_id() for _ in range(MAX_OUTSTANDING + 1)]
    requester.write_messages(compose(f"request:{topic}:1.0.0:{i}::{LONG_MS}") for i in ids)
    assert_error(requester.reply(ids[0]), "SERVICE_UNAVAILABLE", "Message broker is busy")
    (record,) = [message.json() for message in watcher.settled()]
    assert record["level"] == "warn"
    assert "Message broker is busy" in record["message"]
    for _ in ids:
        responder.serve_one()
    responder.settled()
    requester.settled()


def test_one_request_too_many_evicts_the_oldest(join: Join) -> None:
    """The evicted requester is told under its own request id."""
    responder, first, second = join(), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    oldest = ask_one(first, responder, topic)
    for _ in range(MAX_OUTSTANDING - 1):
        second.send(f"request:{topic}:1.0.0:{new_id()}::{LONG_MS}")
    others = [responder.next_request() for _ in range(MAX_OUTSTANDING - 1)]
    assert first.settled() == second.settled() == []
    second.send(f"request:{topic}:1.0.0:{I}::{LONG_MS}")
    newest = responder.next_request()
    evicted = first.reply(I)
    assert evicted.header == reply_header(topic, I)
    assert_error(evicted, "SERVICE_UNAVAILABLE", "Message broker is busy")
    responder.answer(oldest)
    assert_error(responder.receive(), "INVALID_REQUEST_ID", unmatched(oldest.id or ""))
    for request in (*others, newest):
        responder.answer(request)
    assert responder.settled() == []
    assert sum(message.payload == b"{}" for message in second.settled()) == MAX_OUTSTANDING
    assert first.settled() == []


def test_a_chain_of_requests_keeps_every_conversation_apart(join: Join) -> None:
    """A service that asks another while it is being asked names the masked id as parent."""
    front, middle, back = join(), join(), join()
    first, second = fresh_topic(), fresh_topic()
    middle.subscribe(first, "request")
    back.subscribe(second, "request")
    outer = ask_one(front, middle, first)
    middle.send(f"request:{second}:1.0.0:{I}:{outer.id}:{LONG_MS}", b"inner question")
    inner = back.serve_one(b"inner answer")
    assert inner.fields[4:] == []
    assert middle.reply(I) == (reply_header(second, I), b"inner answer")
    middle.answer(outer, b"outer answer")
    assert front.reply(I) == (reply_header(first, I), b"outer answer")
    assert front.settled() == middle.settled() == back.settled() == []
