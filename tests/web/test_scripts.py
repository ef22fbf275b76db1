"""The console's scripts: their types, and their logic under Node's own test runner."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from raceway.web.console import FOLDER
from raceway.wires import WIRES
from tests.rigs.tools import installed, type_checker

CHECKS = Path(__file__).parent.parent / "console_js"
SCRIPTS = sorted(FOLDER.rglob("*.js"))


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=CHECKS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_types_of_the_scripts_hold() -> None:
    run(installed("node", "nodejs"), str(type_checker()), "-p", str(CHECKS))


def test_the_logic_of_the_scripts_holds() -> None:
    run(installed("node", "nodejs"), "--test", str(CHECKS))


def test_no_script_turns_text_into_markup_or_code() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(.style|srcdoc"
    )
    assert [path.name for path in SCRIPTS if forbidden.search(path.read_text("utf-8"))] == []


def test_no_file_names_another_server() -> None:
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file():
            text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
            found = re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text)
            assert found == [], path.name


def test_the_page_has_no_script_or_style_within() -> None:
    page = (FOLDER / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", page) == []


def imported(script: str, found: set[str]) -> set[str]:
    """Add a script and all that it imports, by their paths in the folder."""
    if script not in found:
        found.add(script)
        names = re.findall(r'^import .*?"(\.[^"]+)";', (FOLDER / script).read_text("utf-8"), re.MULTILINE)
        for name in names:
            imported(os.path.normpath(Path(script).parent / name), found)
    return found


def test_the_page_asks_at_once_for_all_scripts_of_the_first_page() -> None:
    """A browser that learned of each from another would wait for the bus four times before it shows anything."""
    page = (FOLDER / "index.html").read_text("utf-8")
    named = re.findall(r'(?:src|modulepreload" href)="{{folder}}/([^"]+\.js)"', page)
    assert sorted(named) == sorted(imported("app.js", set()))


def test_every_script_belongs_to_a_page() -> None:
    reached = imported("app.js", set())
    for name in re.findall(r'\["\w", "(\w+)", "[^"]+"\]', (FOLDER / "app.js").read_text("utf-8")):
        imported(f"pages/{name}.js", reached)
    assert reached == {path.relative_to(FOLDER).as_posix() for path in SCRIPTS}


def test_no_script_knows_a_wire() -> None:
    """Texts for people may name one; code asks the page and the API, as Python's does (`tests/test_wire_names.py`)."""
    names = "|".join(wire.name for wire in WIRES)
    forbidden = re.compile(rf"""(["'`])({names})\1|/api/({names})\b|\b({names})(?=[.(\[=]| =)""")
    found = {
        path.name: forbidden.findall(re.sub(r"(?m)^\s*(//|\*|/\*\*).*$", "", path.read_text("utf-8")))
        for path in SCRIPTS
    }
    assert {name: each for name, each in found.items() if each} == {}
