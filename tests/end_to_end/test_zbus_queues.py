"""zbus queues: who gets which message, what survives, and how publish/subscribe queues differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import EVERY_BYTE, MQ, PUBSUB, TEMP, Client, Dial, compose, dial_server, fresh_name, zbus_port

MIB = 1 << 20
PUBSUB_MESSAGES, PUBSUB_BYTES = 20, 1 * MIB
# More than the kernel takes for a peer that does not read: part of it stays with the server.
LARGE = b"large" * MIB
SMALL_BUFFER = 4096


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_BROKER__PUBSUB_MESSAGES=PUBSUB_MESSAGES, RACEWAY_BROKER__PUBSUB_BYTES=PUBSUB_BYTES
    ) as server:
        yield server


def bodies(client: Client, mq: str, count: int) -> list[bytes]:
    """The next messages of a queue, each by a consume of its own."""
    return [client.take(mq).body for _ in range(count)]


def is_empty(client: Client, mq: str) -> bool:
    client.arm(mq)
    return client.settled() == []


def backlog(client: Client, mq: str) -> int:
    return int(client.data()["mqTable"][mq]["unconsumedMsgCount"])


# ---- armed consumes --------------------------------------------------------------------------------------------------


def test_waiting_consumers_are_served_in_the_order_in_which_they_armed(dial: Dial, mq: str) -> None:
    producer, consumers = dial(), [dial() for _ in range(5)]
    order = [consumers[number] for number in (3, 0, 4, 1, 2)]
    armed = [consumer.arm(mq) for consumer in order]
    for number in range(5):
        producer.produce(mq, str(number))
    assert [c.reply(msgid).body for c, msgid in zip(order, armed, strict=True)] == [b"0", b"1", b"2", b"3", b"4"]
    assert all(consumer.settled() == [] for consumer in consumers)


def test_who_arms_again_goes_to_the_end_of_the_line(dial: Dial, mq: str) -> None:
    producer, first, second = dial(), dial(), dial()
    armed = [first.arm(mq), second.arm(mq)]
    producer.produce(mq, "0")
    assert first.reply(armed[0]).body == b"0"
    again = first.arm(mq)
    producer.produce(mq, "1")
    producer.produce(mq, "2")
    assert second.reply(armed[1]).body == b"1"
    assert first.reply(again).body == b"2"


def test_messages_leave_in_the_order_in_which_they_came(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    for number in range(100):
        producer.send("produce", str(number), mq=mq, ack="0")
    assert bodies(consumer, mq, 100) == [str(number).encode() for number in range(100)]


def test_each_message_goes_to_one_consumer(dial: Dial, mq: str) -> None:
    producer, consumers = dial(), [dial() for _ in range(4)]
    for consumer in consumers:
        consumer.send("consume", mq=mq, msgid="c", window="-1")
        consumer.synchronise()
    sent = [f"{number}" for number in range(400)]
    producer.write(b"".join(compose({"cmd": "produce", "mq": mq, "msgid": body}, body) for body in sent))
    assert producer.reply(sent[-1]).status == 200
    got = [message.body.decode() for consumer in consumers for message in consumer.settled()]
    assert sorted(got, key=int) == sent


def test_one_consume_waits_per_connection_and_queue(dial: Dial, mq: str) -> None:
    """A further one replaces it: the last id counts, and there is one delivery."""
    producer, consumer = dial(), dial()
    for msgid in ("a", "b", "c"):
        consumer.arm(mq, msgid=msgid)
    producer.produce(mq, "1")
    producer.produce(mq, "2")
    assert [(message.msgid, message.body) for message in consumer.settled()] == [("c", b"1")]
    assert consumer.take(mq).body == b"2"


def test_one_connection_may_wait_on_several_queues(dial: Dial) -> None:
    producer, consumer = dial(), dial()
    queues = [producer.create() for _ in range(5)]
    armed = {mq: consumer.arm(mq) for mq in queues}
    for mq in reversed(queues):
        producer.produce(mq, mq)
    for mq in queues:
        assert consumer.reply(armed[mq]).body == mq.encode()


def test_a_waiting_consumer_that_leaves_is_forgotten(dial: Dial, mq: str) -> None:
    producer, staying = dial(), dial()
    for leave in (Client.close, Client.reset):
        leaving = dial()
        leaving.arm(mq)
        armed = staying.arm(mq)
        leave(leaving)
        wait_until(lambda: producer.data()["mqTable"][mq]["consumerCount"] == 1, what="the consumer to be forgotten")
        producer.produce(mq, "not lost")
        assert staying.reply(armed).body == b"not lost"


def test_a_consume_does_not_hold_back_later_replies(client: Client, mq: str) -> None:
    armed = client.arm(mq)
    other = client.create()
    client.produce(other, "x")
    assert client.take(other).body == b"x"
    client.produce(mq, "y")
    assert client.reply(armed).body == b"y"


# ---- the window ------------------------------------------------------------------------------------------------------


def test_a_window_allows_so_many_deliveries_under_one_id(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    producer.produce(mq, "0")
    consumer.arm(mq, msgid="c", window="3")
    for number in range(1, 5):
        producer.produce(mq, str(number))
    assert [(message.msgid, message.body) for message in consumer.settled()] == [("c", b"%d" % n) for n in range(3)]
    assert bodies(consumer, mq, 2) == [b"3", b"4"]


def test_a_window_of_minus_one_has_no_limit(dial: Dial, mq: str) -> None:
    producer, consumer = dial(), dial()
    consumer.arm(mq, msgid="c", window="-1")
    for number in range(50):
        producer.send("produce", str(number), mq=mq, ack="0")
    assert [consumer.receive().body for _ in range(50)] == [b"%d" % number for number in range(50)]
    producer.synchronise()
    assert consumer.settled() == []


@pytest.mark.parametrize("window", ["0", "-2", "x", "", "1.5"])
def test_a_window_that_is_none_is_refused_or_counts_as_one(dial: Dial, mq: str, window: str) -> None:
    producer, consumer = dial(), dial()
    consumer.send("consume", mq=mq, msgid="c", window=window)
    consumer.synchronise()
    producer.produce(mq, "1")
    producer.produce(mq, "2")
    assert [message.status for message in consumer.settled()] in ([400], [200])


# ---- consumers that break --------------------------------------------------------------------------------------------


def deaf_consumer(server: Server, mq: str, window: str = "1") -> Client:
    """Armed, and it does not read."""
    consumer = Client(zbus_port(server), SMALL_BUFFER)
    consumer.arm(mq, window=window)
    return consumer


def wait_until_forgotten(client: Client, mq: str) -> None:
    wait_until(lambda: client.data()["mqTable"][mq]["consumerCount"] == 0, what="the consumer to be forgotten")


@pytest.mark.parametrize("leave", [Client.close, Client.reset])
def test_a_message_that_was_not_wholly_sent_returns_to_the_front(
    dial: Dial, mq: str, server: Server, leave: Callable[[Client], None]
) -> None:
    producer, consumer = dial(), dial()
    deaf = deaf_consumer(server, mq)
    producer.produce(mq, LARGE)
    producer.produce(mq, "behind")
    assert deaf.socket.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"), "it was under way"
    leave(deaf)
    wait_until_forgotten(producer, mq)
    assert consumer.take(mq).body == LARGE
    assert consumer.take(mq).body == b"behind"
    assert is_empty(consumer, mq)


def test_all_messages_that_were_not_sent_return_in_order(dial: Dial, mq: str, server: Server) -> None:
    producer, consumer = dial(), dial()
    deaf = deaf_consumer(server, mq, window="-1")
    for number in range(4):
        producer.produce(mq, LARGE + b"%d" % number)
    producer.produce(mq, "4")
    deaf.reset()
    wait_until_forgotten(producer, mq)
    assert [body[-1:] for body in bodies(consumer, mq, 5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_that_returns_goes_to_whoever_waits(dial: Dial, mq: str, server: Server) -> None:
    producer, waiting = dial(), dial()
    deaf = deaf_consumer(server, mq)
    producer.produce(mq, LARGE)
    armed = waiting.arm(mq)
    assert waiting.settled() == []
    deaf.reset()
    assert waiting.reply(armed).body == LARGE


def test_a_message_that_was_sent_is_gone(dial: Dial, mq: str) -> None:
    """At most once: who has received it has it, and nobody else gets it."""
    producer, first, second = dial(), dial(), dial()
    producer.produce(mq, "once")
    assert first.take(mq).body == b"once"
    first.reset()
    assert is_empty(second, mq)


# ---- what survives a restart -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_content_mode_and_token_survive(tmp_path: Path, how: str) -> None:
    contents = [b"", EVERY_BYTE * 10, "größe".encode(), b"same id", b"same id again", b"x" * 100_000]
    with running_server(tmp_path / "data") as server:
        with dial_server(server) as client:
            guarded, news = client.create(access_token="open"), client.create(mode=PUBSUB)
            client.produce(guarded, "taken before", token="open")
            assert client.take(guarded, token="open").body == b"taken before"
            for number, content in enumerate(contents):
                msgid = "same" if content.startswith(b"same") else f"p-{number}"
                client.produce(guarded, content, token="open", msgid=msgid, x_shop="Nord", encoding="utf-8")
        if how == "killed":
            server.kill()
            server.start()
        else:
            server.restart()
        with dial_server(server) as client:
            assert client.ask("produce", mq=guarded).status == 403
            assert client.admin("create_mq", f'{{"mqName":"{news}","mqMode":1}}').status == 400, "still pub/sub"
            assert client.admin("create_mq", f'{{"mqName":"{guarded}","mqMode":1}}').status == 200
            assert client.ask("consume", mq=guarded).status == 403, "the token is as before"
            deliveries = [client.take(guarded, token="open") for _ in contents]
            assert [delivery.body for delivery in deliveries] == contents
            assert [delivery.raw_id for delivery in deliveries] == ["p-0", "p-1", "p-2", "same", "same", "p-5"]
            assert {(d.headers["x-shop"], d.headers["encoding"]) for d in deliveries} == {("Nord", "utf-8")}
            client.send("consume", mq=guarded, token="open", msgid="c")
            assert client.settled() == [], "what was taken does not come back"


def test_a_queue_is_there_after_a_kill_right_behind_its_creation(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        for _ in range(3):
            with dial_server(server) as client:
                mq = client.create()
                server.kill()
            server.start()
            with dial_server(server) as client:
                client.produce(mq, "x")


# ---- kinds of queues -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, 4, 5, 8, 9])
def test_modes_without_the_second_bit_are_ordinary_queues(dial: Dial, mode: int) -> None:
    owner, consumer = dial(), dial()
    mq = owner.create(mode=mode)
    owner.produce(mq, "kept")
    assert consumer.take(mq).body == b"kept"


@pytest.mark.parametrize("mode", [2, 3, 6, 7, 10, 11])
def test_modes_with_the_second_bit_are_publish_subscribe(dial: Dial, mode: int) -> None:
    owner, one, two = dial(), dial(), dial()
    mq = owner.create(mode=mode)
    armed = [(one, one.arm(mq, topic="t")), (two, two.arm(mq, topic="t"))]
    owner.produce(mq, "to all", topic="t")
    assert [client.reply(msgid).body for client, msgid in armed] == [b"to all"] * 2


@pytest.mark.parametrize("mode", [MQ | TEMP, TEMP, PUBSUB | TEMP])
def test_a_temporary_queue_goes_with_the_connection_that_made_it(dial: Dial, mode: int) -> None:
    owner, other = dial(), dial()
    mq = owner.create(mode=mode)
    assert other.ask("produce", mq=mq, topic="t").status == 200
    assert other.admin("create_mq", f'{{"mqName":"{mq}","mqMode":{mode}}}').status == 200, "not its owner by this"
    owner.close()
    wait_until(lambda: other.ask("produce", mq=mq).status == 404, what="the queue to go")
    assert other.ask("consume", mq=mq).status == 404
    assert mq not in other.data()["mqTable"]
    other.create(mq)


def test_a_temporary_queue_is_not_kept_over_a_kill(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        with dial_server(server) as client:
            mq = client.create(mode=MQ | TEMP)
            client.produce(mq, "x")
            server.kill()
        server.start()
        with dial_server(server) as client:
            assert mq not in client.data()["mqTable"]
            assert client.ask("consume", mq=mq).status == 404


def test_queues_are_not_made_by_using_them(client: Client) -> None:
    mq = fresh_name()
    for cmd in ("produce", "consume", "request"):
        assert client.ask(cmd, mq=mq).status == 404
    assert mq not in client.data()["mqTable"]


def test_a_name_that_differs_in_case_alone_is_refused(client: Client) -> None:
    mq = client.create("Q" + fresh_name())
    refusal = client.admin("create_mq", f'{{"mqName":"{mq.upper()}","mqMode":1}}')
    assert refusal.status == 400
    assert mq in refusal.body.decode()


@pytest.mark.parametrize("cmd", ["produce", "consume", "request"])
def test_a_queues_token_guards_each_command(client: Client, cmd: str) -> None:
    mq = client.create(access_token="geheim-ß")
    for wrong in ("", "geheim", "GEHEIM-ß", "geheim-ß2", "x" * 10_000):
        assert client.ask(cmd, mq=mq, token=wrong).status == 403
    client.send(cmd, mq=mq, msgid="quiet", ack="0")
    assert client.settled() == []
    client.send(cmd, mq=mq, msgid="right", token="geheim-ß", ack="0")
    assert client.settled() == []


# ---- publish/subscribe -----------------------------------------------------------------------------------------------


@pytest.fixture
def news(client: Client) -> str:
    """A publish/subscribe queue of the test's own."""
    return client.create(mode=PUBSUB)


