"""Wires, web and server come through the door (`broker/door.py`). What still reaches past it is counted here.

A use is an attribute of something called `broker`, such as `self._broker.queues`. The numbers may only fall.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "raceway"
# The one module that composes a bus: it makes the broker and its door, ticks, drains and closes it.
COMPOSES = "server/bus.py"
USES = {"wires/mb": 0, "wires/seneca": 0, "wires/zbus": 0, "wires/danube": 0, "web": 0, "server": 0}


def uses(source: str) -> int:
    """Attributes taken of a name or an attribute that is called `broker`, but for the section of the settings."""
    return sum(isinstance(node, ast.Attribute) and _is_broker(node.value) for node in ast.walk(ast.parse(source)))


def _is_broker(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="settings") | ast.Attribute(attr="_settings"), attr="broker"):
            return False
        case ast.Attribute(attr="broker" | "_broker") | ast.Name(id="broker" | "_broker"):
            return True
    return False


def test_uses_of_the_broker_only_get_fewer() -> None:
    found: Counter[str] = Counter()
    for room in ("wires", "web", "server"):
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).parts
            if "/".join(parts) == COMPOSES:
                continue
            found["/".join(parts[:2]) if room == "wires" else room] += uses(path.read_text("utf-8"))
    more = {room: count for room, count in found.items() if count > USES.get(room, 0)}
    assert more == {}, "ask the door instead"


def test_web_does_not_know_the_broker() -> None:
    importing = [
        path.name
        for path in (ROOT / "web").glob("*.py")
        if "raceway.broker.broker" in path.read_text("utf-8") or "raceway.broker.bus" in path.read_text("utf-8")
    ]
    assert importing == []


def test_uses_are_found() -> None:
    source = "broker.a\nself._broker.b.c\nsession.broker.perform(broker)\nbrokers.e\ndoor.view.f\n"
    source += "settings.broker.d\nself._settings.broker.d\n"
    assert uses(source) == 3
