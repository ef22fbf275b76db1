from __future__ import annotations

import asyncio

import pytest

from raceway import config
from raceway.errors import ConfigError
from raceway.net.outgoing.allowed import AllowList
from raceway.server.exporting import exporting
from raceway.telemetry.exporter import Exporter
from tests.rigs.doubles import Bench, Message, new_id
from tests.rigs.otlp_receiver import Receiver, otlp_receiver


def exporter_of(bench: Bench, receiver: Receiver) -> Exporter:
    settings = config.Telemetry(enabled=True, endpoint=receiver.endpoint, timeout_ms=1000)
    return Exporter(bench.journal, settings, bench.broker.set_state, bench.clock_us)


def step(exporter: Exporter) -> None:
    asyncio.run(exporter.step())


def publish(bench: Bench, topic: bytes) -> None:
    bench.publish(bench.peer(), Message(topic))
    bench.loop.settle()


def test_it_begins_with_what_comes_after_its_first_start() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        publish(bench, b"before")
        exporter = exporter_of(bench, receiver)
        publish(bench, b"after")
        step(exporter)
        assert [span.name for span in receiver.spans] == ["send after"]


def test_a_second_start_goes_on_where_the_first_one_stopped() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        first = exporter_of(bench, receiver)
        publish(bench, b"a")
        step(first)
        first.close()
        publish(bench, b"b")
        step(exporter_of(bench, receiver))
        assert [span.name for span in receiver.spans] == ["send a", "send b"]


def test_a_request_that_was_open_at_the_stop_is_read_again() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        responder = bench.responder("math.sum")
        first = exporter_of(bench, receiver)
        bench.request(bench.peer(), Message(b"math.sum", id=new_id()))
        publish(bench, b"other")
        step(first)
        first.close()
        bench.respond(responder, Message(b"math.sum", id=responder.masked))
        bench.loop.settle()
        step(exporter_of(bench, receiver))
        assert len(receiver.named("process math.sum")) == 1
        assert len({span.span_id for span in receiver.named("send other")}) == 1  # told twice, and the same


def test_what_is_refused_is_sent_again_before_anything_else() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        exporter = exporter_of(bench, receiver)
        receiver.status = 400
        publish(bench, b"a")
        step(exporter)
        publish(bench, b"b")
        step(exporter)
        assert receiver.spans == []
        receiver.status = 200
        step(exporter)
        step(exporter)
        assert [span.name for span in receiver.spans] == ["send a", "send b"]


def test_its_own_rows_are_no_reason_to_write_more() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        exporter = exporter_of(bench, receiver)
        bench.loop.settle()
        before = bench.journal.next_sequence
        for _ in range(5):
            step(exporter)
            exporter._keep_position(now=True)
        assert bench.journal.next_sequence == before


@pytest.mark.parametrize("endpoint", ["http://203.0.113.9:4318/v1/traces", "ftp://127.0.0.1/", "http://[", "nowhere"])
def test_a_collector_must_be_an_address_that_is_allowed(endpoint: str) -> None:
    """D9"""

    async def start() -> None:
        settings, bench = config.Telemetry(enabled=True, endpoint=endpoint), Bench()
        async with exporting(
            settings, bench.journal, bench.broker.set_state, bench.clock_us, AllowList(config.Listen())
        ):
            pass

    with pytest.raises(ConfigError):
        asyncio.run(start())


def test_a_journal_that_takes_nothing_does_not_keep_it_from_being_closed() -> None:
    with otlp_receiver() as receiver:
        bench = Bench()
        exporter = exporter_of(bench, receiver)
        publish(bench, b"a")
        step(exporter)
        bench.journal.refuse_writes()
        exporter.close()
        assert [span.name for span in receiver.spans] == ["send a"]
