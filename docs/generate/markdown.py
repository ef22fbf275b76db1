"""What all generated pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `make docs` from the code; edit the code instead. -->\n"


def page(title: str, *lines: str) -> str:
    """The whole text of a page."""
    return "\n".join([MADE, f"# {title}", "", *lines]).rstrip() + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, and the empty one behind it."""
    shown = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *shown, ""]


def cell(text: str | None) -> str:
    """Text on one line, for a cell of a table."""
    return " ".join((text or "").split()).replace("|", "\\|")


def paragraphs(text: str) -> str:
    """Paragraphs of a docstring, a line each; those that are set in stay as they are."""
    parts = text.replace("\f", "").split("\n\n")
    return "\n\n".join(part.rstrip() if part.startswith("    ") else " ".join(part.split()) for part in parts).strip(
        "\n"
    )
