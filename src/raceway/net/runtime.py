"""What all connections of one bus share: clock, turn, flow control, input budget, counters."""

from __future__ import annotations

from collections.abc import Callable

from raceway import config
from raceway.errors import RacewayError
from raceway.net.credits import Credits
from raceway.net.timers import Clock
from raceway.net.turn import Turn
from raceway.net.unfinished import InputBudget

AfterCommit = Callable[[Callable[[RacewayError | None], None]], None]


class Runtime:
    """Created by the bus. `emit` sends a log record to peers that watch the log: level, text, facts.

    `after_commit` calls back when everything received so far is committed, or with the error if the commit failed.
    """

    def __init__(
        self,
        settings: config.BrokerSettings,
        loop: Clock,
        clock_us: Callable[[], int],
        counts: dict[str, int],
        emit: Callable[..., None],
        after_commit: AfterCommit,
    ) -> None:
        self.settings = settings
        self.loop, self.clock_us = loop, clock_us
        self.counts = counts
        self.emit, self.after_commit = emit, after_commit
        # Whether the audit stream has subscribers. Sessions check it before they write audit records.
        self.audited = False
        self.turn = Turn(loop.call_soon)
        self.credits = Credits(loop, settings.hold_ms / 1000, settings.hold_window_ms / 1000)
        self.unfinished = InputBudget(settings.unfinished_bytes, loop.call_later, counts)
