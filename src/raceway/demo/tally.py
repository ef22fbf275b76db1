"""Counts of what the clients of the story sent, received and were told. The tables must agree with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from raceway.errors import RemoteError, RequestTimeoutError

T = TypeVar("T")

WIRES = ("mb", "danube", "zbus", "seneca")
ASKING = ("mb", "zbus", "seneca")
# The callee of an unanswered request, as `gold.service_graph` names it.
NOBODY = "nobody"
# Code of each wire for a request that timed out.
TOO_LATE = ("TIMEOUT", "action_timeout", "504")

# Timeout of steps that take milliseconds; when it expires, the demo has found a bug.
PATIENCE_S, PATIENCE_MS = 60.0, 60_000

OnProgress = Callable[[int], None]
# Begins an act, given its title and number of steps; yields the function that counts steps.
ShowProgress = Callable[[str, int], AbstractContextManager[OnProgress]]
# Connects a client to a door of the bus; it is closed at the end of the story.
Enter = Callable[..., Awaitable[Any]]


class Tally:
    """Counters. A publish counts if the bus accepted it; those refused by a schema are in `refused`."""

    def __init__(self) -> None:
        self.published: Counter[tuple[str, str]] = Counter()  # (topic, wire)
        self.delivered: Counter[tuple[str, str]] = Counter()  # (wire of the sender, wire of the reader), of bags
        self.asked: Counter[tuple[str, str, str]] = Counter()  # (wire of the caller, wire of the callee, status)
        self.refused: Counter[tuple[str, str]] = Counter()  # (wire, its code), by a schema
        self.mishaps: list[tuple[str, str, str]] = []  # (wire, what was tried, what the client was told)

    async def ask(self, asking: str, answering: str, call: Awaitable[T]) -> T:
        """Await a request and count its outcome; raises as the call does."""
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
