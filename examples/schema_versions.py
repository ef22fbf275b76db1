"""Register, check, fetch and bind schemas from classes, without asyncio.

Start a bus (`raceway serve`), then: python examples/schema_versions.py [URL] [CONSOLE]
"""

import sys

import msgspec

from raceway.client.sync import connect


class Gate(msgspec.Struct):
    number: int


class GateWithDelay(msgspec.Struct):
    number: int
    delay_minutes: int = 0


class RenamedGate(msgspec.Struct):
    name: str


def main(url: str, console: str) -> None:
    with connect(url, console=console) as bus:
        print("version", bus.schemas.register("gates", Gate).version)
        print("a field with a default:", bus.schemas.check("gates", GateWithDelay).is_compatible)
        print("another field instead:", bus.schemas.check("gates", RenamedGate).is_compatible)
        print("version", bus.schemas.register("gates", GateWithDelay).version)
        bound = bus.schemas.bind("gates.changed", "gates", policy="enforce", validate=True)
        print(bound.topic, "must match", bound.subject)
        print("latest:", bus.schemas.fetch("gates").version)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(given.get(1, "mb://127.0.0.1:3001"), given.get(2, "http://127.0.0.1:8600"))
