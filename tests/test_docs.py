"""The manual is run, not believed: every code block is executed or says why not, every link leads somewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.rigs.manual import DEADLINE_S, PAGES, ROOT, PageRun, assert_same, blocks, is_run, maybe_before, name_of

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#([^)\s]+))?\)|\[[^\]]*\]\(#([^)\s]+)\)")
# What Python wants around the ten lines.
AROUND = ("import ", "from ", "async def main()", "asyncio.run(")
MARKS = ("run", "serve", "browser", "output")


class Runs:
    """Pages being run, as many at a time as there are cores: most of the time a page waits for programs to start."""

    def __init__(self, pool: ThreadPoolExecutor, make: pytest.TempPathFactory) -> None:
        self._pool, self._make = pool, make
        self._begun: dict[Path, Future[Path]] = {}

    def begin(self, page: Path) -> Future[Path]:
        """The folder that the page leaves behind. A page that goes on from another one begins when that is done."""
        if page not in self._begun:
            before = maybe_before(page)
            # Begun first, so that waiting for it ends. Folders are made in one thread: the first makes their parent.
            folder = self._make.mktemp("page") if before is None else self.begin(before)
            self._begun[page] = self._pool.submit(self._run, page, folder)
        return self._begun[page]

    def _run(self, page: Path, made: Path | Future[Path]) -> Path:
        folder = made if isinstance(made, Path) else made.result()
        with PageRun(page, folder) as run:
            run.run_all()
        return folder


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Every page that a test of this run asks for."""
    asking = [
        item for item in request.session.items if isinstance(item, pytest.Function) and "runs" in item.fixturenames
    ]
    wanted = [Path(str(item.callspec.params["page"])) for item in asking]
    going_on = [page for page in wanted if maybe_before(page) is not None]
    # A page that waits for the one before it takes a thread, but no core.
    with ThreadPoolExecutor((os.cpu_count() or 1) + len(going_on)) as pool:
        runs = Runs(pool, tmp_path_factory)
        for page in [*going_on, *wanted]:  # the longest way first
            runs.begin(page)
        yield runs
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(5 * DEADLINE_S)
@pytest.mark.parametrize("page", [page for page in PAGES if is_run(page)], ids=name_of)
def test_the_blocks_of_a_page_do_what_it_says(page: Path, runs: Runs) -> None:
    runs.begin(page).result()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    assert [block.code for block in blocks(page) if block.mark not in MARKS and block.reason is None] == []


def test_few_blocks_are_not_run() -> None:
    every = [block for page in PAGES for block in blocks(page) if block.mark != "output"]
    assert len([block for block in every if block.reason is not None]) <= len(every) / 8


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_block_prints_stands_right_behind_it(page: Path) -> None:
    marks = [block.mark for block in blocks(page)]
    runs_before = [
        before in ("run", "browser") for before, mark in zip(["", *marks], marks, strict=False) if mark == "output"
    ]
    assert all(runs_before)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_output_is_shown_as_people_see_it(page: Path) -> None:
    """No pattern of a test is shown to a reader."""
    assert [block.code for block in blocks(page) if block.mark == "output" and "…" in block.code] == []


def test_ids_times_and_spaces_may_differ() -> None:
    printed = "offset 1 of a,  7fef354b-5eab-4605-939e-000000000000\nat 2026-11-17 03:31:16.638Z in 12 s"
    assert_same(printed, "offset 1 of a, 11111111-2222-4333-8444-555555555555 at 2026-01-31 08:00:00.000Z in 0.7 ms")


def test_other_numbers_may_not_differ_unless_the_page_says_so() -> None:
    with pytest.raises(AssertionError):
        assert_same("process 17 stored 3 messages", "process 42 stored 3 messages")
    with pytest.raises(AssertionError):
        assert_same("process 17 stored 3 messages", "process 42 stored 4 messages", r"process \d+")
    assert_same("process 17 stored 3 messages", "process 42 stored 3 messages", r"process \d+")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for file, anchor, own_anchor in LINK.findall(page.read_text("utf-8")):
        if "://" in file:
            continue
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or ((anchor or own_anchor) and (anchor or own_anchor) not in anchors(target)):
            broken.append(file or own_anchor)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Names of a page's headings as hosts make them: lower case, blanks to dashes, other signs dropped."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [(page.parent / file).resolve() for file, _, _ in LINK.findall(page.read_text("utf-8")) if file]
    assert set(PAGES) - seen == set()


@pytest.mark.parametrize("wire", ["mb", "danube", "zbus", "seneca"])
def test_a_wire_begins_with_ten_lines_that_are_run(wire: str) -> None:
    first, *_ = blocks(ROOT / "docs" / "learn" / f"{wire}.md")
    assert first.mark in ("run", "serve")
    lines = [line for line in first.code.splitlines() if line and not line.startswith(AROUND)]
    assert len(lines) <= 10


def test_the_readme_shows_a_run_within_its_first_forty_lines() -> None:
    first = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:40])
    assert "raceway serve" in first
    assert "raceway pub" in first
    assert "raceway sub" in first
