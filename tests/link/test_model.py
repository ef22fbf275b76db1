"""Whatever peers do, they are told over the link, and over several, what they would be told by the door itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.broker.door import Door
from raceway.errors import RacewayError
from raceway.model.intents.batches import AskAll, Publish, Request, Respond
from raceway.model.intents.peers import ListSubscriptions, Subscribe, Unsubscribe
from tests.rigs.doubles import Bench, Message, RecordingPeer, batch_of
from tests.rigs.edged import Edged
from tests.rigs.linked import Linked

PEERS = 3
TOPICS = st.sampled_from([b"a", b"A", b"a.b", b"b", b"system.x", b"a..b"])
PATTERNS = st.sampled_from(["a", "a.#", "#", "b", "a..b"])
KINDS = st.sampled_from(["publish", "request", "all"])
STEPS = st.one_of(
    st.tuples(st.just("subscribe"), st.integers(0, PEERS - 1), KINDS, PATTERNS),
    st.tuples(st.just("unsubscribe"), st.integers(0, PEERS - 1), KINDS, PATTERNS),
    st.tuples(st.just("publish"), st.integers(0, PEERS - 1), st.lists(TOPICS, min_size=1, max_size=4)),
    st.tuples(st.just("request"), st.integers(0, PEERS - 1), st.lists(TOPICS, min_size=1, max_size=3)),
    st.tuples(st.just("ask all"), st.integers(0, PEERS - 1), TOPICS),
    st.tuples(st.just("answer"), st.integers(0, PEERS - 1), st.integers(0, 3)),
    st.tuples(
        st.just("follow"), st.integers(0, PEERS - 1), st.integers(0, 3), st.lists(TOPICS, min_size=1, max_size=3)
    ),
    st.tuples(st.just("wait"), st.integers(0, PEERS - 1)),
    st.tuples(st.just("list"), st.integers(0, PEERS - 1)),
)


class Direct:
    """The door itself, with the methods of `Linked` that a story needs."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.loop, self.rows = self.bench.loop, self.bench.rows
        self._door = Door(self.bench.broker)

    def settle(self) -> None:
        self.loop.settle()

    def peer(self, name: str) -> RecordingPeer:
        peer = RecordingPeer(name)
        self._door.connect(peer)
        return peer

    def perform(self, peer: RecordingPeer, intent: Any) -> Any:
        told: list[Any] = []
        self._door.perform(peer, intent, told.append)
        self.loop.settle()
        return told[0]


class Story:
    """The same steps, on either."""

    def __init__(self, bus: Direct | Linked | Edged) -> None:
        self._bus = bus
        self.peers = [bus.peer(f"p{number}") for number in range(PEERS)]
        self._made = 0

    def _messages(self, topics: list[bytes]) -> list[Message]:
        self._made += 1
        return [
            Message(topic, b"%d.%d" % (self._made, at), b"m%d.%d" % (self._made, at)) for at, topic in enumerate(topics)
        ]

    def run(self, step: Any) -> Any:
        what, number, *asked = step
        peer, perform = self.peers[number], self._bus.perform
        match what, asked:
            case "subscribe", [kind, pattern]:
                return perform(peer, Subscribe(kind, pattern))
            case "unsubscribe", [kind, pattern]:
                return perform(peer, Unsubscribe(kind, pattern))
            case "publish", [topics]:
                return perform(peer, Publish(batch_of(b"publish", *self._messages(topics))))
            case "request", [topics]:
                return perform(peer, Request(batch_of(b"request", *self._messages(topics))))
            case "ask all", [topic]:
                return perform(peer, AskAll(batch_of(b"request", *self._messages([topic])), 2))
            case "answer", [at] if at < len(peer.requests):
                # Requests to several lanes come in any order.
                requests = sorted((request.message_id, request.forwarded_id) for request, _ in peer.requests)
                answer = Message(payload=b"answer", id=requests[at][1])
                return perform(peer, Respond(batch_of(b"response", answer)))
            case "follow", [at, topics] if peer.copies or peer.requests:
                # Because of a copy or a request that it has got, whichever lane it came from.
                got = [(copy.payload, copy.id) for copy in peer.copies]
                got += [(payload, request.forwarded_id) for request, payload in peer.requests]
                parent = sorted(got)[-1 - at % len(got)][1]
                messages = [message._replace(parent=parent) for message in self._messages(topics)]
                return perform(peer, Publish(batch_of(b"publish", *messages)))
            case "list", []:
                return perform(peer, ListSubscriptions())
            case "wait", []:
                self._bus.loop.advance(40)
                self._bus.settle()
        return None

    def seen(self) -> list[Any]:
        """What each peer was given, without the ids, which are chance."""
        return [
            (
                [(copy.topic, copy.payload) for copy in peer.copies],
                [(request.sent, request.requester_id, payload) for request, payload in peer.requests],
                [(request.message_id, payload, error) for request, payload, error in peer.answers],
                [(request.message_id, type(error), str(error)) for request, error in peer.failures],
            )
            for peer in self.peers
        ]

    def stored(self) -> list[Any]:
        columns = ("topic", "offset", "kind", "payload", "message_id", "parent_id", "correlation_id")
        return [tuple(row[name] for name in columns) for row in self._bus.rows()]


def comparable(outcome: Any) -> Any:
    """An outcome without the texts of its errors: the ids in them are chance."""
    if isinstance(outcome, RacewayError):
        return type(outcome), outcome.code
    refused = getattr(outcome, "refused", None)
    if refused is None:
        return outcome
    return {row: type(error) for start, stop, error in refused for row in range(start, stop)}


def by_topic(rows: list[Any]) -> list[Any]:
    """Rows that begin with their topic: those of one topic in order, which is all that lanes promise."""
    return sorted(rows, key=lambda row: row[0].lower())


@settings(deadline=None)
@given(st.lists(STEPS, max_size=25), st.sampled_from([1, 7, 65536]))
def test_the_link_tells_what_the_door_tells(steps: list[Any], piece: int) -> None:
    direct, linked = Story(Direct()), Story(Linked(piece).join())
    # Which of several responders is asked is chance: only the first may answer requests to one.
    for step in steps:
        if step[0] in ("subscribe",) and step[2] != "publish" and step[1] != 0:
            continue
        assert comparable(direct.run(step)) == comparable(linked.run(step))
        assert direct.seen() == linked.seen()
    assert direct.stored() == linked.stored()


@settings(deadline=None)
@given(st.lists(STEPS, max_size=25), st.integers(2, 5), st.sampled_from([7, 65536]))
def test_several_lanes_tell_what_one_broker_tells(steps: list[Any], lanes: int, piece: int) -> None:
    one, several = Story(Direct()), Story(Edged(lanes, piece).join())
    for step in steps:
        if step[0] in ("subscribe",) and step[2] != "publish" and step[1] != 0:
            continue
        assert comparable(one.run(step)) == comparable(several.run(step))
        for here, there in zip(one.seen(), several.seen(), strict=True):
            (copies, requests, answers, failures), (*others, more_answers, more_failures) = here, there
            assert [by_topic(copies), by_topic(requests)] == [by_topic(each) for each in others]
            assert sorted(answers) == sorted(more_answers)
            assert sorted(failures, key=str) == sorted(more_failures, key=str)
    assert by_topic(one.stored()) == by_topic(several.stored())
