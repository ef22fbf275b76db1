"""Intents that are performed in parts: one outcome from those of the parts, in the order in which a peer has asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from raceway.broker.door import CommitCallback
from raceway.broker.peers import Peer
from raceway.errors import RacewayError
from raceway.link.guarding import guarded
from raceway.link.totals import total
from raceway.model.intents.batches import Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Metrics
from raceway.model.intents.queues import QueueList

# The parts of an intent, each with its outcome.
Outcomes = list[tuple[Any, Any]]
Join = Callable[[Outcomes], Any]


class Joined:
    """An intent of `parts` parts. `join` makes its outcome of theirs; `ready` is called when it may be told."""

    __slots__ = (
        "_commits", "_committed", "_done", "_error", "_is_told", "_join", "_left", "_outcome", "_outcomes", "_ready",
        "is_ready",
    )  # fmt: skip

    def __init__(
        self,
        parts: int,
        join: Join,
        done: Callable[[Any], None] | None,
        committed: CommitCallback | None,
        ready: Callable[[], None],
    ) -> None:
        self._left, self._join, self._done, self._committed, self._ready = parts, join, done, committed, ready
        self._outcomes: Outcomes = []
        self._outcome: Any = None
        # Commits to come, and what failed in one of those that came.
        self._commits = 0
        self._error: RacewayError | None = None
        self.is_ready = self._is_told = False

    def answer(self, part: Any, outcome: Any) -> None:
        """Take the outcome of a part. Unless it is an error, its commit comes later if that is waited for."""
        self._outcomes.append((part, outcome))
        self._commits += not isinstance(outcome, RacewayError)
        self._left -= 1
        if not self._left:
            self._outcome = self._join(self._outcomes)
            self.is_ready = True
            self._ready()

    def commit(self, error: RacewayError | None) -> None:
        """Take the commit of a part, or its failure."""
        self._commits -= 1
        self._error = self._error or error
        self._tell_commit()

    def tell(self) -> None:
        """Tell the outcome, and the commit if that is known."""
        if self._done is not None:
            self._done(self._outcome)
        self._is_told = True
        if not isinstance(self._outcome, RacewayError):
            self._tell_commit()

    def _tell_commit(self) -> None:
        if self._is_told and not self._commits and self._committed is not None:
            self._committed(self._error)


class AnswerOrder:
    """The intents of each peer that are not answered, in the order in which outcomes are told."""

    def __init__(self) -> None:
        self._waiting: dict[Peer, deque[Joined]] = {}

    def add(
        self,
        peer: Peer,
        parts: int,
        join: Join,
        done: Callable[[Any], None] | None,
        committed: CommitCallback | None = None,
    ) -> Joined:
        """Return an intent that is answered after those before it."""
        waiting = self._waiting.setdefault(peer, deque())
        joined = Joined(parts, join, done, committed, lambda: self._tell(peer, waiting))
        waiting.append(joined)
        return joined

    def _tell(self, peer: Peer, waiting: deque[Joined]) -> None:
        while waiting and waiting[0].is_ready:
            guarded(waiting.popleft().tell)
        if not waiting and self._waiting.get(peer) is waiting:
            del self._waiting[peer]


def only(outcomes: Outcomes) -> Any:
    """Return the outcome of the one part."""
    ((_, outcome),) = outcomes
    return outcome


def first_error(outcomes: Outcomes) -> RacewayError | None:
    """Return what failed first, if anything did."""
    return next((outcome for _, outcome in outcomes if outcome is not None), None)


def agreed(outcomes: Outcomes) -> Done | RacewayError:
    """Return the outcome of what each part has done whole. One refusal refuses it; what others have done stays."""
    return _refusal(outcomes) or Done(any(outcome.changed for _, outcome in outcomes))


def queues_of_all(outcomes: Outcomes) -> QueueList | RacewayError:
    """Return the queues of all lanes, in order of creation."""
    return _refusal(outcomes) or QueueList(
        tuple(sorted((row for _, each in outcomes for row in each.rows), key=lambda row: row.made_ms))
    )


def metrics_of_all(outcomes: Outcomes) -> Metrics | RacewayError:
    """Return the metrics of all lanes together."""
    return _refusal(outcomes) or total(each for _, each in outcomes)


def _refusal(outcomes: Outcomes) -> RacewayError | None:
    return next((outcome for _, outcome in outcomes if isinstance(outcome, RacewayError)), None)


def taken(outcomes: Outcomes) -> Taken:
    """Return the outcome of a batch. Parts are lists of its rows; those of a part that failed are refused."""
    refused: list[tuple[int, int, RacewayError]] = []
    for rows, outcome in outcomes:
        spans = ((0, len(rows), outcome),) if isinstance(outcome, RacewayError) else outcome.refused
        for start, stop, error in spans:
            refused += [(begin, end, error) for begin, end in _stretches(rows[start:stop])]
    return Taken(tuple(sorted(refused, key=lambda each: each[0])))


def _stretches(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Return (start, stop) of each stretch of consecutive rows."""
    starts = [rows[0], *(row for before, row in pairwise(rows) if row != before + 1)]
    stops = [*(before + 1 for before, row in pairwise(rows) if row != before + 1), rows[-1] + 1]
    return list(zip(starts, stops, strict=True))
