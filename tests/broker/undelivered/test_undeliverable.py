from __future__ import annotations

from raceway.broker.undelivered.undeliverable import UNDELIVERABLE, park
from raceway.model.envelope import Batch
from tests.rigs.doubles import Bench


def batch() -> Batch:
    return Batch(
        2, topic=b"orders.new", wire=b"seneca", kind=b"publish", payload=[b"a", b"b"], message_id=[b"m1", None],
        correlation_id=[b"c1", None], producer=b"A", encoding=b"json",
    )  # fmt: skip


def test_a_row_says_where_it_belonged_who_did_not_take_it_and_why() -> None:
    bench = Bench()
    park(bench.broker, batch(), 0, "http://127.0.0.1:1", "no connection")
    (row,) = bench.rows()
    assert (row["topic"], row["offset"], row["kind"], row["wire"]) == (UNDELIVERABLE, 0, "publish", "seneca")
    assert (row["message_id"], row["correlation_id"], row["producer"], row["payload"]) == ("m1", "c1", "A", b"a")
    assert dict(row["attributes"]) == {
        "topic": "orders.new", "receiver": "http://127.0.0.1:1", "reason": "no connection",
    }  # fmt: skip
    assert bench.counted("bus.undeliverable") == 1


def test_a_row_without_an_id_gets_one() -> None:
    bench = Bench()
    park(bench.broker, batch(), 1, "x", "y")
    assert bench.rows()[0]["message_id"]


def test_whoever_subscribed_hears_of_it_and_nobody_else() -> None:
    bench = Bench()
    watcher, other = bench.peer("raceway.undeliverable"), bench.peer("#")
    park(bench.broker, batch(), 0, "x", "y")
    assert ([copy.payload for copy in watcher.copies], other.copies) == ([b"a"], [])


def test_a_journal_that_takes_nothing_is_no_reason_to_fail() -> None:
    bench = Bench()
    watcher = bench.peer("raceway.undeliverable")
    bench.journal.refuse_writes()
    park(bench.broker, batch(), 0, "x", "y")
    assert watcher.copies == []
    assert bench.counted("bus.undeliverable") == 1
