"""What MB traffic leaves in the journal, read back with the journal's reader after the server has ended.

One play is performed once; each test looks at the rows from its own side.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raceway.journal.read.reader import Reader
from tests.rigs.mb_wire import SUCCESS, UUID4, Message, Peer, Transport, compose, connect, new_id
from tests.rigs.server import Server, running_server, wait_until

Row = dict[str, Any]
LONG_MS = 60_000
BINARY = bytes(range(256)) + b"\n\xff\xfe"


class Play(NamedTuple):
    """The rows that the play left, and what its actors saw."""

    rows: list[Row]
    seen: dict[str, Any]

    def of(self, topic: str, kind: str | None = None) -> list[Row]:
        return [row for row in self.rows if row["topic"] == topic and kind in (None, row["kind"])]

    def one(self, topic: str, kind: str | None = None) -> Row:
        (row,) = self.of(topic, kind)
        return row


def read_rows(folder: Path) -> list[Row]:
    return [row for batch in Reader(folder).read(0) for row in batch.to_pylist()]


@pytest.fixture(scope="module", params=["tcp", "websocket"])
def play(request: pytest.FixtureRequest) -> Iterator[Play]:
    transport: Transport = request.param
    seen: dict[str, Any] = {}
    with running_server() as server:
        with connect(server, transport) as front, connect(server, transport) as middle, connect(server, "tcp") as back:
            seen["ids"] = {"front": front.service_id(), "middle": middle.service_id(), "back": back.service_id()}
            back.register("the-back")
            perform_publishes(front, back, seen)
            perform_chain(front, middle, back, seen)
            perform_failures(front, middle, seen)
            perform_what_is_not_kept(front)
        server.stop()
        yield Play(read_rows(server.data), seen)


def perform_publishes(front: Peer, back: Peer, seen: dict[str, Any]) -> None:
    """On one topic: publishes with and without ids from two services, and requests."""
    back.subscribe("Orders.New")
    back.subscribe("Orders.New", "request")
    seen["orders"] = [new_id() for _ in range(60)]
    front.write_messages(compose(f"publish:Orders.NEW:1.2.3:{i}", str(n)) for n, i in enumerate(seen["orders"]))
    assert all(front.reply(i).payload == SUCCESS for i in seen["orders"])
    front.write_messages([compose("publish:orders.new:1.0.0", b"no id")] * 10)
    back.publish("orders.new", b"by back")
    for _ in range(5):
        message_id = new_id()
        front.send(f"request:orders.new:1.0.0:{message_id}")
        back.serve_one(b"ok")
        front.reply(message_id)
    seen["copies"] = [message for message in back.settled() if message.topic == "Orders.NEW"]
    assert front.publish("nobody.listens", BINARY).payload != SUCCESS
    back.unsubscribe("Orders.New")


def perform_chain(front: Peer, middle: Peer, back: Peer, seen: dict[str, Any]) -> None:
    """front asks middle, which asks back, which publishes: each names as parent the id it was handed."""
    middle.subscribe("chain.outer", "request")
    back.subscribe("chain.inner", "request")
    front.subscribe("chain.news")
    seen["root"], seen["inner"], seen["news"] = new_id(), new_id(), new_id()
    front.send(f"request:Chain.Outer:2.0.0:{seen['root']}::{LONG_MS}", BINARY)
    outer = seen["outer masked"] = middle.next_request()
    middle.send(f"request:chain.inner:1.0.0:{seen['inner']}:{outer.id}:{LONG_MS}", b"inner?")
    inner = seen["inner masked"] = back.next_request()
    back.send(f"publish:chain.news:1.0.0:{seen['news']}:{inner.id}", b"news")
    back.reply(seen["news"])
    back.answer(inner, b"inner!")
    middle.reply(seen["inner"])
    middle.answer(outer, BINARY)
    front.reply(seen["root"])
    seen["stranger"] = new_id()
    front.send(f"publish:chain.news:1.0.0:{new_id()}:{seen['stranger']}", b"of a parent nobody knows")
    front.settled()


def perform_failures(front: Peer, middle: Peer, seen: dict[str, Any]) -> None:
    middle.subscribe("answers.many", "request")
    for topic, answers in {
        "answers.many": [b"first", b"second", b"third"],
        "answers.failed": [b'{"error":{"code":"BROKEN","message":"m"}}'],
        "answers.prefixed": [b'error:{"code":"WORSE","message":"m","timestamp":"t"}'],
    }.items():
        middle.subscribe(topic, "request")
        message_id = new_id()
        front.send(f"request:{topic}:1.0.0:{message_id}::{LONG_MS}")
        request: Message = middle.next_request()
        for answer in answers:
            middle.answer(request, answer)
        front.reply(message_id)
        middle.settled()
    middle.subscribe("answers.late", "request")
    assert front.ask("answers.late", timeout_ms=1).json()["error"]["code"] == "TIMEOUT"
    seen["late"] = middle.serve_one(b"too late")
    middle.settled()


def perform_what_is_not_kept(front: Peer) -> None:
    front.send(f"response:answers.unknown:1.0.0:{new_id()}", b"to nothing")
    front.send("publish:not_a_topic:1.0.0", b"malformed")
    front.send("publish:answers.toolong:1.0.0", b"x" * 16_385)
    front.send("publish:system.message:1.0.0", b"forged")
    front.settled()


# ---- positions and offsets -------------------------------------------------------------------------------------------


def test_sequences_rise_and_times_never_go_back(play: Play) -> None:
    sequences = [row["sequence"] for row in play.rows]
    assert sequences == sorted(set(sequences))
    times = [row["time_us"] for row in play.rows]
    assert times == sorted(times)
    assert {row["partition"] for row in play.rows} == {0}


def test_offsets_are_dense_from_zero_over_publishes_and_requests_of_a_topic(play: Play) -> None:
    rows = [row for row in play.of("orders.new") if row["kind"] in ("publish", "request")]
    assert [row["offset"] for row in rows] == list(range(60 + 10 + 1 + 5))
    assert {row["offset"] for row in play.rows if row["kind"] in ("response", "control")} == {None}


def test_topics_are_kept_in_lower_case(play: Play) -> None:
    names = {row["topic"] for row in play.rows if row["kind"] != "control"}
    assert names == {name.lower() for name in names}
    assert {"orders.new", "chain.outer"} <= names


def test_publishes_are_kept_in_order_with_id_version_payload_and_wire(play: Play) -> None:
    rows = play.of("orders.new", "publish")[:60]
    assert [row["message_id"] for row in rows] == play.seen["orders"]
    assert [row["payload"] for row in rows] == [str(n).encode() for n in range(60)]
    assert {(row["version"], row["wire"], row["parent_id"], row["error"]) for row in rows} == {
        ("1.2.3", "mb", None, None)
    }


def test_a_publish_keeps_the_id_under_which_it_was_delivered(play: Play) -> None:
    rows = play.of("orders.new", "publish")[:60]
    assert [row["forwarded_id"] for row in rows] == [copy.id for copy in play.seen["copies"]]


def test_a_publish_without_id_is_given_one(play: Play) -> None:
    rows = [row for row in play.of("orders.new", "publish") if row["payload"] == b"no id"]
    ids = {row["message_id"] for row in rows}
    assert len(ids) == 10
    assert all(UUID4.fullmatch(i) for i in ids)


def test_a_publish_without_subscriber_is_kept_all_the_same(play: Play) -> None:
    """Its payload is the original bytes, not what MB would show."""
    row = play.one("nobody.listens")
    assert (row["kind"], row["offset"], row["payload"]) == ("publish", 0, BINARY)


def test_the_producer_is_the_services_name_or_else_its_id(play: Play) -> None:
    by_back = [row["producer"] for row in play.of("orders.new", "publish") if row["payload"] == b"by back"]
    assert by_back == ["the-back"]
    assert {row["producer"] for row in play.of("orders.new", "publish")[:60]} == {play.seen["ids"]["front"]}


def test_attributes_are_empty_and_never_missing(play: Play) -> None:
    assert all(row["attributes"] is not None and row["hops"] is not None for row in play.rows)


# ---- requests and answers --------------------------------------------------------------------------------------------


def test_a_request_keeps_its_id_the_masked_id_and_its_timeout(play: Play) -> None:
    row = play.one("chain.outer", "request")
    assert (row["message_id"], row["timeout_ms"], row["version"]) == (play.seen["root"], LONG_MS, "2.0.0")
    assert row["forwarded_id"] == play.seen["outer masked"].id
    assert (row["offset"], row["payload"], row["answers"]) == (0, BINARY, None)


def test_an_answer_points_at_its_request(play: Play) -> None:
    request, answer = play.one("chain.outer", "request"), play.one("chain.outer", "response")
    assert answer["answers"] == request["sequence"]
    assert answer["message_id"] == request["message_id"]
    assert (answer["payload"], answer["error"], answer["offset"]) == (BINARY, None, None)
    assert answer["producer"] == play.seen["ids"]["middle"]


def test_an_answer_carries_the_hop_with_times_in_order(play: Play) -> None:
    request, answer = play.one("chain.outer", "request"), play.one("chain.outer", "response")
    hop = answer["hops"][-1]
    assert (hop["sid"], hop["rid"]) == (play.seen["ids"]["front"], play.seen["ids"]["middle"])
    assert hop["mid"] in (request["message_id"], request["forwarded_id"])
    times = [time for time in hop["tms"] if time is not None]
    assert len(times) >= 3, "accepted, handed over, answered"
    assert times == sorted(times)
    assert request["time_us"] // 1000 - 100 <= times[0] <= times[-1] <= answer["time_us"] // 1000 + 100


def test_parents_are_unmasked(play: Play) -> None:
    assert play.one("chain.inner", "request")["parent_id"] == play.seen["root"]
    news, stranger = play.of("chain.news")
    assert news["parent_id"] == play.seen["inner"]
    assert stranger["parent_id"] == play.seen["stranger"]


def test_one_correlation_id_runs_along_the_whole_chain(play: Play) -> None:
    chain = [*play.of("chain.outer"), *play.of("chain.inner"), play.of("chain.news")[0]]
    assert len(chain) == 5
    assert {row["correlation_id"] for row in chain} == {play.seen["root"]}


def test_a_root_is_its_own_correlation(play: Play) -> None:
    for row in play.of("orders.new", "publish"):
        assert row["correlation_id"] == row["message_id"]


def test_a_second_answer_is_kept_as_a_duplicate(play: Play) -> None:
    request = play.one("answers.many", "request")
    answers = play.of("answers.many", "response")
    assert [(row["payload"], row["error"]) for row in answers] == [
        (b"first", None),
        (b"second", "duplicate"),
        (b"third", "duplicate"),
    ]
    assert {row["answers"] for row in answers} == {request["sequence"]}


def test_a_late_answer_is_kept_as_late(play: Play) -> None:
    request, answer = play.of("answers.late")
    assert (answer["error"], answer["payload"], answer["answers"]) == ("late", b"too late", request["sequence"])


def test_a_failed_answer_keeps_its_error_code(play: Play) -> None:
    assert play.one("answers.failed", "response")["error"] == "BROKEN"
    assert play.one("answers.prefixed", "response")["error"] == "WORSE"


def test_what_breaks_the_protocol_and_what_answers_nothing_is_not_kept(play: Play) -> None:
    payloads = {row["payload"] for row in play.rows}
    assert payloads.isdisjoint({b"to nothing", b"malformed", b"x" * 16_385, b"forged"})
    assert not [row for row in play.rows if row["topic"].startswith("system.")]


# ---- while it runs ---------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_can_be_read_while_the_server_runs_and_after_a_kill(server: Server) -> None:
    ids = [new_id() for _ in range(200)]
    with connect(server, "tcp") as peer:
        peer.subscribe("live.topic")
        peer.write_messages(compose(f"publish:live.topic:1.0.0:{i}", i) for i in ids)
        for message_id in ids:
            peer.reply(message_id)
        rows = [row for row in read_rows(server.data) if row["topic"] == "live.topic"]
        assert [row["message_id"] for row in rows] == ids
    server.kill()
    server.restart()
    rows = [row for row in read_rows(server.data) if row["topic"] == "live.topic"]
    assert [row["message_id"] for row in rows] == ids


def test_offsets_go_on_after_a_restart(server: Server) -> None:
    def offsets() -> list[int]:
        return [row["offset"] for row in read_rows(server.data) if row["topic"] == "again.topic"]

    for count in (1, 2):
        with connect(server, "websocket") as peer:
            assert peer.publish("again.topic").json()["error"]["code"] == "NO_ROUTE_FOUND"
        wait_until(lambda count=count: offsets() == list(range(count)))  # type: ignore[misc]
        server.restart()