def topics_received(subscriber: Client, publisher: Client, news: str, topics: list[str]) -> list[str]:
    """Publishes once on each topic; those that reach the subscriber, who has armed without limit."""
    for topic in topics:
        publisher.produce(news, topic=topic)
    return [message.headers["topic"] for message in subscriber.settled()]


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a ,\tb , ", ["a", "b"]),
        ("*", ["a", "b", "a.b", "a/b", "A", "#", "a,b", "*"]),
        ("#", ["#"]),
        ("a.*", []),
        ("a.#", []),
        ("A", ["A"]),
    ],
)
def test_a_topic_must_be_among_the_wanted_ones_exactly(dial: Dial, news: str, wanted: str, got: list[str]) -> None:
    """No hierarchy, no prefixes; a comma in a message's topic is an ordinary character."""
    subscriber, publisher = dial(), dial()
    subscriber.arm(news, topic=wanted, window="-1")
    assert topics_received(subscriber, publisher, news, ["a", "b", "a.b", "a/b", "A", "#", "a,b", "*"]) == got


def test_topics_add_up_on_a_connection_and_arming_again_needs_none(dial: Dial, news: str) -> None:
    subscriber, publisher = dial(), dial()
    subscriber.arm(news, topic="a")
    subscriber.arm(news, topic="b")
    subscriber.arm(news, window="-1")
    assert topics_received(subscriber, publisher, news, ["a", "b", "c"]) == ["a", "b"]


