"""`raceway load` against a started server, and its histogram."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.load import STEPS, Histogram
from raceway.cli.output import ExitCode
from tests.rigs.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def run(server: Server, *words: str) -> Any:
    words = ("load", *words, "--data", str(server.data))
    return CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "60"})


def stored(server: Server, topic: str) -> int:
    return int(json.loads(server.http(f"/api/topics/{topic}")[1])["next"])


def test_every_message_is_stored_on_the_topics_in_turn(server: Server) -> None:
    done = run(server, "--count", "250", "--topics", "2", "--connections", "2", "--size", "10", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, done.stderr) == (0, "")
    assert (found["messages"], found["failed"], found["bytes"]) == (250, 0, 2500)
    assert [stored(server, f"load.t{number}") for number in range(2)] == [125, 125]
    assert sum(row["messages"] for row in found["histogram"]) == 250
    facts = found["latency_ms"]
    order = [facts[name] for name in ("min", "p50", "p90", "p99", "p99.9", "max")]
    assert order == sorted(order)
    assert facts["min"] > 0


def test_a_rate_and_a_time_are_kept(server: Server) -> None:
    found = json.loads(run(server, "--topic", "paced", "--rate", "200", "--seconds", "0.5", "--json").stdout)
    assert 90 <= found["messages"] <= 101
    assert found["seconds"] >= 0.49
    assert stored(server, "paced") == found["messages"]


def test_the_summary_fits_60_columns(server: Server) -> None:
    shown = run(server, "--topic", "shown", "--count", "100").stdout
    assert max(map(len, shown.splitlines())) <= 60
    assert "latency p99" in shown
    assert "█" in shown


def test_refused_messages_are_counted_and_end_with_status_1(server: Server) -> None:
    url = f"zbus://127.0.0.1:{server.port('zbus')}"
    done = CliRunner().invoke(app, ["load", "--topic", "nosuch", "--count", "20", "--url", url])
    assert done.exit_code == ExitCode.FAILED
    assert "20 refused: " in done.stderr
    assert "MQ(nosuch) Not Found" in done.stderr


@given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([1.0, 50.0, 99.0, 100.0]))
def test_percentiles_are_within_one_step_of_the_exact_ones(durations: list[float], percent: float) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    exact = sorted(durations)[max(-(-len(durations) * int(percent) // 100) - 1, 0)]
    assert exact * 0.999999 <= histogram.percentile(percent) <= exact * 2 ** (1 / STEPS) * 1.000001
    assert sum(count for _, count in histogram.doublings()) == len(durations)


def test_an_empty_histogram_has_no_figures() -> None:
    assert (Histogram().percentile(99), Histogram().doublings()) == (0.0, [])


def test_buckets_double_without_holes() -> None:
    histogram, chance = Histogram(), random.Random(7)
    for duration in (0.001, 0.3, chance.uniform(0.001, 0.3)):
        histogram.add(duration)
    ends = [end for end, _ in histogram.doublings()]
    assert all(later == 2 * earlier for earlier, later in itertools.pairwise(ends))
