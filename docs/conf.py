"""Sphinx configuration of the manual's site. `make docs` runs it, with warnings as errors.

The navigation is generated from index.md: its headings are the groups, and the pages they link to are the entries, in
that order. So there is one list of pages, which is also readable on a source host, and a page that is missing from it
fails the build.

The site loads nothing from other hosts and is searched in the reader's browser, even when opened as files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raceway import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "Raceway"
release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["manual.css"]
html_js_files = ["manual.js"]
html_show_search_summary = False  # it fetches pages, which browsers refuse to those in files; manual.js does it instead
html_title = f"Raceway {release}"
html_show_copyright = html_show_sphinx = html_show_sourcelink = html_copy_source = False

TEXTS = "page-texts.js"
GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
ENTRY = re.compile(r"\]\(([^)#:]+)\.md\)")


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", add_texts)
    app.connect("build-finished", write_texts)


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] += "".join(navigation(source[0]))


def add_texts(app: Sphinx, name: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Let the page of the search load the texts of all pages, for excerpts."""
    if name == "search":
        app.add_js_file(TEXTS)


def write_texts(app: Sphinx, error: Exception | None) -> None:
    """Write the texts of all pages as a script: a page in a file may load scripts, and no other files."""
    if error is None and app.builder.format == "html":
        texts = {name: " ".join(app.env.get_doctree(name).astext().split()) for name in app.env.found_docs}
        script = f"const PAGE_TEXTS = {json.dumps(texts, ensure_ascii=False)};\n"
        (Path(app.outdir) / "_static" / TEXTS).write_text(script, "utf-8")


def navigation(index: str) -> list[str]:
    """A hidden table of contents for each group of index.md."""
    _, *parts = GROUP.split(index)
    groups = zip(parts[::2], parts[1::2], strict=True)
    return [_contents(caption, ENTRY.findall(text)) for caption, text in groups]


def _contents(caption: str, pages: list[str]) -> str:
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *dict.fromkeys(pages), "```\n"])
