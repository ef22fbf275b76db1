from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from raceway.cli import airport, bus
from tests.server import running_server


@pytest.fixture(scope="module")
def stories() -> Iterator[list[dict[str, str]]]:
    """Two mornings with the same dice, on one bus."""
    with running_server() as server:
        running = bus.maybe_running(server.data)
        assert running is not None
        yield [dict(asyncio.run(airport.play(running.urls, random.Random(3)))) for _ in range(2)]


def test_everything_published_arrives(stories: list[dict[str, str]]) -> None:
    assert stories[0]["copies that arrived"] == f"{airport.BAGS:,} at the belt, {airport.FLIGHTS:,} at the board"


def test_each_fault_shows_its_own_error(stories: list[dict[str, str]]) -> None:
    story = stories[0]
    assert "SEAT_TAKEN" in story["check-in requests answered"]
    assert story["a request nobody answers in 300 ms"] == "TIMEOUT: Request timed out"
    assert story["a request nobody serves"].startswith("NO_ROUTE_FOUND")
    assert story["a publish nobody reads, stored even so"].startswith("NO_ROUTE_FOUND")
    assert story["a malformed header"] == "MALFORMED_MESSAGE: Invalid topic name: baggage..events"


def test_the_same_seed_tells_the_same_story(stories: list[dict[str, str]]) -> None:
    first, second = ({what: how for what, how in story.items() if " s over " not in how} for story in stories)
    assert first == second
    assert len(first) == len(stories[0]) - 1
