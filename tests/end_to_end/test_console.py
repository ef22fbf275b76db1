"""Every page of the console in a real browser, beside real traffic on all wires. The pictures of the manual are taken
on the way (`make pictures`)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.pipeline.drivers import finished
from tests.rigs.browser import PICTURES, Visitor, running_browser, visiting
from tests.rigs.console import DEAD_LETTERS, EVIL, EVIL_SUBJECT, Airport, airport
from tests.rigs.schema_rest import bind, call, register
from tests.rigs.server import wait_until

PAGES = (
    "", "topics", "subscriptions", "messages", "publish", "traces", "services", "schemas", "rejected", "peers",
    "pipeline", "journal", "changes", "api",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def port() -> Iterator[Airport]:
    if not PICTURES:
        with airport() as found:
            found.write_pipeline()
            yield found
        return
    with airport(turn_s=0.03, live_ms=1000) as found:  # busier, tables as the pipeline makes them, a chart that is full
        wait_until(lambda: found.turns > 500, 120)
        if shutil.which("java"):
            finished(found.server.data, "run", "--once", "--master", "local[2]", "--memory", "1g")
        else:
            found.write_pipeline()
        wait_until(lambda: len(found.ask("/api/history")["samples"]) > 70, 300)
        yield found


@pytest.fixture(scope="module")
def window(browser: Browser, port: Airport) -> Iterator[Visitor]:
    with visiting(browser, port.server) as found:
        yield found


@pytest.fixture
def visitor(window: Visitor) -> Iterator[Visitor]:
    """One window for all: a new one costs a second."""
    window.faults.clear()
    window.asked.clear()
    yield window
    window.assert_well()


def test_figures_of_the_overview_move(visitor: Visitor) -> None:
    page = visitor.go("")
    stored = page.locator(".tile", has_text="stored").locator("b")
    before = stored.inner_text()
    expect(stored).not_to_have_text(before)
    expect(page.locator("#pulse")).to_have_text(re.compile(r"live · [1-9]"))
    expect(page.locator("svg.chart path.line")).to_have_count(5)
    for wire in ("mb", "danube", "zbus", "seneca"):
        card = page.get_by_role("group", name=wire, exact=True)
        expect(card.locator("b")).to_have_text(re.compile("[1-9]"))
        for drawn in (f"svg.chart path.line.{wire}", f"svg.spark.{wire} path.stroke"):
            assert (page.locator(drawn).get_attribute("d") or "").count("L") >= 1
    expect(page.get_by_role("table", name="Busiest topics")).to_contain_text("checkin.seat")
    visitor.picture("overview")


def test_a_chart_is_read_with_the_arrow_keys(visitor: Visitor) -> None:
    page = visitor.go("")
    page.locator("svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".legend")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))
    expect(page.locator("svg.chart .cursor")).to_have_count(1)


def test_another_time_is_drawn_from_what_was_measured(visitor: Visitor, port: Airport) -> None:
    wait_until(lambda: len(port.ask("/api/history/bus?points=1000")["times_us"]) > 5)
    now = port.ask("/api/overview")
    ends = (now["time_us"] // 1_000_000 - now["uptime_s"], now["time_us"] // 1_000_000)
    shown = "/".join(f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%SZ}" for each in ends)
    page = visitor.go(f"?range={shown}")
    for wire in ("mb", "danube", "zbus", "seneca"):
        line = page.get_by_role("img", name="Messages a second").locator(f"path.line.{wire}")
        assert (line.get_attribute("d") or "").count("L") >= 3
    expect(
        page.get_by_role("img", name="99 of 100 answers within, by wire").locator("path.line.seneca")
    ).to_be_attached()
    expect(page.get_by_role("table", name="Busiest topics")).to_contain_text("checkin.seat")
    visitor.picture("history")
    page.get_by_label("Time shown").select_option("")
    expect(page).not_to_have_url(re.compile("range="))


def test_topics_are_found_and_lead_to_their_subscriptions(visitor: Visitor) -> None:
    page = visitor.go("topics")
    expect(page.get_by_role("link", name="baggage.events")).to_be_visible()
    visitor.picture("topics")
    page.get_by_label("Find").fill("BOARD")
    expect(page.get_by_role("link", name="baggage.events")).to_have_count(0)
    page.get_by_role("link", name="gate.boarding").click()
    rows = page.get_by_role("table", name="Subscriptions").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(page.locator("main")).to_contain_text("No other peer listens or answers")
    display = rows.filter(has_text="display-1").locator("td")
    assert int(display.nth(2).inner_text().replace(",", "")) > 0, "lag"
    expect(display.nth(3)).to_have_text(re.compile(r"^[1-9]\d* of [1-9]\d*$"))
    before = display.nth(2).inner_text()
    expect(display.nth(2)).not_to_have_text(before)
    expect(page.get_by_role("table", name="Messages").locator("tbody tr").first).to_be_visible()
    visitor.picture("topic")


@pytest.mark.parametrize(
    "fields",
    [
        {"JSON path": "$.order.lines[0].sku", "path_value": "needle-4711"},
        {"attribute": "x-order", "attribute_value": "needle-4711"},
        {"Topic": "shop.#"},
        {"Payload contains": "needle-4711"},
    ],
)
def test_a_known_message_is_found(visitor: Visitor, fields: dict[str, str]) -> None:
    page = visitor.go("messages")
    for name, value in fields.items():
        field = page.locator(f"[name={name}]") if name.islower() else page.get_by_label(name, exact=True)
        field.fill(value)
    page.get_by_role("button", name="Search", exact=True).click()
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(page.locator("main [role=status]")).to_contain_text("1 found")
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    rows.get_by_role("link").click()
    expect(page.locator("pre.payload")).to_contain_text('"sku": "needle-4711"')
    expect(page.locator("main")).to_contain_text("x-order")


def test_a_known_message_is_found_by_its_id_and_its_time(visitor: Visitor, port: Airport) -> None:
    (needle,) = port.ask("/api/topics/shop.orders/messages")["messages"]
    page = visitor.go(f"messages?id={needle['message_id']}")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(1)
    page.evaluate("location.hash = '#/messages?topic=shop.orders'")
    expect(rows).to_have_count(1)
    page.get_by_label("From", exact=True).fill("2100-01-01T00:00:00")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(".empty").first).to_contain_text("Nothing found")


def test_a_search_that_finds_nothing_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.go("messages?text=" + quote("no such text anywhere"))
    expect(page.locator(".empty").first).to_contain_text("Nothing found")
    page.get_by_label("JSON path").fill("$..[")
    page.get_by_label("JSON path").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("is not a path")
    visitor.forgive(400)


def test_messages_page(visitor: Visitor) -> None:
    page = visitor.go("messages")
    expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Search further back").click()
    expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(100)
    page.evaluate("scrollTo(0, 0)")
    visitor.picture("messages")


def test_a_known_trace_draws_its_hops(visitor: Visitor, port: Airport) -> None:
    page = visitor.go(f"traces/{quote(port.trace_id, safe='')}")
    spans = page.locator(".span[role=listitem]")
    expect(spans).to_have_count(5)
    expect(spans.nth(0)).to_contain_text("seneca → mb · kiosk → desk")
    for topic, said in (
        ("baggage.tag", "mb → zbus"),
        ("loyalty.points", "mb → seneca"),
        ("flight.updates", "publish · mb"),
        ("gate.boarding", "publish · danube · gate-A12"),
    ):
        expect(spans.filter(has_text=topic)).to_contain_text(said)
    first, second = (spans.nth(each).locator("rect") for each in (0, 1))
    assert float(first.get_attribute("width") or 0) > float(second.get_attribute("width") or 0), "it waits for it"
    assert float(first.get_attribute("x") or 9) < float(second.get_attribute("x") or 0), "it begins before it"
    visitor.picture("trace")
    spans.nth(1).click()
    expect(page.locator("main h1")).to_contain_text("Message")
    visitor.picture("message")
    page.get_by_role("link", name="Show its trace").click()
    expect(spans).to_have_count(5)


def test_recent_requests_lead_to_traces(visitor: Visitor) -> None:
    page = visitor.go("traces")
    page.get_by_role("table", name="Recent requests").get_by_role("link").first.click()
    expect(page.locator(".span").first).to_be_visible()


def test_the_service_graph_joins_those_who_talk(visitor: Visitor) -> None:
    page = visitor.go("services")
    drawn = page.locator("svg.graph")
    for name in ("kiosk", "desk", "gate.boarding", "display-1"):
        expect(drawn.locator(".node", has_text=name).first).to_be_attached()
    requests = page.get_by_role("table", name="Requests")
    expect(requests).to_contain_text("checkin.seat")
    asked = requests.locator("tr", has_text="checkin.seat").locator("td").nth(4)
    before = asked.inner_text()
    expect(asked).not_to_have_text(before)
    visitor.picture("graph")


def test_the_service_graph_shows_what_is_around_a_box(visitor: Visitor) -> None:
    page = visitor.go("services")
    drawn = page.locator("svg.graph")
    drawn.locator("a.node.topic", has_text="gate.boarding").click()
    expect(drawn.locator(".node.focus")).to_contain_text("gate.boarding")
    expect(drawn.locator(".node", has_text="display-1")).to_be_attached()
    expect(drawn.locator(".node", has_text="kiosk")).to_have_count(0)
    page.get_by_role("link", name="Show all").click()
    expect(drawn.locator(".node", has_text="kiosk").first).to_be_attached()
    expect(drawn.locator(".failing").first).to_have_text(re.compile(r"\d % failed"))
    page.get_by_label("Find").fill("LOYALTY")
    expect(drawn.locator(".edge")).to_have_count(1)


def test_the_service_graph_of_all_hours_comes_from_the_pipelines_table(visitor: Visitor) -> None:
    page = visitor.go("services")
    page.get_by_role("link", name="All hours").click()
    expect(page.locator(".lead")).to_contain_text("gold.service_graph")
    row = page.get_by_role("table", name="Requests").locator("tr", has_text="checkin.seat")
    expect(row).to_contain_text("kiosk")
    expect(page.locator("svg.graph .node", has_text="desk")).to_be_attached()
    if not PICTURES:
        expect(row.locator("td").nth(4)).to_have_text("400")
        expect(row.locator("td").nth(6)).to_have_text("5 ms")
        expect(page.locator("main")).to_contain_text("Without an answer: lounge.door 7")


def test_versions_of_a_schema_are_compared_and_checked(visitor: Visitor) -> None:
    page = visitor.go("schemas")
    page.get_by_role("link", name="boarding", exact=True).first.click()
    expect(page.locator("pre.diff .added").filter(has_text="gate")).to_have_count(1)
    expect(page.locator(".notice.good", has_text="Readers of version 1 can read data of version 2.")).to_be_visible()
    page.get_by_label("Definition").fill(json.dumps({"type": "object", "required": ["flight", "gate"]}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.bad")).to_contain_text("/flight")
    page.get_by_role("button", name="Start with the latest").click()
    expect(page.get_by_label("Definition")).to_have_value(re.compile("A12"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.good", has_text="Compatible with version 2")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")
    visitor.picture("schema")


def test_a_checked_draft_is_registered(visitor: Visitor, port: Airport) -> None:
    register(port.server, "meal", {"type": "object", "required": ["tray"]})
    page = visitor.go("schemas/meal")
    draft = page.get_by_label("Definition")
    draft.fill(json.dumps({"type": "object", "required": ["tray", "fork"]}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.bad")).to_contain_text("Not compatible with version 1")
    expect(page.get_by_role("button", name="Register it")).to_have_count(0)
    draft.fill(json.dumps({"type": "object", "required": ["tray"], "title": "Meal"}))
    page.get_by_role("button", name="Check").click()
    page.get_by_role("button", name="Register it").click()
    versions = page.get_by_role("table", name="Versions").locator("tbody tr")
    expect(versions).to_have_count(2)
    expect(page.locator("pre.diff .added").filter(has_text="Meal")).to_have_count(1)
    assert len(port.ask("/api/schemas/meal/versions")["versions"]) == 2


def test_versions_that_do_not_go_together_are_said_to(visitor: Visitor, port: Airport) -> None:
    register(port.server, "tag", {"type": "object"})
    assert call(port.server, "PUT", "/api/schemas/tag/mode", {"mode": "none"}).status == 200
    register(port.server, "tag", {"type": "object", "required": ["bag"]})
    page = visitor.go("schemas/tag")
    expect(page.locator(".notice.bad")).to_contain_text("Readers of version 2 cannot read data of version 1:")
    expect(page.locator(".notice.bad li")).to_contain_text("bag")
    expect(page.locator(".notice.good")).to_have_text("Readers of version 1 can read data of version 2.")


def test_deleted_versions_references_and_levels_are_shown(visitor: Visitor, port: Airport) -> None:
    register(port.server, "belt", {"type": "integer"})
    definition = json.dumps({"type": "object", "properties": {"belt": {"$ref": "belt.json"}}})
    sent = {"type": "json_schema", "definition": definition,
            "references": [{"name": "belt.json", "subject": "belt", "version": 1}]}  # fmt: skip
    assert call(port.server, "POST", "/api/schemas/bag/versions", sent).status == 201
    assert call(port.server, "PUT", "/api/schemas/bag/mode", {"mode": "full_transitive"}).status == 200
    page = visitor.go("schemas/bag")
    expect(page.get_by_role("link", name="belt 1")).to_be_visible()
    expect(page.locator("main")).to_contain_text("full_transitive")
    page.get_by_role("button", name="Start with the latest").click()
    expect(page.get_by_label("Definition")).to_have_value(re.compile("belt"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.good", has_text="Compatible with version 1")).to_be_visible()
    expect(visitor.go("schemas/belt").locator("main")).to_contain_text("bag 1")
    assert call(port.server, "DELETE", "/api/schemas/bag/versions/1").status == 200
    expect(visitor.go("schemas/bag").get_by_role("table", name="Versions")).to_contain_text("deleted")
    page = visitor.go("schemas")
    subjects = page.get_by_role("table", name="Subjects")
    expect(subjects.get_by_role("link", name="belt", exact=True)).to_be_visible()
    expect(subjects.get_by_role("link", name="bag", exact=True)).to_have_count(0)
    page.get_by_label("Show deleted").check()
    expect(subjects.locator("tr", has_text="bag")).to_contain_text("deleted")


def test_a_rejected_message_is_sent_again(visitor: Visitor, port: Airport) -> None:
    assert call(port.server, "POST", "/topics/gate.boarding", b'{"seat": 4711}').status == 422
    page = visitor.go("rejected?source=rejected")
    row = page.get_by_role("table", name="Rejected messages").locator("tr", has_text="required property")
    button = row.get_by_role("button", name=re.compile("^Send again"))
    button.click()
    expect(page.locator(".notice.bad")).to_contain_text("refused again")
    visitor.forgive(422)
    (kept,) = [each for each in port.ask("/api/rejected?source=rejected")["rejected"] if "required" in each["reason"]]
    bind(port.server, "gate.boarding", "boarding", "none", validate=False)
    try:
        button.click()
        expect(page.locator(".notice.good")).to_contain_text("was sent again to gate.boarding")
        expect(row).to_contain_text("to gate.boarding")
    finally:
        bind(port.server, "gate.boarding", "boarding", "enforce")
    found = port.ask(f"/api/messages?id={kept['correlation_id']}&topic=gate.boarding")["messages"]
    assert [each["payload"] for each in found] == ['{"seat": 4711}'], "delivered, with its correlation id"


def test_a_dead_letter_is_sent_again_once_its_schema_admits_it(visitor: Visitor, port: Airport) -> None:
    page = visitor.go("rejected")
    expect(page.get_by_role("table", name="Rejected messages")).to_contain_text("paper jam")
    visitor.picture("rejected")
    page.get_by_role("link", name="Dead letters").click()
    rows = page.get_by_role("table", name="Rejected messages").locator("tbody tr")
    expect(rows.first).to_contain_text("subscription printer")
    letter = port.ask("/api/rejected?source=dead_letter")["rejected"][0]
    button = page.get_by_role("button", name=f"Send again: message {letter['position']}")
    register(port.server, "inspected", {"type": "object", "required": ["inspector"]})
    bind(port.server, "gate.boarding", "inspected", "enforce")
    try:
        button.click()
        expect(page.locator(".notice.bad")).to_contain_text("the topic requires 'inspected'")
    finally:
        bind(port.server, "gate.boarding", "boarding", "enforce")
    visitor.forgive(422)
    port.printer_works = True
    button.click()
    expect(page.locator(".notice.good")).to_contain_text("was sent again to gate.boarding")
    wait_until(lambda: str(letter["position"]) in [each["attributes"].get("raceway.redriven") for each in port.printed])
    found = port.ask(f"/api/messages?id={letter['correlation_id']}&topic=gate.boarding")["messages"]
    assert [each["correlation_id"] for each in found] == [letter["correlation_id"]] * 2, "as sent, and once more"
    assert len({each["payload"] for each in found}) == 1
    assert port.ask(f"/api/topics/{DEAD_LETTERS}")["next"] >= 1, "it stays where it was kept"


def test_peers_tables_and_the_journal(visitor: Visitor, port: Airport) -> None:
    page = visitor.go("peers")
    expect(page.get_by_role("table", name="Peers")).to_contain_text("gives out seats")
    expect(page.get_by_role("table", name="Patterns")).to_contain_text("checkin.seat")
    expect(page.get_by_role("table", name="Services behind the bus")).to_contain_text("cmd:points,role:loyalty")
    visitor.picture("peers")
    page = visitor.go("journal")
    expect(page.get_by_role("table", name="Segments")).to_contain_text("active")
    page = visitor.go("api")
    expect(page.get_by_role("table", name="Operations")).to_contain_text("/api/messages")


def test_progress_of_the_pipeline_and_rows_of_its_tables(visitor: Visitor) -> None:
    page = visitor.go("pipeline")
    behind = page.locator(".tile", has_text="behind").locator("b")
    before = behind.inner_text()
    expect(behind).not_to_have_text(before)
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile(r"^\d+$"))
    visitor.picture("pipeline")
    page.get_by_role("link", name="gold.topic_stats").click()
    expect(page.get_by_role("table", name="Result")).to_contain_text("flight.updates")
    visitor.picture("table")


def test_the_policy_forbids_scripts_and_styles_within_a_page(visitor: Visitor) -> None:
    visitor.go("")
    answer = visitor.page.reload()
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    visitor.page.evaluate(
        """() => { const made = document.createElement("script"); made.textContent = "document.body.dataset.ran = 1";
        document.body.append(made); }"""
    )
    assert visitor.page.evaluate("document.body.dataset.ran ?? ''") == ""
    assert any("Content Security Policy" in fault for fault in visitor.faults)
    visitor.faults.clear()


def test_nothing_is_fetched_from_elsewhere(visitor: Visitor) -> None:
    for place in PAGES:
        visitor.go(place)
    assert {url.split("/")[2] for url in visitor.asked} == {visitor.base.split("/")[2]}


def test_the_theme_follows_the_system_and_the_button(browser: Browser, port: Airport) -> None:
    with visiting(browser, port.server, scheme="dark") as dark:
        page = dark.go("")
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(15, 18, 23)"
        expect(page.locator("svg.chart path.line").first).to_be_attached()
        dark.picture("overview-dark")
        page.get_by_role("button", name="Light or dark").click()
        assert page.evaluate(paper) == "rgb(245, 246, 248)"
        page.reload()
        expect(page.locator("main h1")).to_be_visible()
        assert page.evaluate(paper) == "rgb(245, 246, 248)", "it is remembered"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_paper(visitor: Visitor, scheme: Literal["light", "dark"]) -> None:
    """WCAG AA: 4.5 to 1, for the colours that text has."""
    page = visitor.go("api")
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)
    for ink, papers in {
        "ink": "paper card hover", "soft": "paper card hover", "accent": "card", "accent-ink": "accent",
        "good": "good-paper", "warn": "warn-paper card", "bad": "bad-paper card",
    }.items():  # fmt: skip
        for paper in papers.split():
            assert contrast(colour(page, ink), colour(page, paper)) >= 4.5, f"{ink} on {paper}, {scheme}"
    page.emulate_media(color_scheme="light")


def colour(page: Page, name: str) -> str:
    return str(page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()"))


def contrast(one: str, other: str) -> float:
    """Of two colours as #rrggbb, by WCAG's formula."""

    def luminance(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_everything_is_reached_with_the_keyboard(visitor: Visitor) -> None:
    visitor.go("")
    page = visitor.go("topics")
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("#nav a", has_text="Messages").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1:focus")).to_have_text("Messages")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "topic"
    page.keyboard.type("shop.orders")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(1)
    link = page.get_by_role("table", name="Messages").get_by_role("link")
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("each => each === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1:focus")).to_contain_text("Message")
    ring = page.evaluate("getComputedStyle(document.querySelector('#nav a')).outlineStyle")
    assert ring == "none", "a ring is for whoever has the focus"


