"""A browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.tools import installed


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
