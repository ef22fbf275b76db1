"""Sphinx configuration of the manual's site. `make docs` runs it, with warnings as errors.

The navigation is generated from index.md: its headings are the groups, and the pages they link to are the entries, in
that order. So there is one list of pages, which is also readable on a source host, and a page that is missing from it
fails the build.

The site loads nothing from other hosts and is searched in the reader's browser, even when opened as files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raceway import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Raceway"
release = __version__
extensions = ["myst_parser"]
suppress_warnings = ["misc.highlighting_failure"]  # in example output `…` stands for any text, which lexers do not know
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["manual.css"]
html_title = f"Raceway {release}"
html_show_copyright = html_show_sphinx = html_show_sourcelink = html_copy_source = False

GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
ENTRY = re.compile(r"\]\(([^)#:]+)\.md\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] += "".join(navigation(source[0]))


def navigation(index: str) -> list[str]:
    """A hidden table of contents for each group of index.md."""
    _, *parts = GROUP.split(index)
    groups = zip(parts[::2], parts[1::2], strict=True)
    return [_contents(caption, ENTRY.findall(text)) for caption, text in groups]


def _contents(caption: str, pages: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *dict.fromkeys(pages), "```\n"])