def test_figures_that_change_leave_the_focus_where_it_is(visitor: Visitor) -> None:
    page = visitor.go("topics")
    link = page.get_by_role("link", name="checkin.seat")
    link.focus()
    cell = page.get_by_role("table", name="Topics").locator("tr", has_text="checkin.seat").locator("td").nth(2)
    before = cell.inner_text()
    expect(cell).not_to_have_text(before)
    assert link.evaluate("each => each === document.activeElement")
    page = visitor.go("")
    tile = page.locator("a.tile", has_text="stored")
    tile.focus()
    before = tile.inner_text()
    expect(tile).not_to_have_text(before)
    assert tile.evaluate("each => each === document.activeElement"), "a click that begins on it ends on it"
    link = page.locator(".facts").get_by_role("link")
    link.focus()
    figure = page.locator(".facts dd").first
    before = figure.inner_text()
    expect(figure).not_to_have_text(before)
    assert link.evaluate("each => each === document.activeElement"), "as on tiles"
    page = visitor.go("services")
    box = page.locator("svg.graph a.node.topic", has_text="gate.boarding")
    box.focus()
    asked = page.get_by_role("table", name="Requests").locator("tr", has_text="checkin.seat").locator("td").nth(4)
    before = asked.inner_text()
    expect(asked).not_to_have_text(before)
    assert box.evaluate("each => each === document.activeElement"), "what is drawn stays, too"


