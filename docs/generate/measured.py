"""The page of what was measured: the files of bench/results, with how to repeat each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import page

RESULTS = Path(__file__).parents[2] / "bench" / "results"
# Facts about the machine and the run that a reader of the manual needs; the files have more.
TOLD = (
    "date", "command", "processor", "memory", "file system", "fdatasync", "lengths", "syncing", "runs",
    "busiest moment", "failed",
)  # fmt: skip
INTRODUCTION = """
Figures of this page are those of `bench/results` in the checkout, made by the command that stands with them, on the
machine that is named. Everything ran on 127.0.0.1, on few cores, and figures swing with the machine: believe the
**ratios within one run** and the **processor time per message** ("server µs"), not messages a second. Rows of other
brokers are measured in the same run, by load generators of the same shape; what each promises for its answer differs,
and stands below.

To repeat one, on a machine that does nothing else:
"""
REPEAT = """
`make bench` runs all of them and writes `bench/results` anew. `bench/README.md` says what each does and does not show.
For a bus of your own, with your own sizes of messages, there is
[`raceway load`](../howto/administer.md#try-how-much-a-bus-takes).
"""


class Part(NamedTuple):
    """A file of results: what it answers, and what to know before reading it."""

    name: str
    title: str
    caution: str


PARTS = (
    Part(
        "path", "A message from socket to socket (MB)",
        "Raceway journals and syncs everything; Mosquitto at QoS 0 and NATS core store nothing. Raceway acknowledges "
        "after `fdatasync`; \"JetStream file\" is its default, which syncs every two minutes, \"synced\" is "
        "`sync_interval: always`. A broker's round trip is at least two of the echo's.",
    ),
    Part(
        "real", "Loads of real clients (all wires)",
        "Everybody has defaults but for what the name says; NATS core, Mosquitto and RabbitMQ's transient queues store "
        "nothing. Payloads have 40 to 4,000 bytes unless the scenario says equal.",
    ),
    Part(
        "zbus", "Queues (zbus)",
        "Redis has `appendonly yes` and `appendfsync always`. One connection flatters us: on eight, Redis gathers more "
        "per sync. Redis keeps its streams in memory; here a backlog is read from the journal.",
    ),
    Part(
        "danube", "gRPC (Danube)",
        "grpcio's server here does nothing: it decodes no message, keeps none and answers a constant. \"Nothing "
        "behind\" is our port with the same two methods.",
    ),
    Part(
        "seneca", "Calls of npm Seneca",
        "Through the bus each message crosses four sockets instead of two, and call and answer are journalled.",
    ),
    Part("start", "Start and memory", "Goals that were missed stand there as well."),
    Part(
        "pipeline", "From the journal to tables",
        "Spark's own copy of Parquet files of the same rows is the yardstick.",
    ),
)  # fmt: skip


def measured_page() -> str:
    lines = [*INTRODUCTION.strip().splitlines(), ""]
    parts = [part for part in PARTS if (RESULTS / f"{part.name}.md").exists()]
    lines += [f"    .venv/bin/python -m bench.{part.name}" for part in parts]
    lines += REPEAT.splitlines()
    for part in parts:
        text = (RESULTS / f"{part.name}.md").read_text("utf-8")
        lines += ["", f"## {part.title}", "", part.caution, "", *_results(text, part.name)]
    return page("What was measured", *lines)


def _results(text: str, name: str) -> list[str]:
    """The lines of a file of results below its title: headings a level deeper, without rows that have no figures."""
    made = f"Made by `.venv/bin/python -m bench.{name}`."
    lines = [made, *text.split("\n", 3)[3].splitlines()]
    return [re.sub(r"^## ", "### ", line) for line in lines if _is_told(line)]


def _is_told(line: str) -> bool:
    if line.startswith("- "):
        return line.removeprefix("- ").startswith(TOLD)
    return "| not present |" not in line
