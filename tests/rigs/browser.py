"""A browser for tests: Debian's Chromium, driven by Playwright; and whoever looks at the console with it.

`RACEWAY_PICTURES=docs/pictures` (`make pictures`) writes the pictures of the manual into that folder on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.rigs.server import Server
from tests.rigs.tools import axe, installed

PICTURES = os.environ.get("RACEWAY_PICTURES", "")
SLOW_MS = 60_000
expect.set_options(timeout=SLOW_MS)


# Screens on which everything is tried: width and colours.
LOOKS = ((1440, "light"), (390, "dark"))
EVERY_LOOK = (*LOOKS, (1440, "dark"), (390, "light"))


def barriers(page: Page) -> list[str]:
    """What axe-core finds that keeps people from using a page. Labels that differ from what stands on a button count,
    too, which it does not look for by itself."""
    page.evaluate(axe())
    result = page.evaluate("axe.run({rules: {'label-content-name-mismatch': {enabled: true}}})")
    return [f"{each['id']} {node['html'][:120]}" for each in result["violations"] for node in each["nodes"][:3]]


def assert_no_barriers(visitor: Visitor, places: Iterable[str]) -> None:
    """On each of these pages, when all of it is there; and none is wider than the screen."""
    found = list[str]()
    for place in places:
        page = visitor.go(place)
        expect(page.locator("main .loading:visible")).to_have_count(0)
        found += [f"{place or 'overview'}: {each}" for each in barriers(page)]
        if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            found.append(f"{place or 'overview'} is too wide")
    assert found == []


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Skips where there is no Chromium and none can be installed."""
    program = installed("chromium", "chromium")
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--no-proxy-server"]
            )
        except Exception as error:  # a browser that is there and does not start
            pytest.skip(f"{program} does not start: {error}")
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """A window on the console, what was asked for in it, and what went wrong."""

    def __init__(self, context: BrowserContext, server: Server) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SLOW_MS)
        self.base = f"http://127.0.0.1:{server.port('console')}"
        self.asked: list[str] = []
        self.faults: list[str] = []
        self._forgiven: set[int] = set()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)

    def go(self, place: str) -> Page:
        """To a page of the console, until its heading is there. Within the console only what differs is loaded."""
        address = f"{self.base}/#/{place}"
        if self.page.url == address:
            self.page.reload()
        else:
            # What is shown now has a heading too.
            self.page.evaluate("document.querySelector('#main > div')?.setAttribute('data-left', '')")
            self.page.goto(address)
        # Not `expect`, which looks ten times a second at most: some tests walk over every page.
        self.page.locator("#main > div:not([data-left]) h1").wait_for()
        return self.page

    def forgive(self, *statuses: int) -> None:
        """A browser calls every refusal a fault; these were meant to be, also those that a page asks for again before
        `assert_well` looks."""
        self._forgiven.update(statuses)

    def picture(self, name: str) -> None:
        if PICTURES:
            self.page.mouse.move(0, 0)
            self.page.wait_for_timeout(1500)  # figures have come, charts and bars are at rest
            Path(PICTURES).mkdir(exist_ok=True)
            self.page.screenshot(path=Path(PICTURES) / f"{name}.png")

    def assert_well(self) -> None:
        """Nothing went wrong, and no text of a stranger was run."""
        assert self.page.evaluate("document.body.dataset.owned ?? ''") == "", "text of a stranger was run"
        forgiven = tuple(f"status of {status}" for status in self._forgiven)
        faults = [fault for fault in self.faults if not any(words in fault for words in forgiven)]
        self.faults.clear()
        self._forgiven.clear()
        assert not faults, faults


@contextmanager
def visiting(browser: Browser, server: Server, width: int = 1280, scheme: Any = "light") -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    with looking(context, server) as visitor:
        yield visitor
    context.close()


@contextmanager
def looking(context: BrowserContext, server: Server) -> Iterator[Visitor]:
    """In a window of its own, beside others of somebody who has loaded the scripts before."""
    visitor = Visitor(context, server)
    yield visitor
    visitor.assert_well()
    visitor.page.close()
