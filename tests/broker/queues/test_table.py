"""All queues: how they are made and found, what of them is kept, and where they stand in the routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceway.broker.queues.queue import Queue
from raceway.errors import (
    ForbiddenError,
    NameInvalidError,
    NameReservedError,
    NameTakenError,
    NoRouteError,
    QueueKindError,
    ReadOnlyError,
    TopicKindError,
    UnknownQueueError,
)
from raceway.model.envelope import encode_attributes
from tests.rigs.doubles import Refusal, refusals
from tests.rigs.queues import MQ, PUBSUB, TEMP, QueueBench, numbered


@pytest.fixture
def bench() -> QueueBench:
    return QueueBench()


def names(bench: QueueBench) -> list[str]:
    return [name for name, _, _ in bench.broker.queues]


def responders(bench: QueueBench, name: str = "q") -> int:
    return len(bench.broker.routing.route(bench.broker.topics.own(name)).responders)


# ---- making ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", range(9))
def test_bit_2_makes_a_publish_subscribe_queue_and_everything_else_an_ordinary_one(
    bench: QueueBench, mode: int
) -> None:
    bench.create("made", mode)
    ((name, record, queue),) = bench.broker.queues
    assert (name, record.mode, record.is_pubsub) == ("made", mode, mode in (2, 3, 6, 7))
    assert isinstance(queue, Queue) != record.is_pubsub
    assert bench.broker.readers.holds(queue.topic) != record.is_pubsub


def test_making_it_again_changes_nothing(bench: QueueBench) -> None:
    bench.create("q", MQ, "first")
    bench.produce(b"x")
    bench.settle()
    bench.create("q", MQ | 8, "second")
    bench.create("q", 0)
    ((_, record, queue),) = bench.broker.queues
    assert (record.mode, record.maker) == (MQ, "127.0.0.1:1")
    assert bench.broker.queues.find("q", "first") is record
    with pytest.raises(ForbiddenError):
        bench.broker.queues.find("q", "second")
    assert isinstance(queue, Queue)
    assert queue.backlog == 1


@pytest.mark.parametrize(("first", "second"), [(MQ, PUBSUB), (PUBSUB, MQ), (0, 3), (6, 4)])
def test_a_queue_of_the_other_kind_under_the_name_is_refused(bench: QueueBench, first: int, second: int) -> None:
    bench.create("q", first)
    with pytest.raises(QueueKindError):
        bench.create("q", second)
    assert [record.mode for _, record, _ in bench.broker.queues] == [first]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", NameInvalidError),
        ("a/b", NameInvalidError),
        ("a b", NameInvalidError),
        ("a\0b", NameInvalidError),
        ("a+", NameInvalidError),
        ("#", NameInvalidError),
        ("<script>", NameInvalidError),
        ("x" * 256, NameInvalidError),
        ("\ud800", NameInvalidError),
        ("e\u0301tat", NameInvalidError),  # would be stored composed, and never be found under this spelling
        ("system.queue", NameReservedError),
        ("raceway.queue", NameReservedError),
        ("RaceWay.queue", NameReservedError),
        ("Orders", NameTakenError),
        ("STREET", NameTakenError),
    ],
)
def test_names_that_cannot_be_are_refused(bench: QueueBench, name: str, error: type[Exception]) -> None:
    bench.create("orders")
    bench.produce(b"x", name="street", peer=bench.foreign_peer())  # a topic, not a queue
    with pytest.raises(error):
        bench.create(name)
    assert names(bench) == ["orders"]
    assert not bench.broker.queues.exists(name)


@pytest.mark.parametrize("name", ["x" * 255, "a.b-c_d.9", "Bestellungen", "état", "订单", "system", "raceway"])
def test_other_names_are_taken_exactly(bench: QueueBench, name: str) -> None:
    bench.create(name)
    assert names(bench) == [name]
    with pytest.raises(UnknownQueueError):
        bench.broker.queues.find(name.swapcase() + "x", "")


def test_a_queue_that_the_journal_does_not_take_is_not_made(bench: QueueBench) -> None:
    bench.faulty.refuse_writes()
    for mode in (MQ, PUBSUB):
        with pytest.raises(ReadOnlyError):
            bench.create("q", mode)
    assert names(bench) == []
    with pytest.raises(UnknownQueueError):
        bench.broker.queues.find("q", "")


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_exactly(bench: QueueBench) -> None:
    bench.create("vault", token="öpen\ud83d")
    for guess in ("", "öpen", "open", "Öpen\ud83d", "öpen\ud83d "):
        with pytest.raises(ForbiddenError) as refusal:
            bench.broker.queues.find("vault", guess)
        assert "öpen" not in str(refusal.value), "a refusal does not show the token"
    assert bench.broker.queues.find("vault", "öpen\ud83d").mode == MQ


def test_an_open_queue_takes_any_token(bench: QueueBench) -> None:
    bench.create("open")
    assert bench.broker.queues.find("open", "whatever") is bench.broker.queues.find("open", "")


def test_a_token_is_kept_as_a_digest(bench: QueueBench) -> None:
    bench.create("vault", token="a secret")
    assert "a secret" not in str(bench.journal.state.section("queues"))
    assert "a secret" not in str([batch.to_pylist() for batch in bench.journal.read(0)])


# ---- what survives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True])
def test_records_cursors_and_tokens_survive(tmp_path: Path, killed: bool) -> None:
    bench = QueueBench(tmp_path)
    bench.create("Orders", MQ, "secret")
    bench.create("ticks", PUBSUB)
    before = {name: record for name, record, _ in bench.broker.queues}
    bench.produce(*numbered(0, 10), name="Orders")
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, "Orders", window=4)
    peer.take()
    bench.settle()
    if killed:
        bench.crash()
    else:
        bench.restart()
    assert {name: record for name, record, _ in bench.broker.queues} == before
    assert before["Orders"].made_ms > 0
    with pytest.raises(ForbiddenError):
        bench.broker.queues.find("Orders", "guess")
    bench.broker.queues.find("Orders", "secret")
    with pytest.raises(NameTakenError):
        bench.create("orders")
    late = bench.peer()
    bench.arm(late, "Orders", window=-1)
    assert late.payloads == numbered(4, 6)
    bench.close()


def test_a_queue_without_rows_survives_with_its_spelling(tmp_path: Path) -> None:
    bench = QueueBench(tmp_path)
    bench.create("Orders")
    bench.restart()
    bench.produce(b"x", name="orders", peer=bench.foreign_peer())
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, "Orders")
    assert peer.payloads == [b"x"]
    bench.close()


def test_a_cursor_beyond_the_end_stands_at_the_end(bench: QueueBench) -> None:
    """Rows that were lost with their offsets; whoever gets these offsets now is not to be skipped."""
    bench.create()
    bench.produce(*numbered(0, 3))
    bench.settle()
    bench.journal.set_state("cursors", "queue:q", {"topic": "q", "offset": 9})
    bench.restart()
    assert (bench.queue().cursor, bench.queue().backlog) == (3, 0)
    bench.produce(b"next")
    bench.settle()
    peer = bench.peer()
    bench.arm(peer)
    assert peer.payloads == [b"next"]


def test_cursors_of_a_journal_that_takes_nothing_are_let_go(bench: QueueBench) -> None:
    bench.create()
    bench.produce(*numbered(0, 3))
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, window=-1)
    bench.faulty.refuse_writes()
    peer.take()
    bench.settle()
    assert (bench.queue().cursor, bench.kept_cursor()) == (3, 0), "delivered, and will be again after a restart"


# ---- temporary queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [TEMP, TEMP | MQ, TEMP | PUBSUB])
def test_a_temporary_queue_goes_with_the_connection_that_made_it(bench: QueueBench, mode: int) -> None:
    owner, other = bench.peer(), bench.peer()
    bench.create("mine", mode, peer=owner)
    bench.create("mine", mode, peer=other)
    bench.arm(other, "mine", topics="*")
    bench.leave(other)
    assert names(bench) == ["mine"], "it belongs to who made it first"
    consumer = bench.peer()
    bench.arm(consumer, "mine", topics="*")
    bench.leave(owner)
    assert names(bench) == []
    with pytest.raises(UnknownQueueError):
        bench.broker.queues.find("mine", "")
    assert responders(bench, "mine") == 0
    assert refusals(bench.produce(b"x", name="mine", peer=bench.foreign_peer())) == [Refusal(0, 1, NoRouteError)]
    bench.leave(consumer)


def test_nothing_of_a_temporary_queue_is_kept(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.create("mine", TEMP | MQ, peer=peer)
    bench.arm(peer, "mine")
    bench.produce(b"x", name="mine")
    bench.settle()
    peer.take()
    bench.settle()
    assert (dict(bench.journal.state.section("queues")), dict(bench.journal.state.section("cursors"))) == ({}, {})
    bench.restart()
    assert names(bench) == []


def test_a_temporary_queue_made_again_does_not_inherit_the_cursor_of_the_old_one(bench: QueueBench) -> None:
    owner, consumer = bench.peer(), bench.peer()
    bench.create("q", TEMP, peer=owner)
    bench.arm(consumer, window=-1)
    bench.produce(*numbered(0, 3))
    bench.settle()
    bench.leave(owner)
    bench.create()
    consumer.take(1)
    bench.settle()
    assert (bench.queue().cursor, bench.kept_cursor()) == (3, 3)
    bench.leave(consumer)
    assert (bench.kept_cursor(), responders(bench)) == (3, 0)


def test_rows_that_commit_after_their_queue_has_gone_go_nowhere(bench: QueueBench) -> None:
    owner = bench.peer()
    bench.create("mine", TEMP, peer=owner)
    bench.produce(b"x", name="mine")
    bench.leave(owner)
    bench.settle()
    assert (names(bench), bench.kept_cursor("mine")) == ([], None)


# ---- routes ----------------------------------------------------------------------------------------------------------


def test_a_queue_counts_as_a_responder_only_while_somebody_consumes(bench: QueueBench) -> None:
    first, second, asker = bench.peer(), bench.peer(), bench.foreign_peer()
    bench.create()
    assert refusals(bench.ask(asker, b"r-1")) == [Refusal(0, 1, NoRouteError)]
    bench.arm(first)
    bench.arm(second)
    assert bench.ask(asker, b"r-2").refused == ()
    bench.leave(first)
    assert bench.ask(asker, b"r-3").refused == ()
    bench.leave(second)
    assert refusals(bench.ask(asker, b"r-4")) == [Refusal(0, 1, NoRouteError)]
    bench.arm(bench.peer())
    assert responders(bench) == 1


def test_a_consumer_that_leaves_while_it_holds_rows_is_no_responder_any_more(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.create()
    bench.arm(peer, window=-1)
    bench.produce(b"x")
    bench.settle()
    bench.leave(peer)
    assert responders(bench) == 0


def test_a_service_of_higher_priority_is_asked_before_a_queue(bench: QueueBench) -> None:
    bench.create()
    consumer = bench.peer()
    bench.arm(consumer, window=-1)
    service = bench.foreign_peer(answers="q", priority=1)
    bench.ask(bench.foreign_peer(), *numbered(0, 20))
    bench.settle()
    assert (len(service.requests), consumer.payloads) == (20, [])


def test_a_queue_and_services_of_its_priority_share_the_requests(bench: QueueBench) -> None:
    bench.create()
    consumer = bench.peer()
    bench.arm(consumer, window=-1)
    service = bench.foreign_peer(answers="q")
    bench.ask(bench.foreign_peer(), *numbered(0, 200))
    bench.settle()
    assert len(service.requests) + len(consumer.payloads) == 200
    assert min(len(service.requests), len(consumer.payloads)) > 50, "one in 10^13 runs fails here"


def test_one_connection_consumes_from_several_queues_of_both_kinds(bench: QueueBench) -> None:
    peer = bench.peer()
    for name, mode in (("a", MQ), ("b", MQ), ("c", PUBSUB)):
        bench.create(name, mode)
        bench.arm(peer, name, ticket=name.encode(), topics="*")
    for name in "bca":
        bench.produce(name.encode(), name=name, attributes=encode_attributes({"zbus.topic": "t"}))
    bench.settle()
    assert sorted(peer.handed) == [(b"a", b"a"), (b"b", b"b"), (b"c", b"c")]
    bench.leave(peer)
    assert [len(queue.consumers) for _, _, queue in bench.broker.queues] == [0, 0, 0]
    late = bench.peer()
    bench.arm(late, "a")
    bench.arm(late, "b")
    assert late.payloads == [b"a", b"b"], "given back to both"


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_who_waits_for_the_commit_is_told_after_the_queues(bench: QueueBench) -> None:
    bench.create()
    peer, told = bench.peer(), list[Any]()
    bench.arm(peer)
    bench.produce(b"x", done=lambda error: told.append((error, peer.payloads)))
    bench.settle()
    assert told == [(None, [b"x"])]
    bench.faulty.fail_next_commit()
    bench.produce(b"y", done=lambda error: told.append(type(error).__name__))
    bench.settle()
    assert told[1] == "DiskFullError"


# ---- partitioned topics ----------------------------------------------------------------------------------------------


def test_a_partition_may_be_a_queue_and_their_base_may_not(bench: QueueBench) -> None:
    """A queue is one cursor. Consumers of a publish/subscribe queue have none: they get all partitions."""
    bench.broker.topic_admin.create_partitioned_topic("t", 2, reliable=True)
    with pytest.raises(TopicKindError, match="t-part-0"):
        bench.create("t")
    bench.create("t-part-1")
    bench.create("t", PUBSUB)
    both, one = bench.peer(), bench.peer()
    bench.arm(both, "t", topics="*", window=-1)
    bench.arm(one, "t-part-1", window=-1)
    for sender in range(20):
        bench.produce(b"%d" % sender, name="t", peer=bench.foreign_peer())
    bench.settle()
    assert both.payloads == [b"%d" % sender for sender in range(20)]
    assert 0 < len(one.payloads) < 20


def test_a_queue_is_a_plain_topic(bench: QueueBench) -> None:
    bench.create("q")
    with pytest.raises(TopicKindError):
        bench.broker.topic_admin.create_partitioned_topic("q", 2, reliable=True)
