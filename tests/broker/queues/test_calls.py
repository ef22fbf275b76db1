"""Intents about queues, as a session sends them."""

from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.door import Door
from raceway.broker.queues.consumer import QueueConsumer
from raceway.errors import (
    ForbiddenError,
    NameReservedError,
    QueueKindError,
    RacewayError,
    TooManyFailuresError,
    UnauthenticatedError,
    UnknownQueueError,
)
from raceway.model.envelope import PUBLISH, REQUEST, ZBUS, Batch
from raceway.model.intents.batches import Taken
from raceway.model.intents.credentials import Authorization, Authorize, Credential
from raceway.model.intents.kinds import Done
from raceway.model.intents.queues import Arm, ConfirmDeliveries, CreateQueue, Enqueue, EnqueueRequests
from raceway.model.security import OWNER, Principal
from raceway.model.subscriptions import Start
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.doubles import Refusal, refusals
from tests.rigs.queues import MQ, TEMP, QueueBench, QueuePeer, name_of

ANYBODY = Principal("anonymous", "zbus")


@pytest.fixture
def bench() -> QueueBench:
    bench = QueueBench()
    bench.create()
    return bench


@pytest.fixture
def guarded() -> QueueBench:
    """With security on; `till` may produce to `q`."""
    bench = QueueBench()
    settings = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",))
    bench.broker = Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.loop.wall_us, settings)
    bench.broker.security.put_role("seller", ["Produce"])
    bench.broker.security.bind(Principal("service_account", "till"), "seller", "topic", "q")
    bench.create()
    return bench


def messages(*rows: tuple[bytes, bytes], kind: bytes = PUBLISH) -> Batch:
    """Rows of (queue, id); the payload is the id."""
    ids = [message_id for _, message_id in rows]
    batch = Batch(len(rows), wire=ZBUS, kind=kind, topic=[name for name, _ in rows], message_id=ids, payload=ids)
    if kind == REQUEST:
        batch.reply_to = b"box"
    return batch


def perform(bench: QueueBench, peer: QueuePeer, intent: Any, done: Any = None) -> Taken:
    outcome = bench.broker.perform(peer, intent, done)
    assert isinstance(outcome, Taken)
    return outcome


def published(bench: QueueBench) -> list[tuple[str, bytes]]:
    return [(row["topic"], row["payload"]) for row in bench.rows("publish")]


# ---- messages --------------------------------------------------------------------------------------------------------


def test_rows_of_one_read_are_stored_passed_on_as_answers_and_refused_each_by_itself(bench: QueueBench) -> None:
    asker, service, owner = bench.peer(), bench.peer(), bench.peer()
    bench.create("results")
    bench.broker.reply_queues.open(b"of another", owner)
    bench.arm(service, window=-1)
    bench.ask(asker, b"r-1", b"r-2", reply_to=b"box")
    bench.ask(asker, b"r-3", reply_to=b"results")
    bench.settle()
    done: list[Any] = []
    rows = [
        (b"q", b"stored"), (b"box", b"r-2"), (b"nosuch", b"x"), (b"box", b"r-1"), (b"results", b"r-3"),
        (b"results", b"no answer"), (b"of another", b"r-1"), (b"system.log", b"y"),
    ]  # fmt: skip
    errors = [None, b"500", *[None] * 6]
    taken = perform(bench, service, Enqueue(messages(*rows), errors=errors), done.append)
    assert sorted(refusals(taken)) == [
        Refusal(2, 3, UnknownQueueError), Refusal(6, 7, ForbiddenError), Refusal(7, 8, NameReservedError),
    ]  # fmt: skip
    assert [(request.message_id, error) for request, _, error in asker.answers] == [
        (b"r-2", b"500"), (b"r-1", None), (b"r-3", None),
    ]  # fmt: skip
    assert done == [], "after the commits"
    assert published(bench) == [("q", b"stored"), ("results", b"no answer")]
    assert [row["error"] for row in bench.rows("response")] == ["500", None, None]
    assert done == [None]


def test_when_every_row_is_refused_nothing_is_committed(bench: QueueBench) -> None:
    done: list[Any] = []
    taken = perform(bench, bench.peer(), Enqueue(messages((b"a", b"1"), (b"b", b"2"))), done.append)
    bench.settle()
    assert (refusals(taken), done) == ([Refusal(0, 1, UnknownQueueError), Refusal(1, 2, UnknownQueueError)], [])


