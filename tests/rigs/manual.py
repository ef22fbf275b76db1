"""The manual as tests see it: its pages, their code blocks, and how these are run.

The first line of a fenced block names its language and what is to be done with it:

    shell run, python run     executed by bash (any failing command fails the page) or by this Python
    js run, js browser        executed by Node with npm Seneca installed, or in a page of Chromium
    toml run                  settings, given to `raceway config --check`
    sql run                   given to `raceway pipeline query`
    … serve                   started, and the page goes on when it printed the line `ready`; ended with the page
    text output               what the block before printed on standard output, as a reader sees it

What is different in every run is not compared: ids, times, durations, how many spaces there are, and whatever matches
`<!-- varies: REGULAR EXPRESSION -->` right before the output; of the printed and of the promised text alike.

Whatever else stands in a fence is not run, and says why: `<!-- not run: REASON -->` right before it.

Blocks of a page share an empty folder and run from top to bottom. With the line `<!-- run: with a bus -->` they run
beside a bus on the default data folder, `raceway-data`; with `<!-- run: with Kafka -->` beside a broker of Kafka; with
`<!-- run: after PAGE -->` in the folder that the other page left behind. Ports are free ones: the ports of the manual,
in blocks and in what they print, stand for them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.pipeline.quick_spark import quick_java
from tests.rigs.blank_page import console_lines
from tests.rigs.kafka import running_kafka
from tests.rigs.node_peers import installed as npm_folder
from tests.rigs.ports import free_port_base
from tests.rigs.server import DOORS, running_server, wait_until

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
WITH_BUS = "<!-- run: with a bus -->"
WITH_KAFKA = "<!-- run: with Kafka -->"
AFTER = re.compile(r"<!-- run: after (\S+) -->")
FENCE = re.compile(
    r"(?:^<!-- (?:not run: (?P<reason>[^\n]+)|varies: (?P<varies>[^\n]+)) -->\n+)?"
    r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Different in every run: message ids, moments, durations with their unit.
VARIES = (
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    r"(?:\d{4}-\d{2}-\d{2}[ T])?\d{2}:\d{2}:\d{2}(?:\.\d+)?Z?",
    r"[\d.,]+ (?:ms|s)\b",
    r"─+",  # as wide as the table
)
TRACKER_DOOR = 7
# Ports of the manual: the bus's own, counted from one free row, and those of programs beside it, from another.
BUS_PORTS = {
    "3001": DOORS["tcp"], "3000": DOORS["websocket"], "6650": DOORS["danube"], "15555": DOORS["zbus"],
    "10101": DOORS["seneca"], "10201": DOORS["seneca_tcp"], "8600": DOORS["console"], "16666": TRACKER_DOOR,
    "8001": DOORS["tls"], "8000": DOORS["wss"],
}  # fmt: skip
OTHER_PORTS = {"9000": 0, "9001": 1}
# Ten times what the longest block, a run of Spark, takes on a quiet machine.
DEADLINE_S = 200
READY_S = 30


class Block(NamedTuple):
    """`reason` is why it is not run, `varies` matches what is different in every run."""

    language: str
    mark: str
    code: str
    reason: str | None = None
    varies: str | None = None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    found = []
    for fence in FENCE.finditer(page.read_text("utf-8")):
        language, _, mark = fence["info"].partition(" ")
        found.append(Block(language, mark, fence["code"], fence["reason"], fence["varies"]))
    return found


def is_run(page: Path) -> bool:
    return any(block.mark in ("run", "serve", "browser") for block in blocks(page))


def maybe_before(page: Path) -> Path | None:
    """The page whose folder this one goes on in."""
    found = AFTER.search(page.read_text("utf-8"))
    return None if found is None else (page.parent / found[1]).resolve()


def assert_same(printed: str, promised: str, varies: str | None = None) -> None:
    """Compare what a block printed with what the page shows, but for what is different in every run."""
    every = "|".join([*VARIES, *filter(None, [varies])])
    same = [" ".join(re.sub(every, "~", text).split()) for text in (printed, promised)]
    assert same[0] == same[1], f"printed:\n{printed}\npromised:\n{promised}"


class PageRun:
    """A page that is being run: its folder, its ports, the programs that stay."""

    def __init__(self, page: Path, folder: Path) -> None:
        self._page, self._folder = page, folder
        self._ending = ExitStack()
        self._staying: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        if WITH_BUS in self._page.read_text("utf-8"):
            bus = self._ending.enter_context(running_server(self._folder / "raceway-data"))
            self._base = bus.port_base
        else:
            self._base = free_port_base()
        other = free_port_base()
        self._ports = {number: str(self._base + door) for number, door in BUS_PORTS.items()}
        self._ports |= {number: str(other + place) for number, place in OTHER_PORTS.items()}
        if WITH_KAFKA in self._page.read_text("utf-8"):
            kafka = self._ending.enter_context(running_kafka())
            self._ports["9092"] = kafka.bootstrap.rpartition(":")[2]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        ended = [process.args for process in self._staying if process.poll() is not None]
        self._ending.close()
        assert kind is not None or ended == [], "programs that should have stayed"

    def run_all(self) -> None:
        every = blocks(self._page)
        for block, following in zip(every, [*every[1:], None], strict=True):
            code = self._with_ports(block.code)
            shown = following if following is not None and following.mark == "output" else Block("", "", "")
            promised = self._with_ports(shown.code)
            if block.mark == "serve":
                self._serve(block.language, code)
            elif block.mark in ("run", "browser"):
                lines = len(promised.splitlines())
                printed = self._run(block.language, code) if block.mark == "run" else console_lines(code, lines)
                if promised:
                    assert_same(printed, promised, shown.varies)

    def _with_ports(self, text: str) -> str:
        return re.sub(r"\b\d{4,5}\b", lambda found: self._ports.get(found[0], found[0]), text)

    def _run(self, language: str, code: str) -> str:
        done = subprocess.run(
            self._command(language, code), cwd=self._folder, env=self._environment(), capture_output=True, text=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{code}\nended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self, language: str, code: str) -> None:
        output, log = (self._folder / f"staying-{len(self._staying)}.{name}" for name in ("out", "log"))
        env = self._environment() | {"RACEWAY_LISTEN__PORT_BASE": str(self._base)}
        with output.open("w") as stdout, log.open("w") as stderr:
            process = subprocess.Popen(
                self._command(language, code), cwd=self._folder, env=env, stdout=stdout, stderr=stderr, text=True,
                start_new_session=True,
            )  # fmt: skip
        self._staying.append(process)
        self._ending.callback(_end, process)

        def is_ready_or_over() -> bool:
            return "ready" in output.read_text().splitlines() or process.poll() is not None

        with suppress(AssertionError):  # told below, with the log
            wait_until(is_ready_or_over, READY_S)
        assert "ready" in output.read_text().splitlines(), f"{code}\nis not ready:\n{log.read_text()}"

    def _command(self, language: str, code: str) -> list[str]:
        if language == "shell":
            return ["bash", "-euo", "pipefail", "-c", code]
        if language == "python":
            return [sys.executable, "-c", code]
        if language == "js":
            return [shutil.which("node") or "node", "-e", code]
        if language == "toml":
            (self._folder / "raceway.toml").write_text(code, "utf-8")
            return ["raceway", "config", "--check", "--config", "raceway.toml"]
        assert language == "sql", f"{name_of(self._page)} has a block of {language} that is to be run"
        return ["raceway", "pipeline", "query", code]

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("RACEWAY_")}
        env["NO_PROXY"] = env["no_proxy"] = "127.0.0.1"
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        # The width of a pipe, whatever terminal or variable the tests themselves run with.
        env["COLUMNS"] = "120"
        # Spark would look up this machine's name, and its JVM would take every core to compile what runs once.
        env |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": quick_java()}
        if any(block.language == "js" and block.mark != "browser" for block in blocks(self._page)):
            env["NODE_PATH"] = str(npm_folder() / "node_modules")
        return env


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(READY_S)
