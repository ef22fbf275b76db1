"""`raceway demo`: a bus of its own, real traffic through real sockets, the journal read back, and what it says.

The bus is a child process on free ports and, unless told otherwise, on a temporary folder. What the tables say of
messages is read from the journal's files after the bus has stopped, not remembered by the clients.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, NamedTuple

import typer

from raceway.cli import bus, options, output
from raceway.cli.ports import free_port_base
from raceway.errors import UnavailableError

# Starting takes well under a second; a busy machine may need longer.
START_S, STOP_S = 20.0, 20.0


def demo(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Keep the data here. Default: a temporary folder.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed sends the same messages.")] = 1,
    as_json: options.Json = False,
) -> None:
    """Start a bus, send an airport's traffic through it, read the journal back and print what happened."""
    began = time.monotonic()
    folder = data or Path(tempfile.mkdtemp(prefix="raceway-demo-"))
    kept = keep or data is not None
    try:
        with _running_bus(folder) as running:
            output.note(f"bus: process {running.pid} on {', '.join(running.urls.values())}")
            from raceway.cli.airport import play

            story = asyncio.run(play(running.urls, random.Random(seed)))  # noqa: S311 - a story, no secret
        summary = read_back(folder)
        if as_json:
            output.print_json({"story": story, "journal": summary.as_dict(), "data": str(folder) if kept else None})
        else:
            _print(story, summary, folder if kept else None)
            output.note(f"done in {time.monotonic() - began:.1f} s; the bus has stopped")
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


# ---- the bus ---------------------------------------------------------------------------------------------------------


@contextmanager
def _running_bus(folder: Path) -> Iterator[bus.Running]:
    """A bus on this folder, as a child process. Stopped at the end, orderly if possible."""
    command = [sys.executable, "-m", "raceway", "serve", "--data", str(folder), "--port-base", str(free_port_base())]
    command += ["--log-level", "warning"]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)  # noqa: S603 - our own program
        try:
            yield _wait_until_ready(child, folder, log)
            child.send_signal(signal.SIGTERM)
            status = child.wait(STOP_S)
            if status != 0:
                raise UnavailableError(f"the bus ended with status {status}: {_last_line(log)}")
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()


def _wait_until_ready(child: subprocess.Popen[bytes], folder: Path, log: IO[bytes]) -> bus.Running:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        running = bus.maybe_running(folder)
        if running is not None and running.pid == child.pid:
            return running
        if child.poll() is not None:
            raise UnavailableError(f"the bus did not start: {_last_line(log)}")
        time.sleep(0.02)
    raise UnavailableError(f"the bus was not ready within {START_S:.0f} s: {_last_line(log)}")


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().splitlines()
    return output.printable(lines[-1]) if lines else "it said nothing"


# ---- the journal -----------------------------------------------------------------------------------------------------


class Summary(NamedTuple):
    """What the journal says happened."""

    rows: dict[tuple[str, str], int]  # (topic, kind)
    bytes: Counter[tuple[str, str]]
    latencies_us: dict[str, list[int]]
    errors: Counter[tuple[str, str]]  # (topic, code)
    unanswered: Counter[str]
    chains: int
    files: list[tuple[str, int]]

    def as_dict(self) -> dict[str, object]:
        topics = [
            {"topic": topic, "kind": kind, "rows": rows, "bytes": self.bytes[topic, kind]}
            for (topic, kind), rows in sorted(self.rows.items())
        ]
        exchanges = [
            {"topic": topic, "answered": len(times), "unanswered": self.unanswered[topic],
             "p50_us": percentile(times, 50), "p99_us": percentile(times, 99)}
            for topic, times in sorted(self.latencies_us.items())
        ]  # fmt: skip
        errors = [{"topic": topic, "code": code, "rows": rows} for (topic, code), rows in sorted(self.errors.items())]
        files = [{"name": name, "bytes": size} for name, size in self.files]
        return {"topics": topics, "exchanges": exchanges, "errors": errors, "chains": self.chains, "files": files}


def read_back(folder: Path) -> Summary:
    from raceway.journal.reader import Reader

    reader = Reader(folder)
    summary = Summary(Counter(), Counter(), {}, Counter(), Counter(), 0, [])
    asked: dict[int, tuple[str, int]] = {}
    chains: set[str] = set()
    columns = ["sequence", "topic", "time_us", "kind", "parent_id", "correlation_id", "answers", "error", "payload"]
    for batch in reader.read(reader.first_position(), columns=columns):
        for row in batch.to_pylist():
            if row["kind"] != "control":
                _count(summary, row, asked)
                if row["parent_id"]:
                    chains.add(row["correlation_id"])
    summary.unanswered.update(topic for topic, _ in asked.values())
    files = sorted((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file())
    return summary._replace(chains=len(chains), files=files)


def _count(summary: Summary, row: dict[str, object], asked: dict[int, tuple[str, int]]) -> None:
    topic, kind, position, time_us = row["topic"], row["kind"], row["sequence"], row["time_us"]
    payload, answers, error = row["payload"], row["answers"], row["error"]
    assert isinstance(topic, str)
    assert isinstance(kind, str)
    assert isinstance(position, int)
    assert isinstance(time_us, int)
    assert isinstance(payload, bytes)
    summary.rows[topic, kind] = summary.rows.get((topic, kind), 0) + 1
    summary.bytes[topic, kind] += len(payload)
    if kind == "request":
        asked[position] = (topic, time_us)
        summary.latencies_us.setdefault(topic, [])
    if isinstance(answers, int) and answers in asked:
        summary.latencies_us[topic].append(time_us - asked.pop(answers)[1])
    if error is not None:
        summary.errors[topic, str(error)] += 1


def percentile(values: list[int], percent: int) -> int | None:
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


# ---- what a person sees ----------------------------------------------------------------------------------------------


def _print(story: list[tuple[str, str]], summary: Summary, folder: Path | None) -> None:
    print_table = output.print_table
    print_table("What the clients saw", ["", ""], story)
    print_table(
        "Messages in the journal",
        ["topic", "kind", "rows", "bytes"],
        [(topic, kind, rows, summary.bytes[topic, kind]) for (topic, kind), rows in sorted(summary.rows.items())],
        numbers=["rows", "bytes"],
    )
    print_table(
        "Requests and their answers",
        ["topic", "answered", "p50 µs", "p99 µs", "no answer"],
        [
            (topic, len(times), percentile(times, 50), percentile(times, 99), summary.unanswered[topic])
            for topic, times in sorted(summary.latencies_us.items())
        ],
        numbers=["answered", "p50 µs", "p99 µs", "no answer"],
    )
    print_table(
        "Answers that say the service failed",
        ["topic", "code", "rows"],
        [(topic, code, rows) for (topic, code), rows in sorted(summary.errors.items())],
        numbers=["rows"],
    )
    print_table("Files of the journal", ["file", "bytes"], summary.files, numbers=["bytes"])
    print(f"{summary.chains:,} conversations of more than one message can be followed by their correlation id.")
    _print_next(folder)


def _print_next(folder: Path | None) -> None:
    print("\nWhat to type next:")
    if folder is None:
        print("  raceway demo --keep                      the same, and the data stays")
    else:
        print(f"  raceway journal info --data {folder}")
        print(f"  raceway journal read --data {folder} --topic baggage.events")
        print(f"  raceway serve --data {folder}")
    print("  raceway serve                            a bus of your own; then, in another terminal:")
    print("  raceway sub 'baggage.#'                  and in a third:")
    print("  raceway pub baggage.events '{\"bag\": 17}'")
