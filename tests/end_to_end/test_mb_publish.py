"""MB publish: who gets a copy, under which id, when the publisher is told; and which patterns match which topics."""

from __future__ import annotations

import pytest

from tests.rigs.mb_wire import (
    SUCCESS,
    UUID4,
    Join,
    Peer,
    Transport,
    assert_error,
    compose,
    connect,
    fresh_topic,
    new_id,
    reply_header,
)
from tests.rigs.server import Server
from tests.rigs.vectors.mb import VECTORS, I, P


def test_a_publish_without_subscriber_is_reported_with_or_without_an_id(peer: Peer) -> None:
    topic = fresh_topic()
    with_id = peer.publish(topic)
    assert with_id.header.startswith(f"response:{topic}:1.0.0:")
    assert_error(with_id, "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")
    peer.send(f"publish:{topic}:1.0.0")
    without_id = peer.receive()
    assert_error(without_id, "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")
    assert without_id.header == f"response:{topic}:1.0.0:{without_id.id}"


def test_a_copy_has_the_topic_as_sent_the_version_and_a_masked_id(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic.upper())
    spelled = topic.title()
    publisher.send(f"publish:{spelled}:3.2.1:{I}:{P}", b"payload")
    assert publisher.reply(I).header == reply_header(spelled, I, "3.2.1")
    (copy,) = subscriber.settled()
    assert copy == (f"publish:{spelled}:3.2.1:{copy.id}", b"payload")
    assert UUID4.fullmatch(copy.id or "")
    assert copy.id != I


def test_all_copies_of_one_publish_share_one_masked_id(join: Join) -> None:
    subscribers, publisher = [join() for _ in range(5)], join()
    topic = fresh_topic()
    for subscriber in subscribers:
        subscriber.subscribe(topic)
    seen = set()
    for _ in range(3):
        assert publisher.publish(topic).payload == SUCCESS
        (masked,) = {subscriber.receive().id for subscriber in subscribers}
        seen.add(masked)
    assert len(seen) == 3
    assert all(subscriber.settled() == [] for subscriber in subscribers)


def test_a_publish_without_id_is_delivered_under_an_id_and_never_acknowledged(join: Join) -> None:
    """Without an id there is no success reply."""
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    publisher.send(f"publish:{topic}:1.0.0", b"x")
    assert UUID4.fullmatch(subscriber.receive().id or "")
    assert publisher.settled() == []


def test_a_publisher_that_subscribed_reads_its_copy_before_the_acknowledgement(peer: Peer) -> None:
    topic = fresh_topic()
    peer.subscribe(topic)
    for number in range(50):
        peer.send(f"publish:{topic}:1.0.0:{I}", str(number))
        copy, acknowledgement = peer.receive(), peer.receive()
        assert (copy.action, copy.payload) == ("publish", str(number).encode())
        assert acknowledgement == (reply_header(topic, I), SUCCESS)


