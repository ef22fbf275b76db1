"""What the clients of the story know: whatever they sent, were handed and were told. The tables must say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from raceway.errors import RemoteError, RequestTimeoutError

T = TypeVar("T")

WIRES = ("mb", "danube", "zbus", "seneca")
ASKING = ("mb", "zbus", "seneca")
# Who answers when nobody does, in the words of `gold.service_graph`.
NOBODY = "nobody"
# What each wire calls an answer that did not come in time.
TOO_LATE = ("TIMEOUT", "action_timeout", "504")

# Patience for what should take milliseconds; a demo that waits longer than this has found a fault.
PATIENCE_S, PATIENCE_MS = 60.0, 60_000

Advance = Callable[[int], None]
# Begins an act: its title and how many steps it has; within, the steps are counted.
Curtain = Callable[[str, int], AbstractContextManager[Advance]]


class Enter(Protocol):
    """A client on a door of the bus, closed when the story ends."""

    async def __call__(self, door: str, **options: Any) -> Any: ...


class Tally:
    """Counts by name. A publish counts when the bus took it; what a schema refused is in `refused` instead."""

    def __init__(self) -> None:
        self.published: Counter[tuple[str, str]] = Counter()  # (topic, wire)
        self.delivered: Counter[tuple[str, str]] = Counter()  # (wire of the sender, wire of the reader), of bags
        self.asked: Counter[tuple[str, str, str]] = Counter()  # (wire that asks, wire that answers, status)
        self.refused: Counter[tuple[str, str]] = Counter()  # (wire, code in its own words), by a schema
        self.mishaps: list[tuple[str, str, str]] = []  # (wire, what was tried, what the client was told)

    async def ask(self, asking: str, answering: str, call: Awaitable[T]) -> T:
        """Waits for an answer and counts what became of the question; raises as the call does."""
        status = "answered"
        try:
            return await call
        except RequestTimeoutError:
            status = "timeout"
            raise
        except RemoteError as error:
            status = "timeout" if error.reported in TOO_LATE else "error"
            raise
        finally:
            self.asked[asking, NOBODY if status == "timeout" else answering, status] += 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "published": _rows(("topic", "wire"), self.published),
            "delivered": _rows(("from", "to"), self.delivered),
            "asked": _rows(("asking", "answering", "status"), self.asked),
            "refused": _rows(("wire", "code"), self.refused),
            "mishaps": [dict(zip(("wire", "what", "told"), mishap, strict=True)) for mishap in self.mishaps],
        }


def _rows(names: tuple[str, ...], counts: Counter[Any]) -> list[dict[str, Any]]:
    return [dict(zip(names, key, strict=True)) | {"count": count} for key, count in sorted(counts.items())]
