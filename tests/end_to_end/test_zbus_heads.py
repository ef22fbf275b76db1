"""Deliveries that leave together: each says what its own message said."""

from __future__ import annotations

from tests.rigs.zbus_wire import Client, Dial, Message, compose


def produce_together(producer: Client, mq: str, name: str, values: list[str]) -> None:
    """Messages in one segment, and nothing else in it, that differ in one header."""
    keys = {"cmd": "produce", "mq": mq}
    ids = [f"m{number}" for number in range(len(values))]
    messages = [compose(keys | {"msgid": msgid, name: value}) for msgid, value in zip(ids, values, strict=True)]
    producer.write(b"".join(messages))
    assert [producer.reply(msgid).status for msgid in ids] == [200] * len(ids)


def delivered(consumer: Client, mq: str, count: int) -> list[Message]:
    """What waits in a queue, handed out in one go."""
    consumer.send("consume", mq=mq, msgid="c", window=str(count))
    return [consumer.receive() for _ in range(count)]


def test_messages_of_one_segment_keep_their_own_headers(dial: Dial, mq: str) -> None:
    colours = ["red", "red", "blue", "green"]
    produce_together(dial(), mq, "x-colour", colours)
    assert [message.headers["x-colour"] for message in delivered(dial(), mq, 4)] == colours


def test_messages_of_one_segment_keep_their_own_reply_queues(dial: Dial, mq: str) -> None:
    boxes = ["box-1", "box-2", "box-2", "box-3"]
    produce_together(dial(), mq, "mq-reply", boxes)
    assert [message.headers["mq-reply"] for message in delivered(dial(), mq, 4)] == boxes


def test_messages_of_several_producers_keep_their_own_addresses(dial: Dial, mq: str) -> None:
    producers = [dial() for _ in range(3)]
    for producer in producers:
        producer.produce(mq, mq_reply="box")
    addresses = ["{}:{}".format(*producer.socket.getsockname()) for producer in producers]
    assert [message.headers["remote-addr"] for message in delivered(dial(), mq, 3)] == addresses
