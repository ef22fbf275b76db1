from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from raceway.cli import output
from raceway.cli.output import ExitCode, moment, text_of
from raceway.errors import (
    ConfigError,
    ConnectionLostError,
    NoRouteError,
    NotConnectedError,
    RacewayError,
    RequestTimeoutError,
)
from raceway.model.text import printable, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bag 17 → Gate B4", "bag 17 → Gate B4"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines\r\t", "two\\nlines\\r\\t"),
        ("\x9b31m", "\\x9b31m"),  # CSI as one C1 character
        ("abc\u202egpj.exe", "abc\\u202egpj.exe"),  # right-to-left override
        (b"ok \xff\x00", "ok \\xff\\x00"),
        ("[bold]plain[/bold]", "[bold]plain[/bold]"),
        ("", ""),
    ],
)
def test_text_of_strangers_is_made_visible(text: str | bytes, shown: str) -> None:
    assert printable(text) == shown


@given(st.one_of(st.text(), st.binary()))
def test_printable_text_never_holds_a_control_character(text: str | bytes) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


def test_a_long_text_is_cut_and_the_cut_is_shown() -> None:
    assert shortened("x" * 500, 10) == "xxxxxxxxx…"
    assert shortened("short", 10) == "short"
    assert len(shortened(b"\x00" * 50, 10)) == 10


@given(st.text())
def test_json_keeps_the_text_and_is_safe_on_a_terminal(text: str) -> None:
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout.write", lines.append)
        output.print_json({"text": text})
    assert json.loads(lines[0]) == {"text": text}
    assert lines[0].isascii()
    assert lines[0].rstrip("\n").isprintable()


def test_a_table_shows_markup_and_escapes_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("", ["topic", ">rows"], [["[red]x\x1b[0m", 1234567]])
    shown = capsys.readouterr().out
    assert "[red]x\\x1b[0m" in shown
    assert "1,234,567" in shown
    assert "\x1b" not in shown


def test_a_table_is_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("", ["payload", "more"], [["x" * 150, "end"]])
    assert "x" * 150 in capsys.readouterr().out


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("counting", 10) as bar:
        bar.advance(bar.task_ids[0], 10)
        assert bar.tasks[0].finished
    assert capsys.readouterr() == ("", "")


def test_a_failure_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught:
        output.fail("topic a\nb is wrong", ExitCode.TIMEOUT)
    assert caught.value.exit_code == ExitCode.TIMEOUT
    assert capsys.readouterr() == ("", "raceway: topic a\\nb is wrong\n")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("listen.host", "no"), ExitCode.USAGE),
        (ConnectionLostError("mb://x", "gone"), ExitCode.UNREACHABLE),
        (RequestTimeoutError("a", "b"), ExitCode.TIMEOUT),
        (NoRouteError("a"), ExitCode.FAILED),
    ],
)
def test_errors_end_a_command_with_their_status(error: RacewayError, code: ExitCode) -> None:
    assert output.exit_code_of(error) == code


def test_every_status_has_a_meaning() -> None:
    assert set(output.EXIT_CODE_MEANINGS) == set(ExitCode)


def test_times_are_in_utc_and_say_so() -> None:
    assert moment(1_769_846_400_123_456) == "2026-01-31 08:00:00Z"
    assert moment(1_769_846_400_123_456, "milliseconds") == "2026-01-31 08:00:00.123Z"
    assert moment(0) == ""


def test_only_a_bus_that_is_not_there_brings_advice() -> None:
    lost = ConnectionLostError("mb://x", "reset")
    assert text_of(lost) == str(lost)
    assert "start a bus with `raceway serve`" in text_of(NotConnectedError("mb://x", "nothing listens on this port"))


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 segments"), (1, "1 segment"), (2, "2 segments"), (1_000, "1,000 segments")]
)
def test_a_number_says_what_it_counts(number: int, said: str) -> None:
    assert output.counted(number, "segment") == said
