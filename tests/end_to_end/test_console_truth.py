"""What the console says is so: of a bus that is stopped, hung and back, of pages that are loading, of numbers; and that
it weighs little, in a real browser. Beside no other traffic, so that every number is known."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.rigs import http_door
from tests.rigs.browser import Visitor, running_browser, visiting
from tests.rigs.schema_rest import bind, register
from tests.rigs.server import Server, running_server, wait_until

# What is loaded until the first page is shown: scripts, styles, figures, with their heads.
PAGE_LOAD_BYTES = 60_000
# Words that would call a bus idle or empty.
EMPTY = (
    "No topic|Nothing found|No request|No answered|No publishes|No schema|Nothing was rejected|No peers|No pattern|"
    "No file|No table|has not run|No subscription|No change"
)
PAGES = (
    "topics", "subscriptions", "messages", "traces", "services", "schemas", "rejected", "peers", "pipeline", "journal",
    "changes", "api",
)  # fmt: skip
MESSAGES = 7


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__HTTP__LIVE_MS=100) as server:
        for number in range(MESSAGES):
            http_door.post(server, "/topics/shop.orders", b'{"order": %d}' % number)
        http_door.post(server, "/topics/shop.bytes", bytes(range(200, 240)))
        yield server


@pytest.fixture
def visitor(browser: Browser, server: Server) -> Iterator[Visitor]:
    with visiting(browser, server) as found:
        yield found


def away(page: Page) -> Any:
    return page.get_by_role("alert").filter(has_text="has not answered since")


def forgive_absence(visitor: Visitor) -> None:
    visitor.page.evaluate("0")
    visitor.faults = [fault for fault in visitor.faults if not re.search("Failed to load resource|net::ERR", fault)]


def loaded(visitor: Visitor) -> None:
    """All scripts are in the browser."""

    def is_last_asked_for() -> bool:
        visitor.page.evaluate("0")  # or no request would be told: they are heard of in calls of the browser alone
        return any(url.endswith("/pages/api.js") for url in visitor.asked)

    wait_until(is_last_asked_for, what="the last script")
    pages = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/pages/'))"
    # Not `wait_for_function`: the policy of the page forbids it to be evaluated again and again.
    wait_until(lambda: visitor.page.evaluate(f"{pages}.length > {len(PAGES)}"), 60, "all scripts")


def test_a_bus_that_is_stopped_and_started_again_is_told_on_every_page(visitor: Visitor, server: Server) -> None:
    page = visitor.go("")
    expect(page.locator(".head .badge")).to_have_text("ok")
    expect(page.locator("#away")).to_be_hidden()
    loaded(visitor)
    server.stop()
    try:
        expect(away(page)).to_be_visible()
        expect(away(page)).to_contain_text(re.compile(r"since \d\d:\d\d:\d\d\. Retrying"))
        assert page.evaluate("getComputedStyle(document.getElementById('away')).backgroundColor") == "rgb(179, 38, 30)"
        expect(page.locator(".head .badge")).to_have_text("no answer")
        expect(page.locator(".badge.good")).to_have_count(0)
        expect(page.locator(".wire-card b").first).to_have_text("–")
        expect(page.locator("#pulse")).to_have_text("no answer")
        for place in PAGES:
            page.evaluate(f"location.hash = '#/{place}'")
            expect(page.locator("main .fault")).to_contain_text("The bus does not answer")
            expect(page.locator("main h1")).to_be_visible()
            expect(away(page)).to_be_visible()
            shown = page.locator("main").inner_text()
            assert not re.search(EMPTY, shown), f"{place} shows a failure as emptiness: {shown}"
            expect(page.locator("main .badge.good")).to_have_count(0)
        page.evaluate("location.hash = '#/topics'")
        expect(page.locator("main .loading.failed")).to_have_text("Not loaded")
    finally:
        server.start()
    expect(page.get_by_role("link", name="shop.orders")).to_be_visible()
    expect(page.locator("#away")).to_be_hidden()
    expect(page.locator("main .fault")).to_have_count(0)
    expect(page.locator("#pulse")).to_have_text(re.compile("^live"))
    forgive_absence(visitor)


def test_a_search_that_gets_no_answer_found_neither_something_nor_nothing(visitor: Visitor, server: Server) -> None:
    page = visitor.go("messages?topic=shop.orders")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(MESSAGES)
    server.stop()
    try:
        expect(away(page)).to_be_visible()
        page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("main .loading.failed")).to_have_text("Not loaded")
        expect(rows).to_have_count(0)
        assert "Nothing found" not in page.locator("main").inner_text()
    finally:
        server.start()
    expect(page.locator("#away")).to_be_hidden()
    page.get_by_role("button", name="Search", exact=True).click()
    expect(rows).to_have_count(MESSAGES)
    forgive_absence(visitor)


def test_a_bus_that_hangs_does_not_answer_either(visitor: Visitor, server: Server) -> None:
    page = visitor.go("")
    expect(page.locator("#pulse")).to_have_text(re.compile("^live"))
    os.kill(server.pid, signal.SIGSTOP)
    try:
        expect(away(page)).to_be_visible()
        expect(page.locator(".head .badge")).to_have_text("no answer")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    expect(page.locator("#away")).to_be_hidden()
    expect(page.locator(".head .badge")).to_have_text("ok")
    forgive_absence(visitor)


@pytest.mark.parametrize(
    ("place", "question"),
    [("services", "/api/graph"), ("topics", "/api/topics"), ("rejected", "/api/rejected"),
     ("messages", "/api/messages"), ("traces", "/api/traces"), ("journal", "/api/journal"), ("peers", "/api/peers")],
)  # fmt: skip
def test_what_is_loading_is_shown_as_loading(visitor: Visitor, place: str, question: str) -> None:
    visitor.go("api")
    held: list[Route] = []
    visitor.page.route(f"**{question}*", lambda route: held.append(route))
    if place == "traces":
        visitor.page.route("**/api/messages*", lambda route: held.append(route))
    visitor.page.evaluate(f"location.hash = '#/{place}'")
    wait_until(lambda: visitor.page.evaluate("0") or held)
    expect(visitor.page.locator("main .loading").first).to_be_visible()
    assert not re.search(EMPTY, visitor.page.locator("main").inner_text())
    visitor.page.unroute_all()  # goes on with what was held
    expect(visitor.page.locator("main .loading:visible")).to_have_count(0)


def test_an_answer_brings_nobody_back_to_the_page_that_was_left(visitor: Visitor, server: Server) -> None:
    """The address changes before the page is told; an answer that arrives in between must not write its own address."""
    register(server, "parcel", {"type": "object"})
    visitor.go("schemas")
    visitor.page.evaluate("""() => {
        const original = Response.prototype.json;
        Response.prototype.json = async function () {
            const found = await original.call(this);
            if (this.url.includes("/differences")) location.hash = "#/topics";
            return found;
        };
    }""")
    visitor.page.evaluate("location.hash = '#/schemas/parcel'")
    expect(visitor.page.locator("main h1")).to_have_text("Topics")
    assert visitor.page.evaluate("location.hash") == "#/topics"


def test_an_unknown_page_says_so(visitor: Visitor) -> None:
    page = visitor.go("nosuch")
    expect(page.locator("main h1")).to_have_text("No such page")
    expect(page.locator("#nav [aria-current]")).to_have_count(0)
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.locator("main h1")).to_have_text("Overview")


def test_numbers_count_what_they_say(visitor: Visitor, server: Server) -> None:
    """Rows that the bus writes for itself are no messages; a message that is refused is kept, not stored."""
    register(server, "strict", {"type": "object", "required": ["id"]})
    bind(server, "store.strict", "strict", "enforce")
    refused = http_door.call(server, "POST", "/topics/store.strict", b"{}")
    assert refused.status == 422
    page = visitor.go("")
    tiles = {
        name: page.locator(".tile", has_text=name).locator("b") for name in ("messages stored", "rejected", "topics")
    }
    expect(tiles["messages stored"]).to_have_text(str(MESSAGES + 1))
    expect(tiles["rejected"]).to_have_text("1")
    before = http_door.get(server, "/api/overview").json()
    assert before["committed"] + 1 > MESSAGES + 2, "rows of the bus itself are in the journal, too"
    page.locator(".tile", has_text="rejected").click()
    expect(page.locator("main h1")).to_have_text("Rejected")
    page.get_by_role("button", name=re.compile("^Send again")).click()
    expect(page.locator(".notice.bad")).to_contain_text("refused again")
    visitor.forgive(422)
    after = http_door.get(server, "/api/overview").json()
    assert (after["stored"], after["rejected"]) == (before["stored"], before["rejected"])
    assert after["refused"] == before["refused"] + 1, "received, and refused: both are said"
    facts = visitor.go("").locator(".facts", has_text="Publishes received")
    expect(facts).to_contain_text("Of these refused")


def test_the_page_weighs_little_and_is_kept(browser: Browser, server: Server) -> None:
    context = browser.new_context()
    page = context.new_page()
    client = context.new_cdp_session(page)
    client.send("Network.enable")
    names: dict[str, str] = {}
    weights: dict[str, float] = {}
    client.on("Network.requestWillBeSent", lambda event: names.update({event["requestId"]: event["request"]["url"]}))
    client.on(
        "Network.loadingFinished", lambda event: weights.update({names[event["requestId"]]: event["encodedDataLength"]})
    )
    address = f"http://127.0.0.1:{server.port('console')}/"
    # What is fetched behind the first page, when there is nothing else to do, comes later.
    page.add_init_script("globalThis.requestIdleCallback = (work) => { globalThis.later = work; };")
    page.goto(address)
    expect(page.locator("table[aria-label='Busiest topics'] tbody tr").first).to_be_visible()
    wait_until(lambda: page.evaluate("globalThis.later !== undefined"), 60, "the end of the load")
    load = {url: size for url, size in weights.items() if "/api/live" not in url}
    assert sum(load.values()) <= PAGE_LOAD_BYTES, load
    assert any(url.endswith("/app.js") for url in load)
    weights.clear()
    page.reload()
    expect(page.locator("table[aria-label='Busiest topics'] tbody tr").first).to_be_visible()
    again = [url for url, size in weights.items() if "/console/" in url and size > 0]
    assert again == [], "files are asked for once"
    context.close()


def test_keys_lead_everywhere(visitor: Visitor) -> None:
    page = visitor.go("")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("Topics")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.locator("main h1")).to_have_text("Topics")
    expect(page.get_by_role("link", name="shop.orders")).to_be_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "contains"
    page.keyboard.type("gt")
    expect(page.locator("main h1")).to_have_text("Topics")
    page.get_by_label("Find").fill("shop.")
    names = page.get_by_role("table", name="Topics").get_by_role("link")
    expect(names).to_have_count(2)
    page.locator("main h1").focus()
    page.keyboard.press("j")
    first, second = names.nth(0), names.nth(1)
    assert first.evaluate("each => each === document.activeElement")
    page.keyboard.press("ArrowDown")
    assert second.evaluate("each => each === document.activeElement")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("j")
    assert second.evaluate("each => each === document.activeElement")
    page.keyboard.press("k")
    name = first.inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text(name)


def test_a_row_leads_where_its_link_leads(visitor: Visitor) -> None:
    page = visitor.go("topics")
    page.get_by_role("table", name="Topics").locator("tr", has_text="shop.orders").locator("td").nth(2).click()
    expect(page.locator("main h1")).to_have_text("shop.orders")


def test_messages_are_paged_copied_and_named(visitor: Visitor, server: Server) -> None:
    visitor.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=visitor.base)
    found = http_door.get(server, "/api/topics/shop.orders/messages").json()["messages"]
    newest, older = found[0], found[1]
    page = visitor.go(f"messages/{older['sequence']}")
    expect(page.locator("pre.payload")).to_contain_text('"order": 5')
    page.keyboard.press("ArrowRight")
    expect(page.locator("pre.payload")).to_contain_text('"order": 6')
    expect(page.get_by_role("link", name="Next")).to_have_count(0)
    page.get_by_role("link", name="Previous").click()
    expect(page.locator("pre.payload")).to_contain_text('"order": 5')
    page.get_by_role("button", name="Copy payload").click()
    expect(page.get_by_role("button", name="Copy payload")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == '{"order": 5}'
    expect(page.locator("main")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d\.\d{3} UTC"))
    assert newest["sequence"] > older["sequence"]


def test_binary_payloads_are_called_so_and_stay_in_their_lines(visitor: Visitor) -> None:
    page = visitor.go("messages?topic=shop.bytes")
    cell = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(cell).to_contain_text("40 bytes, binary")
    cell.get_by_role("link").click()
    assert page.locator("pre.payload").evaluate("each => getComputedStyle(each).whiteSpace") == "pre"


def test_topics_of_the_same_rate_are_in_alphabetical_order(server: Server) -> None:
    for name in "zyx":
        http_door.post(server, f"/topics/tie.{name}")
    for order in ("messages", "rate"):
        rows = http_door.get(server, f"/api/topics?order={order}&contains=tie.").json()["topics"]
        assert [row["topic"] for row in rows] == ["tie.x", "tie.y", "tie.z"]


def test_the_schema_of_a_message_is_a_link(visitor: Visitor, server: Server) -> None:
    register(server, "lax", {"type": "object"})
    bind(server, "store.lax", "lax", "enforce")
    http_door.post(server, "/topics/store.lax", b"{}")
    (message,) = http_door.get(server, "/api/topics/store.lax/messages").json()["messages"]
    page = visitor.go(f"messages/{message['sequence']}")
    page.get_by_role("link", name="lax", exact=True).click()
    expect(page.locator("main h1")).to_have_text("lax")