def test_without_a_topic_nothing_is_subscribed_to(dial: Dial, news: str) -> None:
    subscriber, publisher = dial(), dial()
    subscriber.arm(news, window="-1")
    assert topics_received(subscriber, publisher, news, ["a", "b"]) == []
    subscriber.arm(news, topic="b", window="-1")
    assert topics_received(subscriber, publisher, news, ["a", "b"]) == ["b"]


def test_a_message_without_topic_reaches_nobody(dial: Dial, news: str) -> None:
    subscriber, publisher = dial(), dial()
    subscriber.arm(news, topic="*")
    publisher.produce(news, "void")
    publisher.produce(news, "empty", topic="")
    assert subscriber.settled() == []


def test_every_subscriber_gets_its_copy_in_order(dial: Dial, news: str) -> None:
    subscribers, publisher = [dial() for _ in range(3)], dial()
    for subscriber in subscribers:
        subscriber.arm(news, topic="t", window="-1")
    for number in range(15):
        publisher.produce(news, str(number), topic="t")
    for subscriber in subscribers:
        assert [message.body for message in subscriber.settled()] == [b"%d" % number for number in range(15)]


def test_messages_wait_for_a_subscriber_between_two_consumes(dial: Dial, news: str) -> None:
    subscriber, publisher = dial(), dial()
    armed = subscriber.arm(news, topic="t")
    for number in range(5):
        publisher.produce(news, str(number), topic="t")
    assert subscriber.reply(armed).body == b"0"
    assert subscriber.settled() == []
    assert bodies(subscriber, news, 4) == [b"1", b"2", b"3", b"4"]


