"""Output and exit statuses of commands.

Results go to standard output; errors, notes and progress to standard error. Topics, payloads and names are untrusted:
they pass through `printable` or `print_json`, so that no message can control the reader's terminal.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from raceway.cli import tables
from raceway.errors import (
    ConfigError,
    ConnectionLostError,
    NoAnswerError,
    NotConnectedError,
    RacewayError,
    RemoteError,
    RequestTimeoutError,
    UnreachableError,
)
from raceway.model.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class ExitCode(enum.IntEnum):
    """Exit statuses of commands; 130 is the shell's for Ctrl-C."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    ERROR_ANSWER = 5


EXIT_CODE_MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failure: damage found, refused by the bus, no service for the request, or the folder is in use",
    ExitCode.USAGE: "invalid option or setting",
    ExitCode.UNREACHABLE: "bus or Kafka unreachable, or connection lost",
    ExitCode.TIMEOUT: "timeout",
    ExitCode.ERROR_ANSWER: "the service answered with an error",
}

# With these the bus answers in place of a service: codes of MB; statuses of zbus (no such queue, wrong token, invalid,
# conflict, unavailable); codes of Seneca.
REFUSED_CODES = ("NO_ROUTE_FOUND", "SERVICE_UNAVAILABLE")
REFUSED_STATUSES = ("404", "403", "400", "409", "503")
REFUSED_ACTIONS = ("act_not_found", "forbidden", "invalid_message", "overloaded", "too_large")
REFUSALS = (*REFUSED_CODES, *REFUSED_STATUSES, *REFUSED_ACTIONS)
UNANSWERED = ("TIMEOUT", "504", "action_timeout")
# Code of an error to the status of a command that it ends, for the error and the classes below it.
STATUSES = {
    ConfigError.code: ExitCode.USAGE,
    ConnectionLostError.code: ExitCode.UNREACHABLE,
    NoAnswerError.code: ExitCode.TIMEOUT,
    RequestTimeoutError.code: ExitCode.TIMEOUT,
    UnreachableError.code: ExitCode.UNREACHABLE,
}


def moment(time_us: int, detail: str = "seconds") -> str:
    """Format a time in UTC, as `2026-01-31 12:00:00Z`, to seconds or milliseconds; empty for 0."""
    if not time_us:
        return ""
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(" ", detail).removesuffix("+00:00") + "Z"


def counted(number: int, what: str) -> str:
    """Return a number with what it counts: `1 message`, `2 messages`."""
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def size(amount: int) -> str:
    """Format a number of bytes in the largest unit in which it is at least 1."""
    number, units = float(amount), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{amount} bytes" if units[0] == "bytes" else f"{number:,.1f} {units[0]}"


@contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """End the program with status 0 if the reader of standard output is gone, as in `raceway … | head`."""
    try:
        yield
    except BrokenPipeError:
        _forget_stdout()
        raise SystemExit(ExitCode.OK) from None


def _forget_stdout() -> None:
    """Let what is still buffered go nowhere: the interpreter writes it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)


def flush_last() -> None:
    """Write what is buffered before the program ends with the status that it has, whether it can be written or not."""
    with suppress(SystemExit):
        sys.stdout.flush()


class StandardOutput:
    """Standard output that ends the program with status 0 when its reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with ending_with_its_reader():
            return self._stream.write(text)

    def flush(self) -> None:
        with ending_with_its_reader():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_json(value: Any) -> None:
    """Print a JSON document on one line. ASCII only, so that control characters of any kind are escaped."""
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
    """A rich console on standard output. Markup is off, so that brackets in a payload are printed as they are."""
    from rich.console import Console

    stream = stream or sys.stdout
    return Console(file=stream, width=tables.width_of(stream), markup=False, highlight=False, emoji=False)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table on standard output, laid out as `tables` does; cells are escaped.

    A heading may begin with its alignment, `>` for right or `<` for left. If all headings are empty there is none.
    """
    from rich.text import Text

    screen = console()
    if title:
        screen.print(Text(title, style="bold"))
    cells = [[printable(_cell(value)) for value in row] for row in rows]
    tables.print_cells(screen, columns, cells, folds=sys.stdout.isatty())


def print_rows(title: str, rows: Iterable[Any], columns: Mapping[str, Any]) -> None:
    """Print a table of mappings or records.

    `columns` maps the heading of a column (see `print_table`) to a key of the rows or a function of a row.
    """
    print_table(title, list(columns), [[_value(row, wanted) for wanted in columns.values()] for row in rows])


def _value(row: Any, wanted: Any) -> Any:
    if callable(wanted):
        return wanted(row)
    return row[wanted] if isinstance(row, dict) else getattr(row, wanted)


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
    """A progress bar on standard error for work longer than a second; nothing if that is not a terminal.

    The bar has one task, with the id `progress.task_ids[0]`; a total of None means unknown.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(sys.stderr), transient=True, disable=not sys.stderr.isatty())
    with bar:
        bar.add_task(description, total=total)
        yield bar


def note(text: str) -> None:
    """Print a line on standard error that is not an error."""
    sys.stderr.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """Print an error on standard error."""
    note(f"raceway: {text}")


def fail(text: str, code: ExitCode = ExitCode.FAILED) -> NoReturn:
    """Print an error and end the command."""
    complain(text)
    raise typer.Exit(code)


def misuse(text: str) -> NoReturn:
    """Print an error about the options and end the command."""
    fail(text, ExitCode.USAGE)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, unless `yes`. Ends the command if the answer is no."""
    if not yes:
        typer.confirm(printable(question), abort=True, err=True)


def text_of(error: RacewayError) -> str:
    """Return an error as one line, with what to do if there is no bus at the address."""
    if not isinstance(error, NotConnectedError):
        return str(error)
    return f"{error}; start a bus with `raceway serve`, or name another with --url raceway://HOST:PORT (console port)"


def exit_code_of(error: RacewayError) -> ExitCode:
    if not isinstance(error, RemoteError):
        return error.maybe_entry(STATUSES) or ExitCode.FAILED
    if error.reported in UNANSWERED:
        return ExitCode.TIMEOUT
    return ExitCode.FAILED if error.reported in REFUSALS else ExitCode.ERROR_ANSWER