def test_a_known_topic_without_subscribers_takes_messages(bench: QueueBench) -> None:
    bench.produce(b"first", name="known")
    assert perform(bench, bench.peer(), Enqueue(messages((b"known", b"1")))).refused == ()
    assert published(bench)[-1] == ("known", b"1")


def test_parts_of_a_read_fail_by_themselves(bench: QueueBench) -> None:
    bench.faulty.refuse_writes()
    taken = perform(bench, bench.peer(), Enqueue(messages((b"q", b"1"), (b"nosuch", b"2"))))
    assert [(start, stop, error.code) for start, stop, error in taken.refused] == [
        (1, 2, "unknown_queue"), (0, 1, "read_only"),
    ]  # fmt: skip


def test_requests_open_their_reply_queue_unless_it_is_a_queue(bench: QueueBench) -> None:
    asker = bench.peer()
    taken = perform(bench, asker, EnqueueRequests(messages((b"q", b"1"), (b"nosuch", b"2"), kind=REQUEST)))
    assert refusals(taken) == [Refusal(1, 2, UnknownQueueError)]
    box = bench.broker.reply_queues.maybe_get(b"box")
    assert box is not None
    assert box.owner is asker
    batch = messages((b"q", b"3"), kind=REQUEST)
    batch.reply_to = b"q"
    perform(bench, asker, EnqueueRequests(batch))
    assert bench.broker.reply_queues.maybe_get(b"q") is None


def test_a_request_goes_to_a_responder_of_another_wire_if_there_is_no_queue(bench: QueueBench) -> None:
    responder = bench.foreign_peer(answers="elsewhere")
    assert perform(bench, bench.peer(), EnqueueRequests(messages((b"elsewhere", b"1"), kind=REQUEST))).refused == ()
    assert len(responder.requests) == 1


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_each_token_is_a_principal_of_its_own(guarded: QueueBench) -> None:
    tokens = [token("till").encode(), None, token("nobody").encode(), token("till").encode(), token("root").encode()]
    batch, done = messages(*[(b"q", b"%d" % row) for row in range(5)]), []  # type: ignore[var-annotated]
    taken = perform(guarded, guarded.peer(), Enqueue(batch, tokens), done.append)
    assert refusals(taken) == [Refusal(1, 2, ForbiddenError), Refusal(2, 3, ForbiddenError)]
    assert [payload for _, payload in published(guarded)] == [b"0", b"3", b"4"]
    assert done == [None]


def test_the_token_of_a_queue_is_checked_and_guesses_are_slowed_down(bench: QueueBench) -> None:
    bench.create("vault", token="s3cret")
    bench.broker.security.guesses._free = 2
    knows, guesses = bench.peer(), bench.peer()
    assert perform(bench, knows, Enqueue(messages((b"vault", b"1")), b"s3cret")).refused == ()
    for error in (ForbiddenError, ForbiddenError, TooManyFailuresError):
        taken = perform(bench, guesses, Enqueue(messages((b"vault", b"2")), b"guess"))
        assert refusals(taken) == [Refusal(0, 1, error)]
    with pytest.raises(TooManyFailuresError):
        bench.broker.perform(guesses, Arm(b"vault", b"t", token=b"s3cret"))
    assert perform(bench, knows, Enqueue(messages((b"vault", b"3")), b"s3cret")).refused == (), "it has shown the token"
    bench.leave(knows)
    assert bench.broker._queue_calls._access._proven == {}


# ---- consumers -------------------------------------------------------------------------------------------------------


def test_a_consumer_arms_a_queue_or_its_own_reply_queue(bench: QueueBench) -> None:
    peer, other = bench.peer(), bench.peer()
    bench.produce(b"1")
    bench.settle()
    assert bench.broker.perform(peer, Arm(b"q", b"t-1")) == Done()
    assert peer.handed == [(b"t-1", b"1")]
    bench.broker.reply_queues.open(b"box", peer)
    assert bench.broker.perform(peer, Arm(b"box", b"r-1")) == Done()
    with pytest.raises(UnknownQueueError):
        bench.broker.perform(other, Arm(b"box", b"r-1"))


