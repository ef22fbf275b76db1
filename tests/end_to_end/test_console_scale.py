"""The console beside thousands of topics and many messages: no page asks, receives or shows more for them. `make soak`
takes 10,000 topics and 1,000,000 messages, `make test-slow` 2,000 and 100,000. `bench.console` tells their times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Request, expect

from raceway.journal.query.search import FIRST_WINDOW
from tests.rigs.browser import EVERY_LOOK, Visitor, assert_no_barriers, running_browser, visiting
from tests.rigs.rounds import SOAKING
from tests.rigs.schema_rest import call
from tests.rigs.server import Server, running_server
from tests.rigs.thousands import QUESTIONS, fill, shown

TOPICS, MESSAGES = (10_000, 1_000_000) if SOAKING else (2_000, 100_000)
NEEDLE = 4711
SHOWN = shown(TOPICS)
# What one page may take of the bus and of the browser, however many topics there are: different questions, compressed
# bytes of an answer, rows of its tables, elements. And bytes of a list of 1,000 topics, the longest that there is.
MOST_QUESTIONS, MOST_PAGE_BYTES, MOST_ROWS, MOST_ELEMENTS = 4, 10_000, 100, 2_000
MOST_BYTES = 250_000
# Lines that leave one box of the service graph, each with its number of messages (`FAN` of services.js).
FAN = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("scale") / "data"
    fill(data, TOPICS, MESSAGES)
    with running_server(data) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, server: Server) -> Iterator[Visitor]:
    with visiting(browser, server) as found:
        yield found


def ask(server: Server, path: str) -> Any:
    answer = call(server, "GET", path)
    assert answer.status == 200, answer
    return answer.json()


@pytest.mark.timeout(600)
def test_every_topic_is_listed_page_by_page(server: Server) -> None:
    names, after = list[str](), ""
    while after is not None:
        page = ask(server, f"/api/topics?contains=many.t&after={after}")
        assert len(page["topics"]) <= 1000
        names += [row["topic"] for row in page["topics"]]
        after = page["after"]
    assert len(names) == len(set(names)) == TOPICS
    assert sum(row["next"] for row in ask(server, "/api/topics?order=messages&limit=1")["topics"]) == MESSAGES // TOPICS


@pytest.mark.parametrize("path", QUESTIONS)
def test_answers_do_not_grow_with_the_bus(server: Server, path: str) -> None:
    answer = call(server, "GET", path)
    assert answer.status == 200
    assert len(answer.body) <= MOST_BYTES


def test_a_needle_is_found_by_questions_that_go_on_where_the_last_one_ended(server: Server) -> None:
    path, scanned, place = f"/api/messages?path=n&path_value={NEEDLE}", 0, MESSAGES
    page: dict[str, Any] = {"before": place, "messages": []}
    while page["before"] is not None and not page["messages"]:
        place = page["before"]
        page = ask(server, f"{path}&before={place}")
        scanned += page["scanned"]
        # However slow the machine is: a question whose time is over has searched one window at least.
        assert page["messages"] or page["scanned"] >= min(FIRST_WINDOW, place)
    assert [json.loads(each["payload"]) for each in page["messages"]] == [{"n": NEEDLE}]
    assert MESSAGES - NEEDLE <= scanned <= MESSAGES


@pytest.mark.parametrize("place", SHOWN)
def test_pages_take_no_more_for_thousands(visitor: Visitor, place: str) -> None:
    visitor.go("api")  # scripts are in the browser's cache, as on every visit but the first
    asked: dict[str, int] = {}

    def note(request: Request) -> None:
        if urlsplit(request.url).path.startswith("/api/"):
            asked[request.url] = request.sizes()["responseBodySize"]

    visitor.page.on("requestfinished", note)
    page = visitor.go(place)
    page.locator(SHOWN[place]).first.wait_for()
    expect(page.locator("main .loading:visible")).to_have_count(0)
    visitor.page.remove_listener("requestfinished", note)
    # The same question may have been asked again by then: pages are renewed while they are looked at.
    assert len(asked) <= MOST_QUESTIONS, asked
    assert asked
    assert max(asked.values()) <= MOST_PAGE_BYTES, asked
    assert page.locator("main tbody tr").count() <= MOST_ROWS
    assert page.locator("main *").count() <= MOST_ELEMENTS
    visitor.assert_well()


def test_typing_a_name_narrows_the_list(visitor: Visitor) -> None:
    page = visitor.go("topics")
    expect(page.locator("main .soft[role=status]")).to_contain_text(f"of {TOPICS:,} topics")
    page.get_by_label("Find").fill(f"many.t{TOPICS - 1}")
    expect(page.get_by_role("link", name=f"many.t{TOPICS - 1}")).to_be_visible()
    expect(page.locator("main .soft[role=status]")).to_have_text("1 topic")
    visitor.assert_well()


# Rectangles of all texts of the drawing, of its boxes, and of the drawing itself; and points of its lines.
RECTANGLES = """(drawing) => {
  const of = (each) => { const box = each.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; };
  return {
    labels: [...drawing.querySelectorAll(".caption")].map(of), whole: of(drawing),
    boxes: [...drawing.querySelectorAll(".node rect")].map(of),
    names: [...drawing.querySelectorAll(".node")].map((each) => each.querySelector("text").textContent),
    points: [...drawing.querySelectorAll("path:not(.tip)")].flatMap((each) => {
      const [long, at] = [each.getTotalLength(), each.getScreenCTM()];
      const steps = Array.from({length: Math.floor(long / 2)}, (_, step) => each.getPointAtLength(2 * step));
      return steps.map(({x, y}) => [at.a * x + at.e, at.d * y + at.f]);
    }),
  };
}"""


def overlap(one: list[float], other: list[float]) -> bool:
    """Whether two rectangles share more than a border of two pixels."""
    return min(one[2], other[2]) - max(one[0], other[0]) > 2 and min(one[3], other[3]) - max(one[1], other[1]) > 2


def within(point: list[float], box: list[float]) -> bool:
    """Whether a point is in a rectangle, more than a pixel from its border."""
    return box[0] + 1 < point[0] < box[2] - 1 and box[1] + 1 < point[1] < box[3] - 1


@pytest.mark.parametrize("focus", ["", "service%20filler"])
def test_the_service_graph_stays_readable(visitor: Visitor, focus: str) -> None:
    """No label lies on another, on a box or on a line, and what there is of thousands fits a screen or two."""
    page = visitor.go(f"services?focus={focus}" if focus else "services")
    drawing = page.locator("svg.graph")
    expect(drawing.locator(".node", has_text="filler")).to_be_attached()
    found = drawing.evaluate(RECTANGLES)
    things = found["labels"] + found["boxes"]
    assert [(one, other) for at, one in enumerate(things) for other in things[:at] if overlap(one, other)] == []
    assert len(found["labels"]) >= FAN
    assert [(label, point) for label in found["labels"] for point in found["points"] if within(point, label)] == []
    assert found["whole"][3] - found["whole"][1] <= 1300
    assert any(re.fullmatch(r"over [\d,]+ more", name) for name in found["names"])
    assert f"{TOPICS - 60:,} more pairs" in page.locator("main").inner_text()
    visitor.assert_well()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("look", EVERY_LOOK, ids=str)
def test_axe_finds_nothing_among_thousands(browser: Browser, server: Server, look: tuple[int, str]) -> None:
    with visiting(browser, server, *look) as visitor:
        assert_no_barriers(visitor, [*SHOWN, "services?focus=service%20filler", "subscriptions", "changes", "publish"])
