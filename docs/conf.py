"""How Sphinx makes the site of the manual; `make docs` runs it, with every warning an error.

The navigation is the map in index.md: its headings are the groups, the pages they link to their entries, in that order.
So there is one list of pages, which hosts of the source show too, and a page that is not in it fails the build.

The site loads nothing from elsewhere and is searched in the reader's browser, also when it is opened as files.
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
suppress_warnings = ["misc.highlighting_failure"]  # `…` stands for anything in what a block prints
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
    """A hidden table of contents for each group of the map."""
    _, *parts = GROUP.split(index)
    groups = zip(parts[::2], parts[1::2], strict=True)
    return [_contents(caption, ENTRY.findall(text)) for caption, text in groups]


def _contents(caption: str, pages: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *dict.fromkeys(pages), "```\n"])
