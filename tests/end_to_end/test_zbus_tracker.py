"""The zbus tracker inside a bus: brokers report themselves, subscribers are told who is there."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import TRACKER, Client, Dial, broker_address, dial_server

ADMIN_TOKEN = "s3cret"
PROBE_MS, PUSH_MS, REPORT_MS = 100, 400, 150


@pytest.fixture(scope="module")
def tracker() -> Iterator[Server]:
    """A bus that is its own tracker, reports to itself, and looks often."""
    with running_server() as server:
        prefix = "RACEWAY_LISTEN__ZBUS__"
        server.env = {
            f"{prefix}TRACKER": "true",
            f"{prefix}TRACKERS": broker_address(server),
            f"{prefix}PROBE_MS": PROBE_MS,
            f"{prefix}PUSH_MS": PUSH_MS,
            f"{prefix}REPORT_MS": REPORT_MS,
        }
        server.restart()
        yield server


@pytest.fixture
def visit(tracker: Server) -> Iterator[Dial]:
    """Each call opens one more connection to the tracker."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(dial_server(tracker))


def report(client: Client, address: str, mqs: tuple[str, ...] = (), cmd: str = "track_report") -> None:
    table = {mq: {"broker": address, "name": mq, "mode": 1, "unconsumedMsgCount": 7} for mq in mqs}
    client.send(cmd, json.dumps({"broker": address, "lastUpdatedTime": 1, "mqTable": table}))


@pytest.fixture
def elsewhere() -> Iterator[socket.socket]:
    """Something that listens, as a broker would."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def address_of(listening: socket.socket) -> str:
    return "{}:{}".format(*listening.getsockname())


def test_subscribers_are_told_of_every_report(visit: Dial, elsewhere: socket.socket) -> None:
    subscribers, reporter, address = [visit(), visit()], visit(), address_of(elsewhere)
    for subscriber in subscribers:
        table = subscriber.ask("track_sub")
        assert (table.status, table.headers["content-type"]) == (200, "application/json")
        assert table.json().keys() == {"brokerTable", "mqTable"}
    report(reporter, address, ("there", "here"))
    for subscriber in subscribers:
        push = subscriber.wait_for_push(address)
        assert (push.first, push.headers["cmd"], push.msgid) == ("GET / HTTP/1.1", "track_pub", None)
        assert push.headers["content-type"] == "application/json"
        told = push.json()
        assert told["brokerTable"][address]["mqTable"].keys() == {"there", "here"}
        assert [row["broker"] for row in told["mqTable"]["there"]] == [address]
        assert told["mqTable"]["there"][0]["unconsumedMsgCount"] == 7
    assert reporter.settled() == [], "a report has no answer"


def test_a_broker_that_does_not_answer_any_more_is_dropped(visit: Dial) -> None:
    subscriber, reporter = visit(), visit()
    subscriber.ask("track_sub")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = address_of(listening)
        report(reporter, address, ("gone-soon",))
        subscriber.wait_for_push(address)
    gone = subscriber.wait_for(lambda push: push.status == 0 and address not in push.json()["brokerTable"])
    assert "gone-soon" not in gone.json()["mqTable"]


def test_subscribers_are_told_now_and_then_without_being_asked(visit: Dial) -> None:
    subscriber = visit()
    subscriber.ask("track_sub")
    for _ in range(3):
        assert subscriber.receive(5).headers["cmd"] == "track_pub"


def test_a_bus_reports_itself_and_each_new_queue(visit: Dial, tracker: Server) -> None:
    subscriber, maker = visit(), visit()
    subscriber.ask("track_sub")
    mq = maker.create()
    push = subscriber.wait_for(lambda push: push.status == 0 and mq in push.json()["mqTable"])
    (row,) = push.json()["mqTable"][mq]
    assert (row["broker"], row["name"], row["mode"]) == (broker_address(tracker), mq, 1)
    assert push.json()["brokerTable"].keys() >= {broker_address(tracker)}


def test_the_tracker_has_a_port_of_its_own(tracker: Server) -> None:
    with Client(tracker.port_base + TRACKER) as subscriber:
        assert broker_address(tracker) in subscriber.ask("track_sub").body.decode()
        assert subscriber.wait_for_push(broker_address(tracker))


def test_a_subscriber_that_leaves_is_forgotten(visit: Dial, elsewhere: socket.socket) -> None:
    staying, leaving, reporter = visit(), visit(), visit()
    for subscriber in (staying, leaving):
        subscriber.ask("track_sub")
    leaving.reset()
    report(reporter, address_of(elsewhere))
    staying.wait_for_push(address_of(elsewhere))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '{"broker":1}',
        '{"broker":"x"}',
        '{"broker":"nowhere:port","mqTable":{}}',
        '{"broker":"127.0.0.1:1","mqTable":[]}',
        '{"broker":"127.0.0.1:99999","mqTable":{"q":1}}',
        '{"broker":"169.254.169.254:80","mqTable":{}}',
        "[" * 50_000,
        '{"broker":"' + "x" * 10_000 + '","mqTable":{}}',
    ],
)
def test_a_hostile_report_does_no_harm(visit: Dial, body: str) -> None:
    reporter, subscriber = visit(), visit()
    reporter.send("track_report", body)
    reporter.send("admin", body, method="track_report")
    assert [message.status for message in reporter.settled() if message.status != 400] == []
    assert subscriber.ask("track_sub").status == 200


def test_a_tracker_does_not_remember_without_limit(visit: Dial) -> None:
    """Addresses are any text: a stranger must not fill the memory, nor every push."""
    reporter, subscriber = visit(), visit()
    for number in range(3000):
        report(reporter, f"10.1.{number // 250}.{number % 250}:15555")
    reporter.synchronise()
    assert len(subscriber.ask("track_sub").json()["brokerTable"]) < 3000
    wait_until(lambda: len(subscriber.ask("track_sub").json()["brokerTable"]) < 10, what="brokers to be dropped")


def test_the_tracker_is_guarded_by_the_admin_token() -> None:
    with (
        running_server(RACEWAY_LISTEN__ZBUS__TRACKER="true", RACEWAY_SECURITY__ADMIN_TOKEN=ADMIN_TOKEN) as server,
        dial_server(server) as client,
    ):
        assert client.admin("track_sub").status == 403
        assert client.ask("track_sub").status == 403
        assert client.admin("track_sub", token=ADMIN_TOKEN).status == 200
