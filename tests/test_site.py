"""The site that `make docs` makes: complete, searchable in a browser from the files alone, and loading nothing from
elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from docs.conf import navigation
from tests.rigs.browser import running_browser
from tests.rigs.manual import DOCS, ROOT

BUILD_S = 100
PAGES = sorted(str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--doctree-dir", str(tmp_path_factory.mktemp("doctrees")), str(DOCS), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


class Loads(HTMLParser):
    """Addresses that a browser fetches for a page by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {name: value for name, value in attrs if value}
        self.found += [wanted["src"]] if "src" in wanted else []
        if tag == "link" and not {"canonical", "next", "prev"} & set((wanted.get("rel") or "").split()):
            self.found += [wanted["href"]]


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    outside = re.compile(r"^(?:[a-z]+:)?//")
    assert [load for page in pages for load in Loads(page.read_text("utf-8")).found if outside.match(load)] == []
    fetched = re.compile(r"@import\s+[\"']?https?:|url\(\s*[\"']?(?:https?:)?//")
    assert [style.name for style in site.rglob("*.css") if fetched.search(style.read_text("utf-8"))] == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    assert [page for page in PAGES if page != "index" and f'href="{page}.html"' not in text] == []


def test_the_navigation_has_the_groups_of_the_map() -> None:
    captions = re.findall(r":caption: (.*)", "".join(navigation((DOCS / "index.md").read_text("utf-8"))))
    assert captions == ["Learn", "Do", "Understand", "Look up", "Operate"]


@pytest.mark.parametrize(
    ("words", "title"), [("quarantined", "Recovery"), ("heartbeat_ms", "Settings"), ("waterfall", "The console")]
)
def test_the_search_finds_a_page_from_files_alone(site: Path, browser: Browser, words: str, title: str) -> None:
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").first.fill(words)
    page.keyboard.press("Enter")
    result = page.locator("#search-results li").filter(has=page.locator("a", has_text=title)).first
    result.locator(".context").wait_for(timeout=10_000)
    assert words in result.locator(".context").inner_text()
    assert [url for url in requests if not url.startswith("file:")] == []
    assert complaints == []
    page.close()


def test_a_block_of_code_is_copied_as_it_stands_there(site: Path, browser: Browser) -> None:
    context = browser.new_context()
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto((site / "learn" / "quickstart.html").as_uri())
    block = page.locator(".highlight").filter(has_text="--from first --count 2").first
    block.hover()
    block.get_by_role("button", name="Copy").click()
    block.get_by_role("button", name="Copied").wait_for(timeout=10_000)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[0] == """raceway pub flight.updates '{"flight": "RW101", "state": "boarding"}'"""
    assert page.locator(".highlight-text button.copy").count() == 0
    context.close()


@pytest.mark.parametrize("width", [1440, 390])
def test_the_home_page_has_its_picture_and_three_ways_in(site: Path, browser: Browser, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((site / "index.html").as_uri())
    assert page.locator("article img").first.evaluate("image => image.complete && image.naturalWidth") > 100
    links = page.locator("article table").first.locator("a").evaluate_all("links => links.map(link => link.href)")
    assert {"demo.html", "quickstart.html", "deploy.html"} <= {link.rpartition("/")[2] for link in links}
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.close()


def test_pictures_are_in_the_site(site: Path) -> None:
    assert (site / "_images" / "overview.png").stat().st_size > 10_000
