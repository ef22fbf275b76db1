"""The end of a demo without Spark: publishes in the journal, compared with what the clients counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from raceway.cli import output
from raceway.demo.report import difference
from raceway.demo.tally import ASKING, NOBODY, WIRES, Tally
from raceway.journal.read.reader import Reader
from raceway.model.envelope import PUBLISH
from raceway.model.topics import is_reserved


def stored_publishes(folder: Path) -> Counter[tuple[str, str]]:
    """Count the publishes in the journal by topic and wire, without those of the bus itself."""
    reader, counts = Reader(folder), Counter[tuple[str, str]]()
    try:
        for batch in reader.read(reader.first_position()):
            rows = zip(*(batch.column(name).to_pylist() for name in ("kind", "topic", "wire")), strict=True)
            counts.update(
                (topic, wire) for kind, topic, wire in rows if kind == PUBLISH.decode() and not is_reserved(topic)
            )
    finally:
        reader.close()
    return counts


def differences_of(folder: Path, tally: Tally) -> list[str]:
    """Return sentences that say where the journal and the clients disagree."""
    found = difference("publishes", tally.published, stored_publishes(folder), "the journal")
    return [found] if found else []


def print_story(tally: Tally, left_out: str) -> None:
    """Print what the clients counted, and what is missing without Spark."""
    published = Counter[str]()
    for (_, wire), count in tally.published.items():
        published[wire] += count
    delivered = [(wire, published[wire], *(tally.delivered[wire, to] for to in WIRES)) for wire in WIRES]
    columns = ["published on", ">messages", *(f">bags → {wire}" for wire in WIRES)]
    output.print_table("Published on any wire, delivered on every wire", columns, delivered)
    asked = [(wire, *(_asked(tally, wire, by) for by in (*ASKING, NOBODY))) for wire in ASKING]
    output.print_table(
        "Asked on any wire, answered by any wire", ["asked on", *(f">by {by}" for by in (*ASKING, NOBODY))], asked
    )
    output.print_table("Refused", ["wire", "what", "the client was told"], tally.mishaps)
    print(f"Left out: the tables, and the report that is computed from them; {left_out}")


def _asked(tally: Tally, asking: str, answering: str) -> int:
    return sum(count for (one, other, _), count in tally.asked.items() if (one, other) == (asking, answering))
