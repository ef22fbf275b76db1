"""What the console says of the past, in a real browser: charts of the chosen time, which all pages share; what is kept
over a restart; and SQL over the tables."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from playwright.sync_api import Browser, Page, expect

from raceway.client import sync
from raceway.web.moments import FOLDER, Moment, read_moments
from tests.rigs import http_door
from tests.rigs.browser import EVERY_LOOK, LOOKS, Visitor, barriers, running_browser, visiting
from tests.rigs.schema_rest import bind, register
from tests.rigs.server import Server, running_server, wait_until

MESSAGES = 40
EARLY = ("2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__HTTP__LIVE_MS=100, RACEWAY_HISTORY__INTERVAL_S=0.2) as server:
        write_tables(server.data)
        with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as desk:
            desk.serve("desk.seat", lambda message: message.json())
            for number in range(MESSAGES):
                http_door.post(server, "/topics/shop.orders", b'{"order": %d}' % number)
                assert http_door.post(server, "/requests/desk.seat", b"1").status == 200
        register(server, "strict", {"type": "object"})
        bind(server, "desk.strict", "strict", "enforce")
        assert http_door.post(server, "/topics/desk.strict", b"1").status == 422
        made = http_door.post(
            server, "/api/subscriptions", b'{"topic": "shop.orders", "name": "late", "start": "first"}'
        )
        assert made.status == 201
        wait_until(lambda: 0 in measured(server)["rate"] and measured(server)["lag"][-1] == MESSAGES)
        yield server


def write_tables(data: Path) -> None:
    rows = {"topic": [f"t{number:04d}" for number in range(700)], "messages": list(range(700)),
            "seen_us": [1_700_000_000_000_000 + number for number in range(700)]}  # fmt: skip
    write_deltalake(data / "pipeline" / "tables" / "gold" / "topic_stats", pa.table(rows))


def measured(server: Server, topic: str = "shop.orders") -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = http_door.get(server, f"/api/history/topic?topic={topic}&points=1000").json()
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(params=LOOKS, ids=str)
def visitor(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    with visiting(browser, server, *request.param) as found:
        yield found
        assert barriers(found.page) == []
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def choose(page: Page, title: str) -> None:
    page.get_by_label("Time shown").select_option(label=title)


def drawn(page: Page, chart: str, line: str) -> str:
    """The path of a line of a chart."""
    found = page.get_by_role("img", name=chart).locator(f"path.line.{line}")
    expect(found).to_be_attached()
    return found.get_attribute("d") or ""


def test_the_overview_shows_rates_lag_and_latency_of_the_chosen_time(visitor: Visitor) -> None:
    page = visitor.go("")
    expect(page.get_by_role("img", name="Messages behind")).to_have_count(0)
    choose(page, "Last 15 min")
    assert drawn(page, "Messages a second", "http").count("L") >= 1
    assert drawn(page, "Messages behind", "behind").count("L") >= 1
    assert drawn(page, "99 of 100 answers within, by wire", "http").startswith("M")
    rows = page.get_by_role("table", name="Busiest topics").locator("tbody tr")
    expect(rows.filter(has_text="shop.orders")).to_contain_text(str(MESSAGES))
    expect(rows.filter(has_text="desk.seat")).to_contain_text(re.compile(r"\d (µs|ms)"))
    page.get_by_role("img", name="Messages behind").focus()
    page.keyboard.press("ArrowLeft")
    expect(
        page.locator(".card", has=page.get_by_role("img", name="Messages behind")).locator(".legend b")
    ).to_have_text(re.compile(r"^\d+$"))


def test_a_topic_has_charts_of_its_own(visitor: Visitor) -> None:
    page = visitor.go("topics/desk.seat")
    expect(page.get_by_role("heading", name="Last hour")).to_be_visible()
    assert drawn(page, "Messages a second", "messages").startswith("M")
    for line in ("median", "p99"):
        assert drawn(page, "Time until an answer", line).startswith("M")
    page = visitor.go("topics/shop.orders?range=15m")
    expect(page.get_by_role("heading", name="Last 15 min")).to_be_visible()
    expect(page.locator(".card", has_text="Time until an answer")).to_contain_text("No request was answered")
    assert drawn(page, "Messages behind", "behind").count("L") >= 1


def test_all_pages_share_the_chosen_time_and_addresses_have_it(visitor: Visitor) -> None:
    page = visitor.go("messages?topic=shop.orders")
    rows = page.get_by_role("table", name="Messages").locator("tbody tr")
    expect(rows).to_have_count(MESSAGES)
    choose(page, "From … to …")
    dialog = page.get_by_role("dialog", name="Time shown")
    dialog.get_by_label("From").fill("2001-01-02T00:00:00")
    dialog.get_by_label("Until").fill("2001-01-01T00:00:00")
    dialog.get_by_role("button", name="Show").click()
    expect(dialog).to_be_visible()
    dialog.get_by_label("From").fill("2001-01-01T00:00:00")
    dialog.get_by_label("Until").fill("2001-01-02T00:00:00")
    dialog.get_by_role("button", name="Show").click()
    expect(page.locator(".empty").first).to_contain_text("Nothing found")
    expect(page.locator(".lead")).to_contain_text("Only those of: 2001-01-01")
    expect(page).to_have_url(re.compile(r"topic=shop\.orders&range=2001-01-01"))
    empty = {
        "traces": "No request", "services": "Nothing to draw", "rejected": "Nothing was rejected",
        "changes": "No change", "": "Nothing was measured", "subscriptions": "Nothing was measured",
        "topics/desk.seat": "Nothing was measured",
    }  # fmt: skip
    for place, words in empty.items():
        page = visitor.go(place)
        expect(page.locator(".empty:visible", has_text=words).first).to_be_visible()
        expect(page).to_have_url(re.compile("range=2001-01-01"))
        expect(page.get_by_label("Time shown")).to_have_value("/".join(EARLY))
    copied = page.url
    choose(page, "Last hour")
    page = visitor.go("rejected")
    expect(page.get_by_role("table", name="Rejected messages")).to_contain_text("desk.strict")
    choose(page, "Now")
    expect(page).not_to_have_url(re.compile("range="))
    page = visitor.go("traces")
    expect(page.get_by_role("table", name="Recent requests").locator("tbody tr").first).to_be_visible()
    page.goto("about:blank")
    page.goto(copied)
    expect(page.get_by_label("Time shown")).to_have_value("/".join(EARLY))
    page.evaluate("location.hash = '#/topics?range=yesterday'")
    expect(page.get_by_label("Time shown")).to_have_value("")
    expect(page.get_by_role("link", name="shop.orders")).to_be_visible()


def test_history_outlasts_a_restart_and_what_is_damaged_is_set_aside(visitor: Visitor, server: Server) -> None:
    server.stop()
    before = list(read_moments(server.data / FOLDER, 0, 1 << 60, Moment))
    assert len(before) > 3
    path = max((server.data / FOLDER).glob("*.moments"))
    path.write_bytes(path.read_bytes() + b"\xff" * 30)
    time_us = time.time_ns() // 1000
    server.start()
    wait_until(lambda: (measured(server)["times_us"][-1] or 0) > time_us, what="a measurement after the start")
    assert path.with_name(f"{path.name}.damaged").exists()
    assert "history set aside" in server.stderr
    after = list(read_moments(server.data / FOLDER, 0, 1 << 60, Moment))
    assert after[: len(before)] == before
    shown = "/".join(
        f"{datetime.fromtimestamp(time_us // 1_000_000 + part, UTC):%Y-%m-%dT%H:%M:%SZ}" for part in (-60, 60)
    )
    page = visitor.go(f"topics/shop.orders?range={shown}")
    assert drawn(page, "Messages behind", "behind").count("M") >= 2, "the time between is a gap"


@pytest.mark.parametrize("visitor", EVERY_LOOK, ids=str, indirect=True)
def test_tables_are_asked_with_sql(visitor: Visitor) -> None:
    page = visitor.go("pipeline")
    form = page.get_by_role("form", name="SQL")
    form.get_by_label("SQL", exact=True).fill(
        "SELECT topic, messages, seen_us FROM gold.topic_stats WHERE messages < 3;"
    )
    page.keyboard.press("Control+Enter")
    rows = page.get_by_role("table", name="Result").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("2023-11-14 22:13:20")
    expect(page.locator("main [role=status]")).to_contain_text("3 rows in")
    expect(page).to_have_url(re.compile("sql=SELECT"))
    heads = page.get_by_role("table", name="Result").locator("th")
    heads.nth(1).get_by_role("button").click()
    heads.nth(1).get_by_role("button").click()
    expect(heads.nth(1)).to_have_attribute("aria-sort", "descending")
    expect(rows.first).to_contain_text("t0002")
    page.reload()
    expect(rows).to_have_count(3)
    form.get_by_label("SQL", exact=True).fill("SELECT * FROM read_text('/etc/passwd')")
    form.get_by_role("button", name="Run").click()
    expect(page.locator("main .fault")).to_contain_text("Permission Error")
    expect(rows).to_have_count(0)
    visitor.forgive(400)
    form.get_by_label("SQL", exact=True).fill("SELECT topic, messages FROM gold.topic_stats LIMIT 4")
    form.get_by_role("button", name="Run").click()
    expect(rows).to_have_count(4)


def test_tables_are_asked_as_they_were(visitor: Visitor) -> None:
    page = visitor.go("pipeline?sql=FROM%20gold.topic_stats%20LIMIT%204&at=0")
    rows = page.get_by_role("table", name="Result").locator("tbody tr")
    expect(rows).to_have_count(4)
    moment = page.get_by_role("form", name="SQL").get_by_label("As of")
    expect(moment).to_have_value("0")
    moment.fill("2001-01-01")
    page.keyboard.press("Enter")
    expect(page.locator("main .fault")).to_contain_text("gold.topic_stats: did not exist at 2001-01-01")
    expect(rows).to_have_count(0)
    expect(page).to_have_url(re.compile("at=2001-01-01"))
    visitor.forgive(400)


def test_a_table_is_sorted_by_the_bus_and_downloaded_whole(visitor: Visitor) -> None:
    page = visitor.go("pipeline")
    page.get_by_role("table", name="Tables").get_by_role("link", name="gold.topic_stats").click()
    rows = page.get_by_role("table", name="Result").locator("tbody tr")
    expect(rows).to_have_count(500)
    expect(page.locator("main [role=status]")).to_contain_text("The first 500 rows")
    head = page.get_by_role("table", name="Result").locator("th").nth(1)
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(rows.first).to_contain_text("t0000")
    head.get_by_role("button").click()
    expect(rows.first).to_contain_text("t0699")
    with page.expect_download() as text:
        page.get_by_role("button", name="Download as CSV").click()
    found = list(csv.reader(io.StringIO(text.value.path().read_text("utf-8"))))
    assert (len(found), found[0][:2]) == (701, ["topic", "messages"])
    with page.expect_download() as file:
        page.get_by_role("button", name="Download as Parquet").click()
    assert pq.read_table(file.value.path()).num_rows == 700
    visitor.go("pipeline")  # axe looks at what is shown last, and at thousands of cells for a minute
