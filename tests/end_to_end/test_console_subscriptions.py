"""Failure policies, blocked subscriptions and start positions in the console, in a real browser."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from raceway.client import sync
from tests.rigs import http_door
from tests.rigs.browser import Visitor, running_browser, visiting
from tests.rigs.console import EVIL
from tests.rigs.server import Server, running_server, wait_until

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__HTTP__LIVE_MS=100, RACEWAY_BROKER__SUBSCRIPTIONS__FAILURE__BASE_REDELIVERY_DELAY_MS=10
    ) as server:
        yield server


@pytest.fixture(scope="module")
def bus(server: Server) -> Iterator[sync.SyncDanubeClient]:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        yield bus


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def window(browser: Browser, server: Server) -> Iterator[Visitor]:
    with visiting(browser, server) as found:
        yield found


@pytest.fixture
def visitor(window: Visitor) -> Iterator[Visitor]:
    yield window
    window.assert_well()


@pytest.fixture
def topic(bus: sync.SyncDanubeClient) -> str:
    name = f"console.t{next(_numbers)}"
    bus.publish_many(name, [b"poison", b"behind"])
    return name


def policy(server: Server, topic: str, name: str) -> Any:
    return http_door.get(server, f"/api/subscriptions/policy?topic={topic}&name={quote(name)}").json()


def block(server: Server, bus: sync.SyncDanubeClient, topic: str, name: str) -> sync.SyncDanubeConsumer:
    """A consumer of a subscription that stands still behind its first message."""
    consumer = bus.subscribe(topic, name, start="first", in_flight=1)
    path = f"/api/subscriptions/policy?topic={topic}&name={quote(name)}"
    assert http_door.call(server, "PUT", path, b'{"max_redelivery_count": 0}').status == 200
    message = consumer.get(60)
    assert message is not None
    consumer.nack(message, delay_ms=0, reason=EVIL)
    return consumer


def answer(page: Page, yes: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=yes).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_blocked_subscription_is_loud_and_let_past_its_message(
    server: Server, bus: sync.SyncDanubeClient, visitor: Visitor, topic: str
) -> None:
    with block(server, bus, topic, EVIL) as consumer:
        page = visitor.go("")
        expect(page.locator(".tile.bad", has_text="blocked").locator("b")).to_have_text("1")
        page = visitor.go(f"topics/{topic}")
        notice = page.get_by_role("alert")
        expect(notice).to_contain_text(f"Subscription {EVIL} is blocked by the message at offset 0")
        expect(notice).to_contain_text(EVIL)
        notice.get_by_role("button", name="Skip it").click()
        answer(page, "Cancel")
        expect(notice).to_have_count(1)
        notice.get_by_role("button", name="Skip it").click()
        answer(page, "Skip the message")
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator("main [role=status]", has_text="continues at offset 1")).to_be_visible()
        message = consumer.get(60)
        assert message is not None
        assert message.payload == b"behind"
        consumer.ack(message)


def test_a_policy_is_set_from_the_notice_and_taken_back(
    server: Server, bus: sync.SyncDanubeClient, visitor: Visitor, topic: str
) -> None:
    with block(server, bus, topic, "billing") as consumer:
        page = visitor.go(f"topics/{topic}")
        page.get_by_role("alert").get_by_role("button", name="Change its policy").click()
        form = page.get_by_role("form", name="Failure policy")
        form.get_by_label("Then the message").select_option("dead_letter")
        form.get_by_role("button", name="Set policy").click()
        answer(page, "Set this policy")
        expect(page.locator("main [role=status]")).to_contain_text(["dead_letter_topic"])
        visitor.forgive(400)
        form.get_by_label("Dead-letter topic").fill(f"{topic}.failed")
        form.get_by_label("In flight per consumer").fill("7")
        form.get_by_label("Ack timeout, s").fill("1.5")
        form.get_by_role("button", name="Set policy").click()
        answer(page, "Set this policy")
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(form).to_be_hidden()
        found = policy(server, topic, "billing")
        assert (found["poison"], found["dead_letter_topic"]) == ("dead_letter", f"{topic}.failed")
        assert (found["in_flight"], found["ack_timeout_ms"], found["max_redelivery_count"]) == (7, 1500, 0)
        message = consumer.get(60)
        assert message is not None
        assert message.payload == b"behind"
        row = page.get_by_role("table", name="Subscriptions").locator("tbody tr")
        expect(row.locator("td").nth(7)).to_have_text("1")
        row.get_by_role("button", name="Policy of billing").click()
        form.get_by_role("button", name="Remove policy").click()
        answer(page, "Remove this policy")
        wait_until(lambda: not policy(server, topic, "billing")["is_own"])


def test_in_flight_alone_leaves_failures_to_the_bus(
    server: Server, bus: sync.SyncDanubeClient, visitor: Visitor, topic: str
) -> None:
    with bus.subscribe(topic, "slow", start="first") as consumer:
        assert consumer.get(60) is not None
        page = visitor.go(f"topics/{topic}")
        page.get_by_role("button", name="Policy of slow").click()
        form = page.get_by_role("form", name="Failure policy")
        form.get_by_label("In flight per consumer").fill("5")
        form.get_by_role("button", name="Set policy").click()
        answer(page, "Set this policy")
        cell = page.get_by_role("table", name="Subscriptions").locator("tbody tr td").nth(3)
        expect(cell).to_have_text("2 of 5")
        found = policy(server, topic, "slow")
        assert (found["is_own"], found["in_flight"]) == (False, 5)


def test_a_subscription_and_a_queue_are_made_and_begin_where_they_are_told_to(
    server: Server, bus: sync.SyncDanubeClient, visitor: Visitor, topic: str
) -> None:
    page = visitor.go(f"topics/{topic}")
    page.get_by_text("New subscription or queue").click()
    form = page.get_by_role("form", name="New subscription or queue")
    form.get_by_label("Name").fill("audit")
    form.get_by_label("Start").fill("yesterday")
    form.get_by_role("button", name="Make").click()
    said = page.locator("details [role=status]")
    expect(said).to_contain_text("yesterday")
    visitor.forgive(400)
    form.get_by_label("Start").fill("first")
    form.get_by_role("button", name="Make").click()
    expect(said).to_have_text(f"Subscription audit of {topic} was created, from first.")
    row = page.get_by_role("table", name="Subscriptions").locator("tbody tr", has_text="audit")
    expect(row.locator("td").nth(2)).to_have_text("2")
    with bus.subscribe(topic, "audit", type="shared") as consumer:
        message = consumer.get(60)
        assert message is not None
        assert message.payload == b"poison"
    form.get_by_label("What").select_option("queue")
    expect(form.get_by_label("Name")).to_be_hidden()
    form.get_by_label("Start").fill("1")
    form.get_by_role("button", name="Make").click()
    expect(said).to_have_text(f"Queue {topic} was created, from 1.")
    expect(page.locator("dl.facts")).to_contain_text("1 waiting")


def test_a_subscription_is_made_before_the_first_publish(server: Server, visitor: Visitor) -> None:
    topic = f"console.t{next(_numbers)}"
    page = visitor.go("topics")
    page.get_by_text("New subscription or queue").click()
    form = page.get_by_role("form", name="New subscription or queue")
    form.get_by_label("Topic").fill(topic)
    form.get_by_label("Name").fill("early")
    form.get_by_role("button", name="Make").click()
    expect(page.locator("details [role=status]")).to_contain_text("was created, from last")
    http_door.post(server, f"/topics/{topic}", b"0")
    (row,) = http_door.get(server, f"/api/topics/{topic}").json()["subscriptions"]
    assert (row["name"], row["lag"]) == ("early", 1)
