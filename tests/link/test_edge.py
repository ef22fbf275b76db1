"""The edge: what peers ask is split by lanes and joined again, and a lane that is away fails nothing but its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from raceway.errors import BusyError, DiskFullError, LanesError, NoRouteError, UnavailableError
from raceway.model.envelope import PUBLISH, REQUEST, Batch
from raceway.model.intents.batches import Publish, Respond, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Audit,
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ReadMetrics,
    Register,
    Subscribe,
    Unsubscribe,
)
from raceway.model.intents.queues import Arm, CreateQueue, Enqueue, EnqueueRequests, ListQueues, ResumeDeliveries
from raceway.model.intents.reading import ReadTopic
from tests.rigs.doubles import Message, RecordingPeer, batch_of, new_id
from tests.rigs.edged import Edged
from tests.rigs.queues import QueuePeer

LANES = 4
UNKNOWN, NOTHING = "whether this was done is not known", "nothing was done"


@pytest.fixture(params=[65536, 1], ids=["whole", "bytewise"])
def edged(request: pytest.FixtureRequest) -> Edged:
    return Edged(LANES, request.param).join()


def topic_in(edged: Edged, lane: int) -> bytes:
    """A topic of this lane."""
    return next(name for name in (b"t.%d" % at for at in range(1000)) if edged.table.lane_of(name) == lane)


def topics(edged: Edged) -> list[bytes]:
    """A topic of each lane."""
    return [topic_in(edged, lane) for lane in range(LANES)]


def asked(edged: Edged, peer: RecordingPeer, intent: Any) -> list[Any]:
    """What is told of an intent, from now on: its outcome and its commit."""
    told: list[Any] = []
    edged.edge.perform(peer, intent, told.append, lambda error: told.append(("committed", error)))
    return told


def publish_of(*names: bytes) -> Publish:
    return Publish(batch_of(b"publish", *(Message(name, b"of " + name, new_id()) for name in names)))


def refused(taken: Any) -> list[tuple[int, int, type]]:
    return [(start, stop, type(error)) for start, stop, error in taken.refused]


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_split_by_lanes_and_its_refused_rows_are_those_of_the_batch(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    a, b, c, d = topics(edged)
    for name in (a, b, c):
        edged.perform(reader, Subscribe("publish", name.decode()))
    told = asked(edged, sender, publish_of(a, b, d, d, a, c, b"system.x", a, d))
    edged.settle()
    assert told[1:] == [("committed", None)]
    assert [each for each in refused(told[0]) if each[2] is NoRouteError] == [
        (2, 4, NoRouteError),
        (8, 9, NoRouteError),
    ]
    assert [each[:2] for each in refused(told[0]) if each[2] is not NoRouteError] == [(6, 7)]
    assert sorted(copy.topic for copy in reader.copies) == sorted([a, a, a, b, c])
    for lane, name in enumerate((a, b, c, d)):
        rows = edged.benches[lane].rows()
        assert {row["topic"] for row in rows} == {name.decode()}
        assert [row["offset"] for row in rows] == list(range(len(rows)))


def test_a_commit_is_told_when_all_lanes_have_committed(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    a, b, _, _ = topics(edged)
    told = asked(edged, sender, publish_of(a, b))
    edged.link_of(a).settle()
    assert told == []
    edged.settle()
    assert told == [Taken(), ("committed", None)]
    edged.benches[1].journal.fail_next_commit()
    told = asked(edged, sender, publish_of(a, b))
    edged.settle()
    (outcome, (_, error)) = told
    assert outcome == Taken()
    assert isinstance(error, DiskFullError)


def test_outcomes_of_a_peer_come_in_the_order_of_its_intents(edged: Edged) -> None:
    reader, sender, other = edged.peer(), edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    told: list[int] = []
    a, b, _, _ = topics(edged)

    def note(number: int, outcome: Any) -> None:
        told.append(number)

    for number, (peer, name) in enumerate([(sender, a), (sender, b), (other, b), (sender, b)]):
        edged.edge.perform(peer, publish_of(name), partial(note, number))
    edged.edge.perform(sender, ReadTopic("q", "first", 1, 1), partial(note, 4))  # refused at once
    edged.link_of(b).settle()
    assert told == [2]
    edged.settle()
    assert told == [2, 0, 1, 3, 4]


def test_a_callback_that_fails_holds_nothing_back(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    a, b, _, _ = topics(edged)

    def fails(outcome: Any) -> None:
        raise ValueError("a bug of a session")

    edged.edge.perform(sender, publish_of(a), fails)
    told = asked(edged, sender, publish_of(b))
    edged.link_of(b).settle()
    assert told == []
    edged.settle()
    assert told == [Taken(), ("committed", None)]


# ---- lanes that are away ---------------------------------------------------------------------------------------------


def test_rows_of_a_lane_that_is_away_are_refused_and_the_others_taken(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    a, b, _, _ = topics(edged)
    edged.links[1].lose()
    told = asked(edged, sender, publish_of(a, b, b, a))
    edged.settle()
    assert refused(told[0]) == [(1, 3, UnavailableError)]
    assert str(told[0].refused[0][2]).endswith(NOTHING)
    assert told[1:] == [("committed", None)]
    assert [copy.topic for copy in reader.copies] == [a, a]
    assert isinstance(edged.publish(sender, Message(b)), UnavailableError)
    edged.links[1].join()
    assert edged.publish(sender, Message(b)) == Taken()


def test_what_was_under_way_to_a_lane_that_is_lost_is_told_to_be_unknown(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    a, b, _, _ = topics(edged)
    told = asked(edged, sender, publish_of(a, b))
    edged.links[1].lose()
    edged.settle()
    assert refused(told[0]) == [(1, 2, UnavailableError)]
    assert str(told[0].refused[0][2]).endswith(UNKNOWN)
    assert told[1:] == [("committed", None)]  # of the row that was taken


def test_without_any_lane_all_rows_are_refused_and_nothing_waits(edged: Edged) -> None:
    sender = edged.peer()
    for link in edged.links:
        link.lose()
    told = asked(edged, sender, publish_of(*topics(edged)))
    assert refused(told[0]) == [(row, row + 1, UnavailableError) for row in range(LANES)]
    assert told[1:] == [("committed", None)]
    for intent in (Subscribe("publish", "a"), ListPeers()):
        assert isinstance(edged.perform(sender, intent), UnavailableError)
    for link in edged.links:
        link.join()
    assert edged.perform(sender, ListSubscriptions()).rows == ()


def test_a_lane_learns_what_it_missed_when_it_comes_back(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    a, b, _, _ = topics(edged)
    edged.perform(reader, Subscribe("publish", "left"))
    edged.links[1].lose()
    assert edged.perform(reader, Subscribe("publish", "t.#")) == Done()
    assert edged.perform(reader, Unsubscribe("publish", "left")) == Done()
    assert edged.perform(reader, Register("Reader", "")) == Done()
    edged.links[1].join()
    edged.publish(sender, Message(b), Message(a))
    assert sorted(copy.topic for copy in reader.copies) == sorted([a, b])
    known = edged.benches[1].broker.peers[reader.id]
    assert known.name == "Reader"
    assert set(known.subscriptions) == {("publish", "t.#")}


def test_a_lane_that_is_lost_before_it_has_answered_learns_it_too(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    _, b, _, _ = topics(edged)
    told = asked(edged, reader, Subscribe("publish", "#"))
    edged.links[1].lose()
    edged.settle()
    assert told == [Done()]
    edged.links[1].join()
    edged.publish(sender, Message(b))
    assert [copy.topic for copy in reader.copies] == [b]


def test_a_peer_that_a_lane_could_misunderstand_connects_again(edged: Edged) -> None:
    """The lane was away when it was told, and is back before the others have answered."""
    reader, reasons = edged.peer(), list[str]()
    reader.hang_up = reasons.append
    edged.links[1].lose()
    told = asked(edged, reader, Subscribe("publish", "#"))
    edged.links[1].join()
    assert told == reasons == []
    edged.settle()
    assert told == [Done()]
    assert reasons == ["lane 1 came back while all lanes were told Subscribe"]


@pytest.mark.parametrize("intent", [Heartbeat(), ResumeDeliveries()])
def test_a_lane_that_was_away_misses_nothing_by_what_changes_nothing(edged: Edged, intent: Any) -> None:
    peer, reasons = edged.peer(), list[str]()
    peer.hang_up = reasons.append
    edged.links[1].lose()
    told = asked(edged, peer, intent)
    edged.links[1].join()
    edged.settle()
    assert told == [Done()]
    assert reasons == []


def test_what_any_lane_can_tell_is_asked_of_one_that_is_there(edged: Edged) -> None:
    reader = edged.peer("reader")
    edged.perform(reader, Subscribe("publish", "#"))
    edged.links[0].lose()
    assert [row.id for row in edged.perform(reader, ListPeers()).rows] == ["reader"]
    assert [row.pattern for row in edged.perform(reader, ListSubscriptions()).rows] == ["#"]


def test_the_audit_stream_has_each_record_once(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "system.message"))
    assert edged.perform(sender, Audit(b"record")) == Done()
    assert [payload for _, payload in reader.announced] == [b"record"]


# ---- all lanes -------------------------------------------------------------------------------------------------------


def test_a_peer_that_leaves_is_gone_from_all_lanes(edged: Edged) -> None:
    peer = edged.peer()
    assert all(list(bench.broker.peers) == [peer.id] for bench in edged.benches)
    edged.edge.disconnect(peer)
    edged.settle()
    assert not any(bench.broker.peers for bench in edged.benches)
    assert not edged.edge._order._waiting


def test_one_refusal_refuses_what_all_lanes_are_told() -> None:
    edged = Edged(LANES, window=1000).join()
    peer, sender = edged.peer(), edged.peer()
    name = topic_in(edged, 2)
    edged.edge.perform(sender, Publish(batch_of(b"publish", Message(name, b"x" * 800))))
    told = asked(edged, peer, Subscribe("publish", "#"))
    wide = asked(edged, peer, Subscribe("publish", "w" * 200))
    edged.settle()
    assert [type(each) for each in told + wide] == [Done, BusyError]
    assert edged.perform(peer, Subscribe("publish", "w" * 200)) == Done()


def test_peers_pause_while_any_lane_is_behind() -> None:
    edged = Edged(LANES, window=1000).join()
    sender = edged.peer()
    a, b, _, _ = topics(edged)
    for name in (a, b):
        edged.edge.perform(sender, Publish(batch_of(b"publish", Message(name, b"x" * 600))))
    assert edged.pressed == [True]
    edged.link_of(a).settle()
    assert edged.pressed == [True]
    edged.settle()
    assert edged.pressed == [True, False]


def test_everything_before_is_committed_in_all_lanes_that_are_there(edged: Edged) -> None:
    told: list[Any] = []
    a, b, _, _ = topics(edged)
    reader, sender = edged.peer(), edged.peer()
    edged.perform(reader, Subscribe("publish", "#"))
    for name in (a, b):
        edged.edge.perform(sender, publish_of(name))
    edged.edge.after_commit(told.append)
    edged.link_of(a).settle()
    assert told == []
    edged.settle()
    edged.loop.advance(2)
    edged.settle()
    assert told == [None]
    edged.links[3].lose()
    edged.benches[1].journal.fail_next_commit()
    edged.edge.perform(sender, publish_of(b))
    edged.edge.after_commit(lambda error: told.append(type(error)))
    edged.settle()
    edged.loop.advance(2)
    edged.settle()
    assert told[1:] == [DiskFullError]
    for link in edged.links[:3]:
        link.lose()
    edged.edge.after_commit(lambda error: told.append(str(error).endswith(NOTHING)))
    assert told[2:] == [True]


def test_what_several_lanes_do_not_carry_is_refused_before_it_is_sent(edged: Edged) -> None:
    sender = edged.peer()
    a, b, _, _ = topics(edged)
    whole = Publish(publish_of(a, b).batch, whole=True)
    for intent in (whole, ReadTopic("q", "first", 1, 1)):
        assert isinstance(edged.perform(sender, intent), LanesError)
    assert edged.rows() == []
    batch = publish_of(a, a).batch
    batch.producer = b"ann"
    assert refused(edged.perform(sender, Publish(batch, whole=True))) == [(0, 2, NoRouteError)]


# ---- requests --------------------------------------------------------------------------------------------------------


def test_answers_find_the_lane_of_their_request(edged: Edged) -> None:
    asker, responder = edged.peer(), edged.peer()
    names = topics(edged)
    edged.perform(responder, Subscribe("request", "#"))
    edged.request(asker, *(Message(name, b"?" + name, b"id " + name) for name in names))
    assert len(responder.requests) == LANES
    # All in one batch, one of them with its id as parent only, and one that nobody has asked.
    ids = [request.forwarded_id for request, _ in responder.requests]
    told = edged.respond(
        responder, *(Message(payload=b"=" + each, id=each) for each in ids[1:]),
        Message(payload=b"=" + ids[0], parent=ids[0]), Message(payload=b"x", id=b"unknown"),
    )  # fmt: skip
    assert [each[:2] for each in refused(told)] == [(4, 5)]
    answered = {request.message_id: payload for request, payload, _ in asker.answers}
    wanted = {request.message_id: b"=" + request.forwarded_id for request, _ in responder.requests}
    assert answered == wanted
    # A second answer is stored with the first, in its lane.
    edged.respond(responder, Message(payload=b"again", id=ids[0]))
    lane = edged.table.lane_of(responder.requests[0][0].sent)
    kinds = [(row["kind"], row["error"]) for row in edged.benches[lane].rows()]
    assert kinds == [("request", None), ("response", None), ("response", "duplicate")]


def test_requests_open_in_a_lane_that_is_lost_fail_and_the_others_are_answered(edged: Edged) -> None:
    asker, responder = edged.peer(), edged.peer()
    a, b, _, _ = topics(edged)
    edged.perform(responder, Subscribe("request", "#"))
    edged.request(asker, Message(a, id=b"a"), Message(b, id=b"b"))
    edged.links[1].lose()
    assert [(request.message_id, str(error).endswith(UNKNOWN)) for request, error in asker.failures] == [(b"b", True)]
    answers = [Message(payload=b"=", id=request.forwarded_id) for request, _ in responder.requests]
    told = edged.respond(responder, *answers)
    assert [type(error) for _, _, error in told.refused] == [UnavailableError]
    assert [request.message_id for request, _, _ in asker.answers] == [b"a"]


def test_answers_that_nobody_has_asked_for_are_refused(edged: Edged) -> None:
    responder = edged.peer()
    told = asked(edged, responder, Respond(batch_of(b"response", Message(id=b"x"), Message(id=b"y"))))
    edged.settle()
    assert [each[:2] for each in refused(told[0])] == [(0, 1), (1, 2)]
    assert told[1:] == [("committed", None)]


def test_a_consumer_of_a_queue_answers_in_the_lane_of_the_queue(edged: Edged) -> None:
    """Under the masked id that it was given, and to a reply queue whose name may be that of any lane."""
    asker, consumer = edged.peer(), QueuePeer(edged)
    edged.edge.connect(consumer)
    for name in topics(edged):
        assert edged.perform(consumer, CreateQueue(name.decode())) == Done()
        assert edged.perform(consumer, Arm(name, b"t", window=-1)) == Done()
        told = edged.request(asker, Message(name, b"?", b"of " + name))
        assert told == Taken()
        (request,) = [entry.request for _, entry in consumer.holding]
        assert request is not None
        consumer.take()
        answer = Batch(1, wire=consumer.wire, kind=PUBLISH, topic=request.requester_id.encode(), payload=[b"=" + name])
        answer.message_id = [request.forwarded_id]
        assert edged.perform(consumer, Enqueue(answer)) == Taken()
        answered, payload, _ = asker.answers[-1]
        assert (answered.message_id, payload) == (b"of " + name, b"=" + name)
        assert edged.benches[edged.table.lane_of(name)].broker.queues.exists(name.decode())


def test_a_requester_fetches_a_late_answer_from_the_lane_of_its_request(edged: Edged) -> None:
    asker, consumer = QueuePeer(edged), QueuePeer(edged)
    for peer in (asker, consumer):
        edged.edge.connect(peer)
    for name in topics(edged):
        edged.perform(consumer, CreateQueue(name.decode()))
        edged.perform(consumer, Arm(name, b"t", window=-1))
        batch = Batch(1, wire=asker.wire, kind=REQUEST, topic=name, payload=[b"?"], message_id=[b"of " + name])
        batch.reply_to = b"replies"
        assert edged.perform(asker, EnqueueRequests(batch)) == Taken()
        for text in (b"first", b"second"):  # the second is a duplicate, which waits in the reply queue
            answer = Batch(1, wire=consumer.wire, kind=PUBLISH, topic=b"replies", payload=[text + name])
            answer.message_id = [b"of " + name]
            edged.perform(consumer, Enqueue(answer))
        assert asker.answers[-1][1] == b"first" + name
        assert edged.perform(asker, Arm(b"replies", b"of " + name)) == Done()
        assert asker.fetched[-1] == (b"of " + name, b"second" + name)


def stored_chains(edged: Edged) -> list[tuple[str, ...]]:
    """Of all publishes, by id: id, parent, root."""
    columns = ("message_id", "parent_id", "correlation_id")
    return sorted(tuple(row[name] for name in columns) for row in edged.rows() if row["kind"] == "publish")


def test_a_copy_is_the_parent_of_a_message_to_another_lane(edged: Edged) -> None:
    reader, sender = edged.peer(), edged.peer()
    a, b, c, d = topics(edged)
    edged.perform(reader, Subscribe("publish", "#"))
    edged.publish(sender, Message(a, id=b"1"))
    edged.publish(reader, Message(b, id=b"2", parent=reader.copies[-1].id))
    edged.publish(reader, Message(c, id=b"3", parent=reader.copies[-1].id.upper()))
    rooted = batch_of(b"publish", Message(d, id=b"4"))
    rooted.correlation_id = [b"case"]  # a root that its sender names
    edged.perform(sender, Publish(rooted))
    edged.publish(reader, Message(a, id=b"5", parent=reader.copies[-1].id))
    edged.publish(reader, Message(b, id=b"6", parent=b"unknown"))
    assert stored_chains(edged) == [
        ("1", None, "1"), ("2", "1", "1"), ("3", "2", "1"), ("4", None, "case"), ("5", "4", "case"),
        ("6", "unknown", "unknown"),
    ]  # fmt: skip


def test_a_request_is_the_parent_of_a_message_to_another_lane(edged: Edged) -> None:
    asker, responder = edged.peer(), edged.peer()
    a, b, _, _ = topics(edged)
    edged.perform(responder, Subscribe("request", a.decode()))
    edged.request(asker, Message(a, id=b"asked", parent=b"cause"))
    edged.publish(responder, Message(b, id=b"1", parent=responder.masked))
    assert stored_chains(edged) == [("1", "asked", "cause")]


def test_queues_of_all_lanes_are_listed_or_none(edged: Edged) -> None:
    asker = edged.peer()
    for name in topics(edged):
        assert edged.perform(asker, CreateQueue(name.decode())) == Done()
    listed = edged.perform(asker, ListQueues())
    assert {row.name for row in listed.rows} == {name.decode() for name in topics(edged)}
    edged.links[1].lose()
    assert isinstance(edged.perform(asker, ListQueues()), UnavailableError)


def test_messages_of_all_lanes_are_counted(edged: Edged) -> None:
    sender = edged.peer()
    for name in topics(edged):
        edged.publish(sender, Message(name), Message(name))
    told = edged.perform(sender, ReadMetrics())
    found = {row.name: row.value for row in told.rows}
    assert (found["router.publish.count"], found["registry.count"]) == (2 * len(topics(edged)), 1)


def test_a_message_of_a_queue_is_the_parent_of_a_message_to_another_lane(edged: Edged) -> None:
    """Also one of a peer of another process, whose chain this one has not seen."""
    consumer, foreign = QueuePeer(edged), edged.benches[1].peer()
    edged.edge.connect(consumer)
    _, b, c, _ = topics(edged)
    edged.perform(consumer, CreateQueue(b.decode()))
    edged.perform(consumer, Arm(b, b"t", window=-1))
    edged.benches[1].publish(foreign, Message(b, id=b"1", parent=b"cause"))
    edged.settle()
    (entry,) = [entry for _, entry in consumer.holding]
    edged.publish(consumer, Message(c, id=b"2", parent=entry.batch.item("message_id", entry.row)))
    assert stored_chains(edged) == [("1", "cause", "cause"), ("2", "1", "cause")]
