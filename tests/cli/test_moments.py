from __future__ import annotations

import time

import pytest
import typer

from raceway.cli.moments import moment_us, place_of


def test_a_time_or_an_age_is_a_moment() -> None:
    assert moment_us("2026-01-31T08:00:00Z") == 1_769_846_400_000_000
    assert moment_us("2026-01-31T09:00:00+01:00") == 1_769_846_400_000_000
    assert abs(moment_us("90m") / 1e6 - (time.time() - 5400)) < 60


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("first", "first"),
        ("last", "end"),
        ("end", "end"),
        ("17", "17"),
        ("3,4", "3,4"),
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00+00:00"),
    ],
)
def test_places_are_said_as_the_bus_takes_them(text: str, place: str) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["yesterday", "", "-1", "999999999999d"])
def test_anything_else_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        place_of(text)
    assert "is not a time: use 2026-01-31T08:00" in capsys.readouterr().err
