"""Which lane gets which rows: by name, but for answers, which go where their request went."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import LanesError
from raceway.link import splitting
from raceway.link.codec.bodies import RequestBody
from raceway.link.splitting import LanePart, Splitter
from raceway.model.envelope import PUBLISH, ZBUS, Batch
from raceway.model.intents.administration import PurgeQueue, RemoveQueue
from raceway.model.intents.batches import Park, Publish, Respond
from raceway.model.intents.peers import ListPeers, ReadMetrics
from raceway.model.intents.queues import Arm, ConfirmDeliveries, CreateQueue, Enqueue, EnqueueRequests
from raceway.model.lanes import LaneTable
from tests.rigs.doubles import Message, batch_of, new_id

LANES, OTHER = 4, 9
TABLE = LaneTable(LANES)
# A name of each lane.
NAMES = [next(b"q%d" % at for at in range(1000) if TABLE.lane_of(b"q%d" % at) == lane) for lane in range(LANES)]
ROWS = st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=3), st.none() | st.binary(max_size=3)), min_size=1)


@pytest.fixture
def splitter() -> Splitter:
    return Splitter(TABLE)


def request(forwarded_id: bytes, name: tuple[bytes, bytes] | None = None) -> RequestBody:
    return RequestBody("sum", b"sum", b"1.0.0", b"id", forwarded_id, b"id", 0, 0, "asker", "me", "asker", name)


def queued(names: list[bytes], ids: list[bytes], reply_to: bytes | None = None) -> Batch:
    return Batch(
        len(names), topic=names, message_id=ids, reply_to=reply_to, kind=PUBLISH, wire=ZBUS, payload=[b""] * len(names)
    )


def lanes_of(parts: list[LanePart]) -> dict[int, list[int]]:
    return {part.lane: part.rows for part in parts}


@given(ROWS)
def test_each_row_is_in_one_part_with_its_token_and_its_error(rows: list[tuple[bytes, bytes, bytes | None]]) -> None:
    names, payloads, tokens = (list(column) for column in zip(*rows, strict=True))
    batch = queued(names, [b"%d" % at for at in range(len(rows))])
    batch.payload = payloads
    found: dict[int, Any] = {}
    for lane, part, numbers in Splitter(TABLE).parts(Enqueue(batch, tokens, tokens[::-1]), OTHER):
        assert isinstance(part, Enqueue)
        for at, row in enumerate(numbers or range(batch.count)):
            item = part.batch.item
            assert row not in found
            assert TABLE.lane_of(item("topic", at)) == lane
            assert type(part.tokens) is type(part.errors) is list
            found[row] = (item("topic", at), item("payload", at), part.tokens[at], part.errors[at])
    wanted = zip(names, payloads, tokens, tokens[::-1], strict=True)
    assert [found[row] for row in range(len(rows))] == list(wanted)


def test_a_batch_of_one_lane_is_passed_on_as_it_is(splitter: Splitter) -> None:
    for batch in (
        batch_of(b"publish", Message(NAMES[1])),
        batch_of(b"publish", Message(NAMES[1]), Message(NAMES[1].upper())),
    ):
        intent = Publish(batch, whole=True)
        assert splitter.parts(intent, OTHER) == [(1, intent, [])]


def test_what_cannot_be_split_is_refused(splitter: Splitter) -> None:
    batch = batch_of(b"publish", Message(NAMES[1]), Message(NAMES[2]))
    for intent in (Publish(batch, whole=True), ReadMetrics()):
        with pytest.raises(LanesError, match="several lanes"):
            splitter.parts(intent, OTHER)


def test_queues_are_in_the_lanes_of_their_names(splitter: Splitter) -> None:
    for lane, name in enumerate(NAMES):
        text = name.decode()
        for intent in (CreateQueue(text), PurgeQueue(text, None), RemoveQueue(text, None), Arm(name, b"ticket")):
            assert splitter.parts(intent, OTHER) == [(lane, intent, [])]
    assert splitter.parts(ListPeers(), OTHER) == [(OTHER, ListPeers(), [])]


def test_a_message_that_nobody_accepts_is_kept_in_its_lane(splitter: Splitter) -> None:
    batch = batch_of(b"publish", Message(NAMES[1]), Message(NAMES[2]))
    for row, lane in enumerate((1, 2)):
        park = Park(batch, row, "receiver", "reason")
        assert splitter.parts(park, OTHER) == [(lane, park, [])]


def test_confirmed_deliveries_go_to_the_lanes_of_their_queues(splitter: Splitter) -> None:
    one, two = NAMES[1].decode(), NAMES[2].decode()
    parts = splitter.parts(ConfirmDeliveries([(one, 1), (two, 1), (one, 2)]), OTHER)
    assert parts == [(1, ConfirmDeliveries([(one, 1), (one, 2)]), []), (2, ConfirmDeliveries([(two, 1)]), [])]
    assert splitter.parts(ConfirmDeliveries([]), OTHER) == [(OTHER, ConfirmDeliveries([]), [])]


def test_answers_go_to_the_lane_of_their_request(splitter: Splitter) -> None:
    """By id or by parent, whatever the case of the id. Unknown ones go to any lane, which refuses them."""
    first, second = new_id(), new_id()
    splitter.note_forwarded(1, [request(first)])
    splitter.note_forwarded(2, [request(second)])
    answers = batch_of(
        b"response", Message(id=second), Message(id=b"unknown", parent=first.upper()), Message(id=b"unknown"), Message()
    )
    assert lanes_of(splitter.parts(Respond(answers), OTHER)) == {2: [0], 1: [1], OTHER: [2, 3]}


def test_answers_through_queues_go_to_the_lane_of_their_request_too(splitter: Splitter) -> None:
    asked = splitter.parts(EnqueueRequests(queued([NAMES[1], NAMES[2]], [b"one", b"two"], b"replies")), OTHER)
    assert lanes_of(asked) == {1: [0], 2: [1]}
    # One that a peer of another process has sent, delivered under a name of its own.
    splitter.note_forwarded(3, [request(new_id(), (b"asker", b"masked"))])
    answers = queued([b"replies", b"replies", b"asker", NAMES[0]], [b"two", b"one", b"masked", b"one"])
    assert lanes_of(splitter.parts(Enqueue(answers), OTHER)) == {2: [0], 1: [1], 3: [2], 0: [3]}
    # Fetched by id, from the reply queue that its lane has.
    assert [splitter.parts(Arm(b"replies", each), OTHER)[0].lane for each in (b"one", b"two")] == [1, 2]
    unknown = TABLE.lane_of(b"replies")
    assert splitter.parts(Arm(b"replies", b"three"), OTHER)[0].lane == unknown


def test_remembered_requests_are_bounded(splitter: Splitter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "KEPT_REQUESTS", 3)
    ids = [new_id() for _ in range(5)]
    splitter.note_forwarded(2, [request(each) for each in ids])
    answers = batch_of(b"response", *(Message(id=each) for each in ids))
    # The oldest are looked for in the wrong lane, which does not know them: their requesters wait for the deadline.
    assert lanes_of(splitter.parts(Respond(answers), OTHER)) == {OTHER: [0, 1], 2: [2, 3, 4]}
