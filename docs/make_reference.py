"""Generate the pages of docs/reference from the code. `make docs` runs it; a test compares the committed pages with its
output."""

from __future__ import annotations

from pathlib import Path

from docs.generate.client import client_page
from docs.generate.commands import commands_page
from docs.generate.conversions import conversions_page
from docs.generate.errors import errors_page
from docs.generate.http_api import http_page
from docs.generate.measured import measured_page
from docs.generate.metrics import metrics_page
from docs.generate.settings import settings_page
from docs.generate.tables import tables_page

FOLDER = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """File name under docs/reference to its text."""
    return {
        "cli.md": commands_page(),
        "client.md": client_page(),
        "config.md": settings_page(),
        "conversions.md": conversions_page(),
        "errors.md": errors_page(),
        "http-api.md": http_page(),
        "measured.md": measured_page(),
        "metrics.md": metrics_page(),
        "tables.md": tables_page(),
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
