"""The command line of a Raceway with a fifth wire: one line more in the list."""

from __future__ import annotations

from raceway import wires
from tests.rigs.delayed_door import DOOR
from tests.rigs.parrot import WIRE

wires.WIRES = (*wires.WIRES, WIRE)

if __name__ == "__main__":
    from raceway.cli.app import main
    from raceway.server import process

    process.Door = DOOR  # type: ignore[attr-defined]
    main()
