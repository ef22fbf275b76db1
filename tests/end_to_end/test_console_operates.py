"""What an operator does in the console, in a real browser, on a wide light screen and on a narrow dark one: publish and
ask, follow, change subscriptions and queues, send rejected messages again; and that every change is recorded."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from raceway.client import sync
from tests.rigs import http_door
from tests.rigs.browser import EVERY_LOOK, LOOKS, Visitor, assert_no_barriers, running_browser, visiting
from tests.rigs.schema_rest import bind, call, register
from tests.rigs.server import Server, running_server, wait_until

ORDER = {
    "type": "object", "required": ["id", "state"],
    "properties": {"id": {"type": "integer", "minimum": 1}, "state": {"enum": ["paid", "open"]}},
}  # fmt: skip
PAGES = (
    "", "topics", "subscriptions", "messages", "publish", "traces", "services", "schemas", "rejected", "peers",
    "pipeline", "journal", "cluster", "api", "changes", "nosuch", "schemas/order", "topics/raceway.audit",
)  # fmt: skip
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__HTTP__LIVE_MS=100) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module", params=LOOKS, ids=str)
def window(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    with visiting(browser, server, *request.param) as found:
        yield found


@pytest.fixture
def visitor(window: Visitor) -> Iterator[Visitor]:
    window.faults.clear()
    yield window
    window.assert_well()


@pytest.fixture
def topic() -> str:
    return f"desk.t{next(_numbers)}"


def stored(server: Server, topic: str) -> list[dict[str, Any]]:
    answer = http_door.get(server, f"/topics/{topic}")
    return list(answer.json()["messages"]) if answer.status == 200 else []


def audited(server: Server) -> list[tuple[str, str]]:
    return [(row["attributes"]["method"], row["attributes"]["path"]) for row in stored(server, "raceway.audit")]


def answer(page: Page, yes: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=yes).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_message_is_published_with_key_and_headers(visitor: Visitor, server: Server, topic: str) -> None:
    before = audited(server)
    page = visitor.go("publish")
    form = page.get_by_role("form", name="Publish")
    form.get_by_label("Topic").fill(topic)
    form.get_by_label("Key").fill("customer 17")
    form.get_by_label("Headers").fill("x-order: 17\nx-place: Zürich")
    form.get_by_label("Payload").fill('{"bag": 17}')
    form.get_by_role("button", name="Send").click()
    said = page.locator("main > div > [role=status]")
    expect(said).to_contain_text(f"Stored at offset 0 of {topic}")
    expect(said).to_contain_text("Nobody listens to this topic now")
    (row,) = stored(server, topic)
    assert (row["payload"], row["routing_key"]) == ('{"bag": 17}', "customer 17")
    assert (row["attributes"]["x-order"], row["attributes"]["x-place"]) == ("17", "Zürich")
    form.get_by_label("Headers").fill("order 17")
    form.get_by_role("button", name="Send").click()
    expect(said).to_contain_text("is no header")
    form.get_by_label("Headers").fill("host: x")
    form.get_by_role("button", name="Send").click()
    expect(said).to_contain_text("must begin with x-")
    assert len(stored(server, topic)) == 1
    assert audited(server) == before, "traffic is no change"


def test_several_messages_are_published(visitor: Visitor, server: Server, topic: str) -> None:
    page = visitor.go(f"publish?topic={topic}")
    form = page.get_by_role("form", name="Publish")
    form.get_by_label("How many").fill("3")
    form.get_by_label("Payload").fill('{"n": {{n}}}')
    form.get_by_role("button", name="Send").click()
    expect(page.locator("main .notice.good")).to_contain_text("3 messages stored, the last at offset 2")
    form.get_by_label("How many").fill("1")
    form.get_by_label("Each line is a message").check()
    form.get_by_label("Payload").fill("a\n\nb\n")
    form.get_by_role("button", name="Send").click()
    expect(page.locator("main .notice.good")).to_contain_text("2 messages stored, the last at offset 4")
    assert [row["payload"] for row in stored(server, topic)] == ['{"n": 1}', '{"n": 2}', '{"n": 3}', "a", "b"]


def test_a_schema_helps_and_refuses(visitor: Visitor, server: Server, topic: str) -> None:
    register(server, "order", ORDER)
    bind(server, topic, "order", "enforce")
    page = visitor.go(f"publish?topic={topic}")
    form = page.get_by_role("form", name="Publish")
    expect(form).to_contain_text("Schema order, version 1, policy enforce")
    form.get_by_label("Payload").fill('{"id": "x"}')
    form.get_by_role("button", name="Send").click()
    expect(page.locator("main .notice.bad")).to_be_visible()
    visitor.forgive(422)
    form.get_by_role("button", name="Draft from the schema").click()
    expect(form.get_by_label("Payload")).to_have_value(re.compile("paid"))
    form.get_by_role("button", name="Send").click()
    expect(page.locator("main .notice.good")).to_contain_text("Stored at offset 0")
    assert json.loads(stored(server, topic)[0]["payload"]) == {"id": 1, "state": "paid"}


def test_a_request_is_answered_and_leads_to_its_trace(visitor: Visitor, server: Server) -> None:
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk:
        desk.serve("desk.seat", lambda message: {"seat": message.json()["wish"]})
        page = visitor.go("publish?topic=desk.seat")
        form = page.get_by_role("form", name="Publish")
        form.get_by_label("Meaning").select_option("request")
        form.get_by_label("Payload").fill('{"wish": "4C"}')
        form.get_by_role("button", name="Send").click()
        expect(page.locator("pre.payload[aria-label=Answer]")).to_contain_text('"seat": "4C"')
        page.get_by_role("link", name="Show its trace").click()
        expect(page.locator(".span[role=listitem]")).to_contain_text("desk.seat")


def test_messages_are_followed_filtered_and_paused(visitor: Visitor, server: Server, topic: str) -> None:
    http_door.post(server, f"/topics/{topic}", b"before")
    page = visitor.go(f"messages?topic={topic}")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Follow").click()
    for number in range(3):
        http_door.post(server, f"/topics/{topic}", b"live %d" % number)
        http_door.post(server, f"/topics/{topic}.other", b"noise")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("live 2")
    expect(page.locator("main [role=status]").first).to_contain_text("3 came")
    page.get_by_role("button", name="Pause").click()
    http_door.post(server, f"/topics/{topic}", b"unseen")
    expect(page.locator("main [role=status]").first).to_contain_text("Paused")
    expect(rows).to_have_count(4)
    page.get_by_role("button", name="Follow").click()
    http_door.post(server, f"/topics/{topic}", b"again")
    expect(rows.first).to_contain_text("again")
    assert "follow=true" in page.url


def test_subscriptions_and_queues_of_the_bus_are_made_moved_and_deleted(
    visitor: Visitor, server: Server, topic: str
) -> None:
    for number in range(5):
        http_door.post(server, f"/topics/{topic}", b"%d" % number)
    before = len(audited(server))
    page = visitor.go(f"subscriptions?contains={topic}")
    page.get_by_text("New subscription or queue").click()
    form = page.get_by_role("form", name="New subscription or queue")
    form.get_by_label("Topic").fill(topic)
    form.get_by_label("Name").fill("billing")
    form.get_by_label("Start").fill("first")
    form.get_by_role("button", name="Make").click()
    row = page.get_by_role("table", name="Subscriptions and queues").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td").nth(3)).to_have_text("5")
    row.get_by_role("button", name=f"Replay subscription billing of {topic}").click()
    dialog = page.get_by_role("dialog", name="Replay")
    dialog.get_by_label("Continue at").fill("3")
    dialog.get_by_role("button", name="Move it").click()
    expect(page.locator("main .notice.good", has_text="continues at offset 3")).to_be_visible()
    expect(row.locator("td").nth(3)).to_have_text("2")
    row.get_by_role("button", name="Replay").click()
    dialog.get_by_label("Continue at").fill("2100-01-01T00:00:00Z")
    dialog.get_by_role("button", name="Move it").click()
    expect(page.locator("main .notice.good", has_text="continues at offset 5")).to_be_visible()
    row.get_by_role("button", name="Delete").click()
    answer(page, "Cancel")
    expect(row).to_have_count(1)
    row.get_by_role("button", name="Delete").click()
    answer(page, "Delete the subscription")
    expect(page.locator("main .notice.good", has_text="was deleted")).to_be_visible()
    expect(row).to_have_count(0)
    form.get_by_label("What").select_option("queue")
    form.get_by_role("button", name="Make").click()
    expect(row.locator("td").nth(2)).to_have_text("queue")
    expect(row.locator("td").nth(3)).to_have_text("5")
    row.get_by_role("button", name="Purge").click()
    answer(page, "Purge the queue")
    expect(row.locator("td").nth(3)).to_have_text("0")
    row.get_by_role("button", name="Delete").click()
    answer(page, "Delete the queue")
    expect(row).to_have_count(0)
    done = [method for method, _ in wait_until(lambda: audited(server)[before + 6 :] and audited(server)[before:])]
    assert done == ["POST", "POST", "POST", "DELETE", "POST", "DELETE", "DELETE"]


def test_a_blocked_subscription_is_loud_on_the_page_of_all(visitor: Visitor, server: Server, topic: str) -> None:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        bus.publish_many(topic, [b"poison", b"behind"])
        with bus.subscribe(topic, "printer", start="first", in_flight=1) as consumer:
            path = f"/api/subscriptions/policy?topic={topic}&name=printer"
            assert call(server, "PUT", path, {"max_redelivery_count": 0}).status == 200
            message = consumer.get(60)
            assert message is not None
            consumer.nack(message, delay_ms=0, reason="paper jam")
            page = visitor.go("subscriptions")
            notice = page.get_by_role("alert")
            expect(notice).to_contain_text(f"Subscription printer of {topic} is blocked by the message at offset 0")
            expect(notice).to_contain_text("paper jam")
            rows = page.get_by_role("table", name="Subscriptions and queues").locator("tbody tr")
            expect(rows.first).to_contain_text("blocked")
            overview = visitor.go("")
            overview.locator(".tile.bad", has_text="blocked").click()
            notice.get_by_role("button", name="Skip it").click()
            answer(page, "Skip the message")
            expect(notice).to_have_count(0)
            following = consumer.get(60)
            assert following is not None
            assert following.payload == b"behind"


def test_a_poisoned_key_is_loud_and_let_go_by_a_policy(visitor: Visitor, server: Server, topic: str) -> None:
    """With keys, a message that failed too often stops its own key alone; the others go on."""
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        bus.publish(topic, b"poison", key="red")
        with bus.subscribe(topic, "sorter", type="key_shared", start="first") as consumer:
            path = f"/api/subscriptions/policy?topic={topic}&name=sorter"
            assert call(server, "PUT", path, {"max_redelivery_count": 0}).status == 200
            message = consumer.get(60)
            assert message is not None
            consumer.nack(message, delay_ms=0, reason="paper jam")
            bus.publish(topic, b"beside", key="blue")
            beside = consumer.get(60)
            assert beside is not None
            consumer.ack(beside)
            page = visitor.go("subscriptions")
            notice = page.get_by_role("alert").filter(has_text=topic)
            expect(notice).to_contain_text(f"Subscription sorter of {topic} is blocked by the message at offset 0")
            notice.get_by_role("button", name="Change its policy").click()
            form = page.get_by_role("form", name="Failure policy")
            form.get_by_label("Then the message").select_option("drop")
            form.get_by_role("button", name="Set policy").click()
            answer(page, "Set this policy")
            expect(notice).to_have_count(0)


def test_dead_letters_are_told_and_lead_to_where_they_are_sent_again(
    visitor: Visitor, server: Server, topic: str
) -> None:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        bus.publish_many(topic, [b"poison", b"behind"])
        with bus.subscribe(topic, "mailer", start="first", in_flight=1) as consumer:
            path = f"/api/subscriptions/policy?topic={topic}&name=mailer"
            policy = {"max_redelivery_count": 0, "poison": "dead_letter", "dead_letter_topic": f"{topic}.failed"}
            assert call(server, "PUT", path, policy).status == 200
            message = consumer.get(60)
            assert message is not None
            consumer.nack(message, delay_ms=0, reason="no such address")
            page = visitor.go("subscriptions")
            notice = page.locator(".notice.warn", has_text="dead letter")
            expect(notice).to_contain_text(f"mailer of {topic} 1")
            following = consumer.get(60)
            assert following is not None
            assert following.payload == b"behind"
            notice.get_by_role("link", name="look at them and send them again").click()
            rows = page.get_by_role("table", name="Rejected messages").locator("tbody tr")
            expect(rows.first).to_contain_text("dead letter")
            overview = visitor.go("")
            overview.locator(".tile.warn", has_text="dead letters").click()
            expect(page).to_have_url(re.compile("#/rejected\\?source=dead_letter"))


def test_rejected_messages_are_edited_selected_and_sent_again(visitor: Visitor, server: Server, topic: str) -> None:
    register(server, "strict", ORDER)
    bind(server, topic, "strict", "enforce")
    for number in range(3):
        refused = http_door.post(server, f"/topics/{topic}", b'{"id": %d}' % number, x_order=str(number))
        assert refused.status == 422
    page = visitor.go(f"rejected?topic={topic}")
    rows = page.get_by_role("table", name="Rejected messages").locator("tbody tr")
    expect(rows).to_have_count(3)
    rows.first.get_by_role("button", name=re.compile("^Edit")).click()
    dialog = page.get_by_role("dialog", name="Edit and send again")
    expect(dialog.get_by_label("Payload")).to_have_value(re.compile('"id": 2'))
    expect(dialog.get_by_label("Attributes")).to_have_value("x-order: 2")
    dialog.get_by_label("Payload").fill('{"id": 2}')
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog.locator(".notice.bad")).to_contain_text("refused again")
    visitor.forgive(422)
    dialog.get_by_label("Payload").fill('{"id": 2, "state": "paid"}')
    dialog.get_by_label("Attributes").fill("x-order: two")
    dialog.get_by_role("button", name="Send again").click()
    expect(dialog).to_have_count(0)
    (first,) = stored(server, topic)
    assert (first["payload"], first["attributes"]["x-order"]) == ('{"id": 2, "state": "paid"}', "two")
    assert first["attributes"]["raceway.redriven"]
    bind(server, topic, "strict", "none", validate=False)
    rows.nth(2).get_by_role("checkbox").check()
    page.get_by_role("button", name="Send 1 selected message again").click()
    answer(page, "Send them again")
    expect(page.locator("main .notice.good")).to_contain_text("1 message sent again")
    page.get_by_role("button", name="Send all of these again").click()
    answer(page, "Send them again")
    wait_until(lambda: len(stored(server, topic)) == 3)
    assert [json.loads(row["payload"])["id"] for row in stored(server, topic)] == [2, 0, 1], "each once"
    expect(rows.filter(has_text=f"to {topic}")).to_have_count(3)


def test_a_rejected_message_is_sent_again_from_its_own_page(visitor: Visitor, server: Server, topic: str) -> None:
    register(server, "strict", ORDER)
    bind(server, topic, "strict", "enforce")
    assert http_door.post(server, f"/topics/{topic}", b'{"id": 9}').status == 422
    (kept,) = wait_until(lambda: http_door.get(server, f"/api/rejected?topic={topic}").json()["rejected"])
    page = visitor.go(f"messages/{kept['position']}")
    page.get_by_role("button", name=re.compile("^Send again")).click()
    expect(page.locator("main .notice.bad")).to_contain_text("refused again")
    visitor.forgive(422)
    page.get_by_role("button", name=re.compile("^Edit")).click()
    dialog = page.get_by_role("dialog", name="Edit and send again")
    dialog.get_by_label("Payload").fill('{"id": 9, "state": "open"}')
    dialog.get_by_role("button", name="Send again").click()
    expect(page.locator("main .notice.good")).to_contain_text(f"sent again to {topic}")
    assert [json.loads(row["payload"])["state"] for row in stored(server, topic)] == ["open"]


def test_peers_have_an_address_and_are_disconnected(visitor: Visitor, server: Server) -> None:
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk:
        desk.register("kiosk", "asks for seats")
        page = visitor.go("peers")
        row = page.get_by_role("table", name="Peers").locator("tbody tr", has_text="kiosk")
        expect(row).to_contain_text("127.0.0.1:")
        row.get_by_role("button", name="Disconnect kiosk").click()
        answer(page, "Disconnect it")
        expect(page.locator("main .notice.good")).to_contain_text("kiosk was disconnected")
    assert any(method == "DELETE" and path.startswith("/api/peers/") for method, path in audited(server))


def test_consumers_and_producers_give_their_peer_a_name(visitor: Visitor, server: Server, topic: str) -> None:
    with sync.connect(f"danube://127.0.0.1:{server.port('danube')}", wire="danube") as bus:
        bus.publish(topic, b"1")
        with bus.subscribe(topic, "board", name="display-1"):
            page = visitor.go("peers")
            row = page.get_by_role("table", name="Peers").locator("tbody tr", has_text="display-1")
            expect(row.locator("td[data-title=Subscriptions]")).to_have_text("1")
    with sync.connect(f"seneca://127.0.0.1:{server.port('seneca')}", wire="seneca", name="till-7") as till:
        till.publish("role:till,cmd:opened", {"till": 7})
        expect(page.get_by_role("table", name="Peers")).to_contain_text("till-7")


def test_a_schema_is_registered_and_bound(visitor: Visitor, server: Server, topic: str) -> None:
    page = visitor.go("schemas")
    page.get_by_text("Register a schema").click()
    form = page.get_by_role("form", name="Register")
    form.get_by_label("Subject").fill("ticket")
    form.get_by_label("Text of the schema").fill("{")
    form.get_by_role("button", name="Register").click()
    expect(page.locator("details .notice.bad")).to_be_visible()
    visitor.forgive(422)
    form.get_by_label("Text of the schema").fill(json.dumps(ORDER))
    form.get_by_role("button", name="Register").click()
    expect(page.locator("details .notice.good")).to_contain_text("Version 1 of ticket is registered")
    expect(page.get_by_role("link", name="ticket")).to_be_visible()
    page.get_by_text("Bind a topic to a schema").click()
    form = page.get_by_role("form", name="Bind")
    form.get_by_label("Topic").fill(topic)
    form.get_by_label("Subject").fill("ticket")
    form.get_by_role("button", name="Bind").click()
    answer(page, "Bind the topic")
    row = page.get_by_role("table", name="Bound topics").locator("tr", has_text=topic)
    expect(row).to_contain_text("ticket")
    assert http_door.post(server, f"/topics/{topic}", b"{}").status == 422
    row.get_by_role("button", name=f"Unbind {topic}").click()
    answer(page, "Unbind the topic")
    expect(row).to_have_count(0)
    assert http_door.post(server, f"/topics/{topic}", b"{}").status == 201


def test_traces_are_listed_with_duration_and_outcome_and_filtered(visitor: Visitor, server: Server, topic: str) -> None:
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk:
        desk.serve(topic, lambda message: 1 // message.json())
        assert http_door.post(server, f"/requests/{topic}", b"1").status == 200
        assert http_door.post(server, f"/requests/{topic}", b"0").status == 502
    page = visitor.go(f"traces?topic={topic}")
    rows = page.get_by_role("table", name="Recent requests").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(re.compile(r"\d (µs|ms|s)"))
    expect(rows.nth(1)).to_contain_text("answered")
    expect(rows.nth(1).locator(".wire")).to_have_text(["http", "mb"])
    page.get_by_label("Outcome").select_option("failed")
    expect(rows).to_have_count(1)
    expect(rows.locator(".badge.bad")).to_be_visible()
    page.get_by_label("Outcome").select_option("")
    page.get_by_label("At least, ms").fill("60000")
    expect(page.locator("main .empty")).to_be_visible()


def test_a_topic_is_made_and_deleted(visitor: Visitor, server: Server, topic: str) -> None:
    page = visitor.go("topics")
    page.get_by_text("New topic", exact=True).click()
    form = page.get_by_role("form", name="New topic")
    form.get_by_label("Name of the topic").fill(topic)
    form.get_by_label("Partitions").fill("2")
    form.get_by_role("button", name="Create").click()
    expect(page.locator("details .notice.good")).to_contain_text("with 2 partitions")
    page = visitor.go(f"topics/{topic}")
    expect(page.locator("main")).to_contain_text("Partitions")
    page.get_by_role("button", name="Delete topic").click()
    answer(page, "Delete the topic")
    expect(page.locator("main h1")).to_have_text("Topics")
    assert http_door.get(server, f"/api/topics/{topic}").status == 404
    visitor.forgive(404)


def test_changes_are_listed_with_who_and_what(visitor: Visitor, server: Server, topic: str) -> None:
    made = call(server, "POST", "/api/subscriptions", {"topic": topic, "name": "early", "create_topic": True})
    assert made.status == 201
    page = visitor.go("changes")
    row = page.get_by_role("table", name="Changes").locator("tbody tr", has_text=topic)
    expect(row).to_contain_text("POST /api/subscriptions")
    expect(row).to_contain_text("from 127.0.0.1")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", EVERY_LOOK, ids=str)
def test_axe_finds_nothing(browser: Browser, server: Server, look: tuple[int, str]) -> None:
    register(server, "order", ORDER)
    call(server, "POST", "/api/subscriptions", {"topic": "desk.axe", "name": "early", "create_topic": True})
    with visiting(browser, server, *look) as visitor:
        assert_no_barriers(visitor, PAGES)