def test_progress_that_is_drawn_again_is_as_long_as_it_says(visitor: Visitor) -> None:
    page = visitor.go("pipeline")
    bar, behind = page.get_by_role("progressbar", name="Done"), page.locator(".tile", has_text="behind").locator("b")
    before = behind.inner_text()
    expect(behind).not_to_have_text(before)
    said, width = bar.evaluate("each => [each.getAttribute('aria-valuenow'), each.firstChild.style.width]")
    assert width == f"{said}%"


def test_tables_show_all_of_their_columns_on_a_screen_of_1280(visitor: Visitor) -> None:
    """Also the buttons of a row, in its last column."""
    for place in (*PAGES, "topics/gate.boarding", "schemas/boarding"):
        page = visitor.go(place)
        expect(page.locator("main .loading:visible")).to_have_count(0)
        hidden = page.locator("main .scroll:has(table)").evaluate_all(
            "all => all.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"
        )
        assert hidden == [], place


def test_pages_fit_a_narrow_screen(browser: Browser, port: Airport) -> None:
    places = [
        *PAGES, "topics/gate.boarding", f"traces/{port.trace_id}", "schemas/boarding", "pipeline/gold.topic_stats",
    ]  # fmt: skip
    with visiting(browser, port.server, width=400) as narrow:
        for place in places:
            page = narrow.go(place)
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, f"{place or 'overview'} is {wide} wide"
        narrow.go("")
        narrow.picture("overview-narrow")
        narrow.go(f"traces/{port.trace_id}")
        expect(narrow.page.locator(".span[role=listitem]")).to_have_count(5)
        narrow.picture("trace-narrow")


