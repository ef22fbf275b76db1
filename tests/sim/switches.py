"""Switches of the generators as text, for the command line and for planted bugs."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.sim.history import Switches


def read_switches(text: str) -> Switches:
    """Read `wires=mb,zbus slots=4 weights.power=5 splitting=0 settings.journal.seal=false`; what is not named stays as
    usual.

    `weights=none` leaves out everything but what clients do; weights that follow it count.
    """
    usual = Switches()
    weights, settings, changed = dict(usual.weights), dict[str, Any](), dict[str, Any]()
    for part in text.split():
        name, _, value = part.partition("=")
        if name == "weights" and value == "none":
            weights = {"act": 100.0}
        elif name.startswith("weights."):
            weights[name.removeprefix("weights.")] = float(value)
        elif name.startswith("settings."):
            settings[name.removeprefix("settings.")] = msgspec.json.decode(value)
        elif name == "wires":
            changed["wires"] = tuple(value.split(","))
        elif name in ("habits", "rules"):
            changed[name] = tuple(filter(None, value.split(",")))
        elif name in ("splitting", "latency_s", "short_writes"):
            changed[name] = float(value)
        elif name == "slots":
            changed["slots"] = int(value)
        else:
            raise ValueError(f"unknown switch {part!r}")
    return Switches(weights=weights, settings=settings, **changed)
