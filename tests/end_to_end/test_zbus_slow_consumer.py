"""A consumer with a window that reads more slowly than its queue is filled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import Client, Dial, compose, zbus_port

# Three times what a consumer may hold and not have taken; a third of it is more than the kernel keeps for it.
COUNT, BODY = 3000, b"b" * 500


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The sweep comes too late to help."""
    with running_server(RACEWAY_LISTEN__ZBUS__SWEEP_MS=600_000) as server:
        yield server


def test_a_consumer_that_was_slow_gets_the_rest_as_soon_as_it_reads(server: Server, dial: Dial, mq: str) -> None:
    producer = dial()
    keys = {"cmd": "produce", "mq": mq, "ack": "0"}
    producer.write(b"".join(compose(keys | {"msgid": str(number)}, BODY) for number in range(COUNT)))
    producer.synchronise()
    with Client(zbus_port(server), receive_buffer=4096) as consumer:
        consumer.send("consume", mq=mq, msgid="c", window="-1")
        assert [consumer.receive().raw_id for _ in range(COUNT)] == [str(number) for number in range(COUNT)]