def test_what_waits_goes_with_the_connection_and_there_is_no_history(dial: Dial, news: str) -> None:
    publisher, leaving = dial(), dial()
    leaving.arm(news, topic="*")
    for number in range(3):
        publisher.produce(news, str(number), topic="t")
    leaving.close()
    late = dial()
    late.arm(news, topic="*")
    assert late.settled() == []
    publisher.produce(news, "new", topic="t")
    assert late.receive().body == b"new"


def test_the_acknowledgement_does_not_depend_on_receivers(client: Client, news: str) -> None:
    assert client.ask("produce", mq=news, topic="nobody").status == 200
    assert client.ask("produce", mq=news).status == 200


def test_a_subscriber_with_more_waiting_than_its_mark_misses_nothing(dial: Dial, news: str) -> None:
    subscriber, other, publisher = dial(), dial(), dial()
    armed = subscriber.arm(news, topic="t")
    other.arm(news, topic="t", window="-1")
    for number in range(PUBSUB_MESSAGES + 11):
        publisher.produce(news, str(number), topic="t")
    assert subscriber.reply(armed).body == b"0"
    expected = [b"%d" % number for number in range(1, PUBSUB_MESSAGES + 11)]
    assert bodies(subscriber, news, PUBSUB_MESSAGES + 10) == expected
    assert is_empty(subscriber, news)
    assert len(other.settled()) == PUBSUB_MESSAGES + 11, "others miss nothing"


def test_a_subscriber_with_larger_messages_waiting_than_its_mark_misses_nothing(dial: Dial, news: str) -> None:
    subscriber, publisher = dial(), dial()
    armed = subscriber.arm(news, topic="t")
    size = PUBSUB_BYTES // 4
    for number in range(10):
        publisher.produce(news, b"%d" % number + bytes(size), topic="t")
    assert subscriber.reply(armed).body[:1] == b"0"
    subscriber.arm(news, window="-1")
    assert [subscriber.receive().body[:1] for _ in range(9)] == [b"%d" % number for number in range(1, 10)]


def test_a_pubsub_queue_keeps_no_backlog(client: Client, news: str) -> None:
    for _ in range(3):
        client.produce(news, "x", topic="t")
    assert backlog(client, news) == 0


def test_the_backlog_of_a_queue_is_counted(client: Client, mq: str) -> None:
    for number in range(3):
        client.produce(mq, str(number))
    assert backlog(client, mq) == 3
    client.take(mq)
    wait_until(lambda: backlog(client, mq) == 2, what="the taken message to leave the count")
