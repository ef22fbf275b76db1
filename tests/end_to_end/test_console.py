"""Every page of the console in a real browser, beside real traffic on all wires. The pictures of the manual are taken
on the way: `RACEWAY_PICTURES=1` writes them to docs/pictures."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import running_browser
from tests.console_rig import EVIL, EVIL_SUBJECT, Airport, airport
from tests.schema_rest import bind, call
from tests.server import running_server

PICTURES = Path(__file__).parent.parent.parent / "docs" / "pictures"
PAGES = ("", "topics", "messages", "traces", "services", "schemas", "rejected", "peers", "pipeline", "journal", "api")
SLOW_MS = 15_000
expect.set_options(timeout=SLOW_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def port() -> Iterator[Airport]:
    with airport() as found:
        yield found


class Visitor:
    """A window, and what went wrong in it."""

    def __init__(self, browser: Browser, console: int, width: int = 1280, scheme: Any = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SLOW_MS)
        self.base = f"http://127.0.0.1:{console}"
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def go(self, place: str) -> Page:
        self.page.goto(f"{self.base}/#/{place}")
        expect(self.page.locator("main h1")).to_be_visible()
        return self.page

    def picture(self, name: str) -> None:
        if os.environ.get("RACEWAY_PICTURES"):
            self.page.wait_for_timeout(700)  # charts and bars come to rest
            PICTURES.mkdir(exist_ok=True)
            self.page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture
def visitor(browser: Browser, port: Airport) -> Iterator[Visitor]:
    found = Visitor(browser, port.server.port("console"))
    yield found
    owned = found.page.evaluate("document.body.dataset.owned ?? ''")
    found.context.close()
    assert owned == "", "text of a stranger was run"
    assert found.faults == []


def number_in(page: Page, selector: str) -> int:
    return int(re.sub(r"\D", "", page.locator(selector).first.inner_text()) or 0)


def test_figures_of_the_overview_move(visitor: Visitor) -> None:
    page = visitor.go("")
    stored = page.locator(".tile", has_text="stored").locator("b")
    before = stored.inner_text()
    expect(stored).not_to_have_text(before)
    expect(page.locator("#pulse")).to_have_text(re.compile(r"live · [1-9]"))
    expect(page.locator("svg.chart path.line")).to_have_count(5)
    drawn = page.locator("svg.chart path.line.mb").get_attribute("d") or ""
    assert drawn.count("L") >= 1
    expect(page.get_by_role("table", name="Busiest topics")).to_contain_text("checkin.seat")
    visitor.picture("overview")


def test_a_chart_is_read_with_the_arrow_keys(visitor: Visitor) -> None:
    page = visitor.go("")
    page.locator("svg.chart").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".legend")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d"))
    expect(page.locator("svg.chart .cursor")).to_have_count(1)


def test_topics_are_found_and_lead_to_their_subscriptions(visitor: Visitor) -> None:
    page = visitor.go("topics")
    expect(page.get_by_role("link", name="baggage.events")).to_be_visible()
    page.get_by_label("Find").fill("BOARD")
    expect(page.get_by_role("link", name="baggage.events")).to_have_count(0)
    page.get_by_role("link", name="gate.boarding").click()
    rows = page.get_by_role("table", name="Subscriptions").locator("tbody tr")
    expect(rows).to_have_count(2)
    display = rows.filter(has_text="display-1").locator("td")
    assert int(display.nth(2).inner_text().replace(",", "")) > 0, "lag"
    assert int(display.nth(3).inner_text().replace(",", "")) > 0, "in flight"
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


def test_a_search_that_finds_nothing_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.go("messages?text=" + quote("no such text anywhere"))
    expect(page.locator(".empty").first).to_contain_text("Nothing found")
    page.get_by_label("JSON path").fill("$..[")
    page.get_by_label("JSON path").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("is no path")
    visitor.faults = [fault for fault in visitor.faults if "400" not in fault]


def test_messages_page(visitor: Visitor) -> None:
    page = visitor.go("messages")
    expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Search further back").click()
    expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(100)
    page.evaluate("scrollTo(0, 0)")
    visitor.picture("messages")


def test_a_known_trace_draws_its_hops(visitor: Visitor, port: Airport) -> None:
    page = visitor.go(f"traces/{quote(port.trace_id, safe='')}")
    spans = page.locator(".span")
    expect(spans).to_have_count(3)
    expect(spans.nth(0)).to_contain_text("seneca → mb · kiosk → desk")
    expect(spans.nth(1)).to_contain_text("mb → zbus")
    expect(spans.nth(2)).to_contain_text("flight.updates")
    first, second = (spans.nth(each).locator("rect") for each in (0, 1))
    assert float(first.get_attribute("width") or 0) > float(second.get_attribute("width") or 0), "it waits for it"
    assert float(first.get_attribute("x") or 9) < float(second.get_attribute("x") or 0), "it begins before it"
    visitor.picture("trace")
    spans.nth(1).click()
    expect(page.locator("main h1")).to_contain_text("Message")
    page.get_by_role("link", name="Show its trace").click()
    expect(spans).to_have_count(3)


def test_recent_requests_lead_to_traces(visitor: Visitor) -> None:
    page = visitor.go("traces")
    page.get_by_role("table", name="Recent requests").get_by_role("link").first.click()
    expect(page.locator(".span").first).to_be_visible()


def test_the_service_graph_joins_those_who_talk(visitor: Visitor) -> None:
    page = visitor.go("services")
    drawn = page.locator("svg.graph")
    for name in ("kiosk", "desk", "gate.boarding", "display-1"):
        expect(drawn.locator(".node", has_text=name).first).to_be_attached()
    expect(page.get_by_role("table", name="Requests")).to_contain_text("checkin.seat")
    visitor.picture("services")


def test_versions_of_a_schema_are_compared_and_checked(visitor: Visitor) -> None:
    page = visitor.go("schemas")
    page.get_by_role("link", name="boarding", exact=True).first.click()
    expect(page.locator("pre.diff .added").filter(has_text="gate")).to_have_count(1)
    expect(page.locator(".notice.good")).to_contain_text("version 1 can read data of version 2")
    page.get_by_label("Definition").fill(json.dumps({"type": "object", "required": ["flight", "gate"]}))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.bad")).to_contain_text("/flight")
    page.get_by_role("button", name="Begin with the latest").click()
    expect(page.get_by_label("Definition")).to_have_value(re.compile("gate"))
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".notice.good", has_text="Yes: it goes with version 2")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")
    visitor.picture("schema")


def test_a_rejected_message_is_sent_again(visitor: Visitor, port: Airport) -> None:
    server = port.server
    page = visitor.go("rejected")
    row = page.get_by_role("table", name="Rejected messages").locator("tr", has_text="required property")
    button = row.get_by_role("button", name=re.compile("Send message"))
    button.click()
    expect(page.locator(".notice.bad")).to_contain_text("refused again")
    visitor.picture("rejected")
    visitor.faults = [fault for fault in visitor.faults if "422" not in fault]
    (kept,) = [each for each in port.ask("/api/rejected")["rejected"] if "required" in each["reason"]]
    bind(server, "gate.boarding", "boarding", "none", validate=False)
    try:
        button.click()
        expect(page.locator(".notice.good")).to_contain_text("was sent again to gate.boarding")
        expect(row).to_contain_text("to gate.boarding")
    finally:
        bind(server, "gate.boarding", "boarding", "enforce")
    found = port.ask(f"/api/messages?id={kept['correlation_id']}&topic=gate.boarding")["messages"]
    assert [each["payload"] for each in found] == ['{"seat": 17}'], "delivered, with its correlation id"


def test_peers_tables_and_the_journal(visitor: Visitor) -> None:
    page = visitor.go("peers")
    expect(page.get_by_role("table", name="Peers")).to_contain_text("gives out seats")
    expect(page.get_by_role("table", name="Patterns")).to_contain_text("checkin.seat")
    page = visitor.go("pipeline")
    expect(page.locator("main")).to_contain_text("20 rows behind")
    page.get_by_role("link", name="gold.topic_stats").click()
    expect(page.get_by_role("table", name="gold.topic_stats")).to_contain_text("flight.updates")
    page = visitor.go("journal")
    expect(page.get_by_role("table", name="Segments")).to_contain_text("active")
    page = visitor.go("api")
    expect(page.get_by_role("table", name="Operations")).to_contain_text("/api/messages")


def test_text_of_strangers_stays_text_on_every_page(visitor: Visitor, port: Airport) -> None:
    (evil,) = port.ask("/api/messages?topic=evil.events")["messages"]
    subject, name = quote(EVIL_SUBJECT, safe=""), quote(EVIL, safe="")
    shown = {
        "peers": EVIL, "topics/gate.boarding": EVIL_SUBJECT, f"messages/{evil['sequence']}": EVIL,
        "messages?topic=evil.events": EVIL[:15], f"messages?attribute=x-evil&attribute_value={name}": EVIL[:15],
        "schemas": EVIL_SUBJECT, f"schemas/{subject}": EVIL_SUBJECT, "services": "board evil",
        "pipeline/gold.topic_stats": EVIL, f"topics/{name}": EVIL[:15],
        f"traces/{evil['correlation_id']}": "evil.events",
        f"traces/{name}": EVIL[:10], f"messages/{name}": EVIL[:10], f"messages?id={name}": "Nothing found",
    }  # fmt: skip
    for place, text in shown.items():
        page = visitor.go(place)
        expect(page.locator("main")).to_contain_text(text)
    for place in PAGES:
        visitor.go(place)
    assert visitor.page.locator("main img, main script, main b[onclick]").count() == 0
    visitor.faults = [fault for fault in visitor.faults if "404" not in fault and "400" not in fault]


def test_the_policy_forbids_scripts_and_styles_within_a_page(visitor: Visitor) -> None:
    answer = visitor.page.goto(visitor.base + "/")
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
    asked: list[str] = []
    visitor.page.on("request", lambda request: asked.append(request.url))
    for place in PAGES:
        visitor.go(place)
    assert {url.split("/")[2] for url in asked} == {visitor.base.split("/")[2]}


def test_the_theme_follows_the_system_and_the_button(browser: Browser, port: Airport) -> None:
    dark = Visitor(browser, port.server.port("console"), scheme="dark")
    page = dark.go("")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(18, 21, 26)"
    expect(page.locator("svg.chart path.line").first).to_be_attached()
    dark.picture("overview-dark")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(paper) == "rgb(246, 247, 249)"
    page.reload()
    expect(page.locator("main h1")).to_be_visible()
    assert page.evaluate(paper) == "rgb(246, 247, 249)", "it is remembered"
    dark.context.close()


def test_everything_is_reached_with_the_keyboard(visitor: Visitor) -> None:
    page = visitor.go("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page = visitor.go("topics")
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


def test_pages_fit_a_narrow_screen(browser: Browser, port: Airport) -> None:
    narrow = Visitor(browser, port.server.port("console"), width=400)
    places = [
        *PAGES,
        "topics/gate.boarding",
        f"traces/{port.trace_id}",
        "schemas/boarding",
        "pipeline/gold.topic_stats",
    ]
    for place in places:
        page = narrow.go(place)
        page.wait_for_load_state("load")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 400, f"{place or 'overview'} is {wide} wide"
    narrow.go(f"traces/{port.trace_id}")
    expect(narrow.page.locator(".span")).to_have_count(3)
    narrow.picture("trace-narrow")
    narrow.context.close()


def test_a_bus_without_traffic_says_what_to_do(browser: Browser) -> None:
    with running_server() as server:
        visitor = Visitor(browser, server.port("console"))
        for place in (
            "topics",
            "messages",
            "traces",
            "services",
            "schemas",
            "rejected",
            "peers",
            "pipeline",
            "journal",
        ):
            page = visitor.go(place)
            expect(page.locator(".empty:visible").first).to_be_visible()
        visitor.context.close()
        assert visitor.faults == []


def test_a_bus_that_ends_and_comes_back_is_noticed(browser: Browser) -> None:
    with running_server() as server:
        visitor = Visitor(browser, server.port("console"))
        page = visitor.go("")
        expect(page.locator("#pulse.on")).to_be_visible()
        server.stop()
        expect(page.locator("#pulse.off")).to_be_visible()
        server.start()
        expect(page.locator("#pulse.on")).to_be_visible()
        visitor.context.close()


def test_a_token_is_asked_for_where_one_is_wanted(browser: Browser) -> None:
    with running_server(RACEWAY_LISTEN__ZBUS__ADMIN_TOKEN="open-sesame") as server:
        assert call(server, "POST", "/topics/a.b", b"{}").status == 201
        assert call(server, "GET", "/api/messages").status == 403
        visitor = Visitor(browser, server.port("console"))
        page = visitor.go("messages")
        expect(page.get_by_role("alert")).to_contain_text("may not")
        page.locator("#token").click()
        page.get_by_label("Token", exact=True).last.fill("open-sesame")
        page.keyboard.press("Enter")
        expect(page.get_by_role("table", name="Messages").locator("tbody tr")).to_have_count(1)
        visitor.context.close()