def test_a_search_on_a_narrow_screen_begins_with_few_fields(browser: Browser, port: Airport) -> None:
    with visiting(browser, port.server, width=390) as narrow:
        for place in ("messages", "messages?range=15m"):
            page = narrow.go(place)
            fields = page.locator("form.filters label:visible")
            expect(fields).to_have_count(2)
        page.get_by_role("button", name="More fields").click()
        expect(fields).to_have_count(13)
        page.get_by_role("button", name="Fewer fields").click()
        expect(fields).to_have_count(2)


def test_a_row_that_moves_keeps_the_focus(visitor: Visitor, port: Airport) -> None:
    port.light_the_runway(1)
    page = visitor.go("topics?order=messages")
    rows = page.get_by_role("table", name="Topics").locator("tbody tr")
    expect(rows.first).not_to_contain_text("runway.lights")
    link = page.get_by_role("link", name="runway.lights")
    link.focus()
    port.light_the_runway(20_000)
    expect(rows.first).to_contain_text("runway.lights")
    assert link.evaluate("each => each === document.activeElement")


def test_text_of_strangers_stays_text_on_every_page(visitor: Visitor, port: Airport) -> None:
    """After all others: what strangers leave behind would be in their lists."""
    port.let_strangers_in()
    (evil,) = port.ask("/api/messages?topic=evil.events")["messages"]
    subject, name = quote(EVIL_SUBJECT, safe=""), quote(EVIL, safe="")
    shown = {
        "peers": EVIL, "topics/gate.boarding": EVIL_SUBJECT, f"messages/{evil['sequence']}": EVIL,
        "messages?topic=evil.events": EVIL[:15], f"messages?attribute=x-evil&attribute_value={name}": EVIL[:15],
        f"messages?attribute={name}": EVIL[:15], "schemas": EVIL_SUBJECT, f"schemas/{subject}": EVIL_SUBJECT,
        "services": "board evil", "pipeline": "gold.strangers", "pipeline/gold.strangers": EVIL,
        f"topics/{name}": EVIL[:15], f"traces/{evil['correlation_id']}": "evil.events",
        f"traces/{name}": EVIL[:10], f"messages/{name}": EVIL[:10], f"messages?id={name}": "Nothing found",
        f"topics?contains={name}": "No topic", f"rejected?source={name}": "source must be one of",
    }  # fmt: skip
    for place, text in shown.items():
        page = visitor.go(place)
        expect(page.locator("main")).to_contain_text(text)
        assert_no_markup(page)
    for place in PAGES:
        assert_no_markup(visitor.go(place))
    visitor.forgive(400, 404)


def assert_no_markup(page: Page) -> None:
    assert page.locator("main img, main script, main b[onclick], main [onerror]").count() == 0