def test_only_the_consumer_that_holds_a_message_can_confirm_it(bench: QueueBench) -> None:
    peer, other = bench.peer(), bench.peer()
    bench.arm(peer)
    bench.produce(b"1")
    bench.settle()
    for wrong in ([("q", 0)], [("nosuch", 0)]):
        bench.broker.perform(other, ConfirmDeliveries(wrong))
    bench.broker.perform(peer, ConfirmDeliveries([("q", 7)]))
    assert bench.queue().backlog == 1
    peer.take()
    assert bench.queue().backlog == 0


def test_a_message_that_was_given_back_is_not_confirmed_by_its_first_consumer(bench: QueueBench) -> None:
    first, second = bench.peer(), bench.peer()
    bench.arm(first)
    bench.produce(b"1")
    bench.settle()
    bench.broker.disconnect(first)
    bench.arm(second)
    first.take()
    assert (second.payloads, bench.queue().backlog) == ([b"1"], 1)


def test_a_request_of_another_wire_is_delivered_under_a_name_made_for_it(bench: QueueBench) -> None:
    service, asker = bench.peer(), bench.foreign_peer()
    bench.arm(service)
    bench.ask(asker, b"r-1")
    bench.settle()
    ((_, entry),) = service.holding
    assert entry.request is not None
    assert entry.request.name == (asker.id.encode(), name_of(entry))
    assert name_of(entry) != b"r-1"


# ---- administration --------------------------------------------------------------------------------------------------


def test_a_queue_is_created_once_and_goes_with_its_peer_if_temporary(bench: QueueBench) -> None:
    peer = bench.peer()
    create = CreateQueue("mine", MQ | TEMP, maker="127.0.0.1:9", credential=Credential(None))
    door, outcomes = Door(bench.broker), list[Any]()
    for call in (create, create, CreateQueue("mine", 2), CreateQueue("stays", MQ, start=Start("first"))):
        door.perform(peer, call, outcomes.append)
        bench.settle()
    assert outcomes[:2] == [Done(), Done(changed=False)]
    assert isinstance(outcomes[2], QueueKindError)
    bench.leave(peer)
    assert [name for name, _, _ in bench.broker.queues] == ["q", "stays"]


@pytest.mark.parametrize(
    ("admin_token", "code", "given", "wanted"),
    [
        ("", "", b"anything", ANYBODY),
        ("", "reporter", None, ANYBODY),
        ("boss", "", b"boss", ANYBODY),
        ("boss", "", None, UnauthenticatedError),
        ("boss", "reporter", b"reporter", UnauthenticatedError),
    ],
)
def test_with_security_off_an_administrator_needs_the_token_if_there_is_one(
    bench: QueueBench, admin_token: str, code: str, given: bytes | None, wanted: Principal | type[RacewayError]
) -> None:
    bench.broker.security.admin_token = admin_token
    assert authorized(bench, Credential(given, code)) == wanted


@pytest.mark.parametrize(
    ("admin_token", "code", "given", "wanted"),
    [
        ("", "", None, ForbiddenError),
        ("", "reporter", b"reporter", OWNER),
        ("", "reporter", b"wrong", ForbiddenError),
        ("boss", "reporter", b"reporter", OWNER),
        ("boss", "", b"boss", OWNER),
        ("boss", "", b"wrong", UnauthenticatedError),
        ("boss", "", token("root").encode(), Principal("service_account", "root")),
        ("boss", "", token("till").encode(), ForbiddenError),
    ],
)
def test_with_security_on_the_permission_of_the_principal_counts_too(
    guarded: QueueBench, admin_token: str, code: str, given: bytes | None, wanted: Principal | type[RacewayError]
) -> None:
    guarded.broker.security.admin_token = admin_token
    assert authorized(guarded, Credential(given, code)) == wanted


def authorized(bench: QueueBench, credential: Credential) -> Principal | type[RacewayError]:
    peer: QueueConsumer = bench.peer()
    try:
        outcome = bench.broker.perform(peer, Authorize(credential, "Lookup"))
    except RacewayError as error:
        return type(error)
    assert isinstance(outcome, Authorization)
    return outcome.principal
