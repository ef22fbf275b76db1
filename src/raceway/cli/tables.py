"""Layout of tables: as columns where they fit, otherwise as records, a line for each cell.

A word is never broken to make a table fit: an id or a time that is folded into a narrow column can be neither read nor
copied. Words longer than LONGEST_WORD, of a payload for example, are folded on a terminal. In a pipe nothing is folded:
programs read it line by line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Width of tables in a pipe, which has none: that of a wide terminal. COLUMNS takes precedence.
PIPE_WIDTH = 120
# Of a UUID.
LONGEST_WORD = 36
# Spaces between two columns, and at both edges of a table together.
GAP, EDGES = 3, 2


def width_of(stream: TextIO) -> int | None:
    """Return the width of tables on this stream; None: that of the terminal."""
    if stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdigit() and int(given) else PIPE_WIDTH


def print_cells(screen: Console, headings: Sequence[str], rows: Sequence[Sequence[str]], *, folds: bool) -> None:
    """Print a table. A heading may begin with its alignment, `>` for right or `<` for left.

    `folds`: words that do not fit may be folded; otherwise lines may be longer than the screen is wide.
    """
    names = [name[1:] if name.startswith(("<", ">")) else name for name in headings]
    widths = maybe_widths(names, rows, screen.width, folds=folds)
    if widths is not None:
        _print_columns(screen, headings, names, widths, rows)
    elif len(names) == 2 and not names[0]:  # names and values: one record already
        _print_records(screen, [name for name, _ in rows], [[value for _, value in rows]], folds=folds)
    else:
        _print_records(screen, names, rows, folds=folds)


def maybe_widths(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, folds: bool = True
) -> list[int] | None:
    """Return the width of each column; None if the table does not fit without breaking words."""
    columns = [[name, *(row[place] for row in rows)] for place, name in enumerate(names)]
    natural = [max(map(_cells, column)) for column in columns]
    room = width - GAP * (len(names) - 1) - EDGES
    if sum(natural) <= room:
        return natural
    least = [max(min(_longest_word(cell), LONGEST_WORD) for cell in column) for column in columns]
    if not folds or sum(least) > room:
        return None
    return _shared(least, natural, room)


def _shared(least: list[int], natural: list[int], room: int) -> list[int]:
    """Return widths between the least and the natural ones: what is left of the room goes to the narrowest first."""
    widths, left = list(least), room - sum(least)
    while left > 0:
        _, place = min((widths[place], place) for place in range(len(widths)) if widths[place] < natural[place])
        widths[place] += 1
        left -= 1
    return widths


def _cells(text: str) -> int:
    """Return the columns of a terminal that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(_cells, text.split()), default=0)


def _print_columns(
    screen: Console, headings: Sequence[str], names: Sequence[str], widths: list[int], rows: Sequence[Sequence[str]]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(names))
    for heading, name, width in zip(headings, names, widths, strict=True):
        table.add_column(name, justify="right" if heading.startswith(">") else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    screen.print(table)


def _print_records(screen: Console, names: Sequence[str], rows: Sequence[Sequence[str]], *, folds: bool) -> None:
    """Print each row as lines `heading  cell`, with a blank line after it."""
    from rich.table import Table
    from rich.text import Text

    longest = max(map(_cells, names))
    for row in rows:
        if folds:
            record = Table.grid(padding=(0, EDGES, 0, 0))
            record.add_column(width=longest)
            record.add_column(overflow="fold")
            for name, cell in zip(names, row, strict=True):
                record.add_row(Text(name, style="bold"), Text(cell))
            screen.print(record)
        else:
            for name, cell in zip(names, row, strict=True):
                screen.file.write(f"{name + ' ' * (longest - _cells(name))}  {cell}".rstrip() + "\n")
        screen.file.write("\n")