def test_every_matching_pattern_together_make_one_copy(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic(3)
    start = topic.split(".")[0]
    patterns = (topic, f"{start}.+.c", f"{start}.#", f"{start}.b.+", "#", "+.#", "+.b.c")
    for pattern in patterns:
        subscriber.subscribe(pattern)
    assert publisher.publish(topic).payload == SUCCESS
    assert [message.topic for message in subscriber.settled()] == [topic]
    for pattern in patterns:
        subscriber.unsubscribe(pattern)


def test_a_repeated_subscription_is_one_entry(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    subscriber.subscribe(topic.upper())
    assert publisher.publish(topic).payload == SUCCESS
    assert len(subscriber.settled()) == 1
    subscriber.unsubscribe(topic)
    assert publisher.publish(topic).json()["error"]["code"] == "NO_ROUTE_FOUND"


def test_request_subscribers_get_no_publish_and_publish_subscribers_no_request(join: Join) -> None:
    subscriber, responder, sender = join(), join(), join()
    published, requested = fresh_topic(), fresh_topic()
    subscriber.subscribe(requested, "publish")
    responder.subscribe(published, "request")
    assert sender.publish(published).json()["error"]["code"] == "NO_ROUTE_FOUND"
    assert sender.ask(requested).json()["error"]["code"] == "NO_ROUTE_FOUND"
    assert subscriber.settled() == responder.settled() == []


def test_order_is_kept_per_publisher_and_acknowledgements_come_in_message_order(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    ids = [new_id() for _ in range(1000)]
    publisher.write_messages(compose(f"publish:{topic}:1.0.0:{i}", str(n)) for n, i in enumerate(ids))
    assert [publisher.receive() for _ in ids] == [(reply_header(topic, i), SUCCESS) for i in ids]
    assert [subscriber.receive().payload for _ in ids] == [str(n).encode() for n in range(1000)]


def test_topics_and_versions_may_change_from_message_to_message_in_one_write(join: Join) -> None:
    subscriber, publisher = join(), join()
    start = fresh_topic(1)
    subscriber.subscribe(f"{start}.#")
    sent = [(f"{start}.t{n % 3}", f"1.{n % 2}.0", str(n).encode()) for n in range(60)]
    publisher.write_messages(compose(f"publish:{t}:{v}:{new_id()}", payload) for t, v, payload in sent)
    received = [subscriber.receive() for _ in sent]
    assert [(m.topic, m.fields[2], m.payload) for m in received] == sent
    assert [(m.topic, m.payload) for m in (publisher.receive() for _ in sent)] == [(t, SUCCESS) for t, _, _ in sent]


def test_mixed_good_and_bad_messages_in_one_write_are_each_answered(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic, nobody = fresh_topic(), fresh_topic()
    subscriber.subscribe(topic)
    ids = [new_id() for _ in range(4)]
    publisher.write_messages(
        [
            compose(f"publish:{topic}:1.0.0:{ids[0]}"),
            compose(f"publish:{nobody}:1.0.0:{ids[1]}"),
            compose(f"publish:not_valid:1.0.0:{ids[2]}"),
            compose(f"publish:{topic}:1.0.0:{ids[3]}"),
        ]
    )
    answers = {message.id: message for message in (publisher.receive() for _ in ids)}
    assert answers[ids[0]].payload == answers[ids[3]].payload == SUCCESS
    assert answers[ids[1]].json()["error"]["code"] == "NO_ROUTE_FOUND"
    assert answers[ids[2]].json()["error"]["code"] == "MALFORMED_MESSAGE"
    assert len(subscriber.settled()) == 2


@pytest.mark.parametrize("topic", ["raceway.rejected", "Raceway.Anything"])
def test_the_brokers_own_names_cannot_be_published_to(peer: Peer, topic: str) -> None:
    reply = peer.publish(topic)
    assert reply.json()["error"]["code"] == "INVALID_REQUEST"


def test_the_bare_word_system_is_an_ordinary_topic(join: Join) -> None:
    subscriber, publisher = join(), join()
    subscriber.subscribe("system")
    assert publisher.publish("System").payload == SUCCESS
    assert subscriber.receive().topic == "System"


def test_a_service_that_comes_back_is_a_new_one_without_subscriptions(server: Server, transport: Transport) -> None:
    topic = fresh_topic()
    with connect(server, transport) as first:
        first.subscribe(topic)
        gone = first.service_id()
    with connect(server, transport) as again:
        assert again.service_id() != gone
        assert again.ask("system.service.subscriptions").json() == {"subscriptions": []}


# ---- patterns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    # Nobody may publish under `system.`; those two vectors are proven with the matcher itself.
    [vector for vector in VECTORS["matches"] if not vector[1].startswith("system.")],
)
def test_match_vectors_decide_who_is_sent_a_copy(peer: Peer, pattern: str, topic: str, matches: bool) -> None:
    """Wildcards are supported."""
    peer.subscribe(pattern)
    peer.send(f"publish:{topic}:1.0.0:{I}")
    first = peer.receive()
    if matches:
        assert (first.action, first.topic) == ("publish", topic)
        assert peer.receive().payload == SUCCESS
    else:
        assert_error(first, "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")
    peer.unsubscribe(pattern)


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [vector for vector in VECTORS["matches"] if not vector[1].startswith("system.")],
)
def test_match_vectors_decide_who_is_asked(peer: Peer, pattern: str, topic: str, matches: bool) -> None:
    peer.subscribe(pattern, "request")
    peer.send(f"request:{topic}:1.0.0:{I}::60000")
    first = peer.receive()
    if matches:
        assert (first.action, first.topic) == ("request", topic)
        peer.answer(first, b"me")
        assert peer.reply(I).payload == b"me"
    else:
        assert_error(first, "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")
    peer.unsubscribe(pattern, "request")


@pytest.mark.parametrize("pattern", VECTORS["patterns_ok"])
def test_good_patterns_can_be_subscribed_and_unsubscribed(peer: Peer, pattern: str) -> None:
    peer.subscribe(pattern)
    rows = peer.ask("system.service.subscriptions").json()["subscriptions"]
    assert rows == [{"action": "publish", "topic": pattern}]
    peer.unsubscribe(pattern)
    assert peer.ask("system.service.subscriptions").json() == {"subscriptions": []}


@pytest.mark.parametrize("pattern", [*VECTORS["patterns_bad"], "*", ">", "a.+b", "a\n.b", "#\n", "a" * 256, "é.+"])
def test_bad_patterns_are_refused(peer: Peer, pattern: str) -> None:
    reply = peer.ask("system.topic.subscribe", {"action": "publish", "topic": pattern})
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid topic", {"topic": pattern})
    reply = peer.ask("system.topic.unsubscribe", {"action": "publish", "topic": pattern})
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid topic", {"topic": pattern})


def test_a_wildcard_counts_as_a_level_and_as_a_character(peer: Peer) -> None:
    peer.subscribe("a" * 253 + ".#")
    too_long = "a" * 254 + ".#"
    reply = peer.ask("system.topic.subscribe", {"action": "publish", "topic": too_long})
    assert_error(reply, "INVALID_REQUEST", "Missing or invalid topic", {"topic": too_long})


@pytest.mark.parametrize("topic", ["a.+", "#", "+", "a.#"])
def test_wildcards_are_no_topics_to_send_to(peer: Peer, topic: str) -> None:
    for action in ("publish", "request", "response"):
        peer.send(f"{action}:{topic}:1.0.0:{I}")
        assert_error(peer.receive(), "MALFORMED_MESSAGE", f"Invalid topic name: {topic}", {"topic": topic})


def test_unsubscribing_names_the_exact_pattern(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    start = topic.split(".")[0]
    subscriber.subscribe(topic)
    reply = subscriber.ask("system.topic.unsubscribe", {"action": "publish", "topic": f"{start}.#"})
    assert reply.payload == b'{"status":"failure"}'
    assert publisher.publish(topic).payload == SUCCESS
    subscriber.unsubscribe(topic.upper())
    assert publisher.publish(topic).payload != SUCCESS


def test_unsubscribing_one_of_two_matching_patterns_leaves_the_other(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    start = topic.split(".")[0]
    subscriber.subscribe(topic)
    subscriber.subscribe(f"{start}.+")
    for pattern in (topic, f"{start}.+"):
        assert publisher.publish(topic).payload == SUCCESS
        assert len(subscriber.settled()) == 1
        subscriber.unsubscribe(pattern)
    assert publisher.publish(topic).payload != SUCCESS
