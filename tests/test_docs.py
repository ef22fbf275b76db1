"""The manual is run, not believed.

A fenced block whose first line says `run` after its language is executed: `shell` by bash (any failing command fails
the page), `python` by this Python. Blocks of one page share an empty folder and run from top to bottom. A block
marked `text output` right behind one must be what that one printed on standard output; `…` stands for anything.

A page with the line `<!-- run: with a bus -->` runs beside a bus started for it on the default data folder,
`raceway-data`. Its ports are free ones: the default ports that a block names are replaced by them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from docs import make_reference
from raceway.pipeline.spark import QUICK_JAVA
from tests.server import Door, Server, running_server

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+) run\n(.*?)^```\n(?:\n*```text output\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#([^)\s]+))?\)|\[[^\]]*\]\(#([^)\s]+)\)")
WITH_BUS = "<!-- run: with a bus -->"
DEFAULT_PORTS: dict[str, Door] = {
    "3001": "tcp", "3000": "websocket", "6650": "danube", "15555": "zbus", "10101": "seneca", "10201": "seneca_tcp",
    "8600": "console",
}  # fmt: skip
# Ten times what the longest block, a run of Spark, takes on a quiet machine.
DEADLINE_S = 200
# Spark would look up this machine's name, and its JVM would take every core to compile what runs once.
FOR_SPARK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": QUICK_JAVA}


class Block(NamedTuple):
    language: str
    code: str
    output: str | None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in BLOCK.findall(page.read_text("utf-8"))]


def run(block: Block, folder: Path, ports: dict[str, str]) -> str:
    code = re.sub(r"\b\d{4,5}\b", lambda found: ports.get(found[0], found[0]), block.code)
    command = {"shell": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
    env["NO_PROXY"] = env["no_proxy"] = "127.0.0.1"
    env |= FOR_SPARK
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(
        [*command, code], cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{code}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def assert_same(printed: str, promised: str) -> None:
    pattern = ".*?".join(re.escape(part) for part in promised.strip().split("…"))
    assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"printed:\n{printed}\npromised:\n{promised}"


@contextmanager
def maybe_bus(page: Path, folder: Path) -> Iterator[Server | None]:
    if WITH_BUS not in page.read_text("utf-8"):
        yield None
        return
    with running_server(folder / "raceway-data") as server:
        yield server


@pytest.mark.timeout(3 * DEADLINE_S)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_the_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    with maybe_bus(page, tmp_path) as server:
        ports = {number: str(server.port(door)) for number, door in DEFAULT_PORTS.items()} if server else {}
        for block in blocks(page):
            printed = run(block, tmp_path, ports)
            if block.output:
                assert_same(printed, block.output)


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


@pytest.mark.parametrize("name", make_reference.pages())
def test_reference_pages_are_what_the_code_says(name: str) -> None:
    assert (make_reference.FOLDER / name).read_text("utf-8") == make_reference.pages()[name], "run `make docs`"


def test_the_readme_shows_a_run_within_its_first_forty_lines() -> None:
    first = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:40])
    assert "raceway serve" in first
    assert "raceway pub" in first
    assert "raceway journal read" in first
