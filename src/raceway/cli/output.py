"""What commands print, and the status they end with.

Results go to standard output, everything else (errors, notes, progress) to standard error. Topics, payloads and names
come from strangers: whatever a command shows of them passes through `printable` or `print_json`, so that no message
can steer the reader's terminal.
"""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from raceway.errors import ConfigError, ConnectionLostError, RacewayError, RemoteError, RequestTimeoutError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# A pipe has no width; tables must not be cut there.
PIPE_WIDTH = 240


class ExitCode(enum.IntEnum):
    """Every status a command can end with; 130 is the shell's own for Ctrl-C."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    ERROR_ANSWER = 5


EXIT_CODE_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "it failed: damage was found, the bus refused, nobody was there, the folder is in use",
    ExitCode.USAGE: "a flag or a setting cannot be used",
    ExitCode.UNREACHABLE: "no bus answers there, or the connection was lost",
    ExitCode.TIMEOUT: "it did not happen in time",
    ExitCode.ERROR_ANSWER: "the service answered, and its answer is an error",
}

# Answers that the bus gives in place of a service: nobody was there, or nobody answered.
REPORTED_EXIT_CODES = {
    "TIMEOUT": ExitCode.TIMEOUT,
    "NO_ROUTE_FOUND": ExitCode.FAILED,
    "SERVICE_UNAVAILABLE": ExitCode.FAILED,
    # The same in zbus's words: no such queue, another token, not now, no answer.
    "404": ExitCode.FAILED,
    "403": ExitCode.FAILED,
    "400": ExitCode.FAILED,
    "409": ExitCode.FAILED,
    "503": ExitCode.FAILED,
    "504": ExitCode.TIMEOUT,
    # And in Seneca's.
    "act_not_found": ExitCode.FAILED,
    "action_timeout": ExitCode.TIMEOUT,
    "forbidden": ExitCode.FAILED,
    "invalid_message": ExitCode.FAILED,
    "overloaded": ExitCode.FAILED,
    "too_large": ExitCode.FAILED,
}


def printable(text: str | bytes) -> str:
    """One line that is safe on a terminal: what is not a visible character shows as its escape (`\\n`, `\\x1b`)."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str | bytes, limit: int = 120) -> str:
    """`printable`, cut to `limit` characters with the cut shown."""
    shown = printable(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def moment(time_us: int, detail: str = "seconds") -> str:
    """A time for people, down to seconds or milliseconds; empty where there is none."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(" ", detail) if time_us else ""


def print_json(value: Any) -> None:
    """One JSON document on one line. ASCII only: escapes keep control characters of any kind off the terminal."""
    sys.stdout.write(json.dumps(value, default=_jsonable, separators=(",", ":")).replace("\x7f", "\\u007f") + "\n")


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def console(stream: TextIO | None = None) -> Console:
    """A console for tables on standard output. Markup is off: brackets in a payload are only brackets."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[str] = ()) -> None:
    """A table on standard output; the columns named in `numbers` stand to the right. Cells are made printable.

    Without any column name there is no head.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns))
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    screen = console()
    if title:
        screen.print(Text(title, style="bold"))
    screen.print(table)


def _cell(value: Any) -> str | bytes:
    if isinstance(value, (str, bytes)):
        return value
    if value is None:
        return "–"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@contextmanager
def progress(description: str, total: float | None) -> Iterator[Progress]:
    """A bar on standard error for anything that may take over a second; nothing when that is not a terminal.

    The bar has one task, with the id `progress.task_ids[0]`; None as total means that the end is not known.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, disable=not sys.stderr.isatty())
    with bar:
        bar.add_task(description, total=total)
        yield bar


def note(text: str) -> None:
    """One line on standard error that is no error."""
    sys.stderr.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """One line on standard error that says what is wrong."""
    note(f"raceway: {text}")


def fail(text: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Complain and end the command."""
    complain(text)
    raise typer.Exit(code)


def exit_code_of(error: RacewayError) -> ExitCode:
    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, ConnectionLostError):
        return ExitCode.UNREACHABLE
    if isinstance(error, RequestTimeoutError):
        return ExitCode.TIMEOUT
    if isinstance(error, RemoteError):
        return REPORTED_EXIT_CODES.get(error.reported, ExitCode.ERROR_ANSWER)
    return ExitCode.FAILED
