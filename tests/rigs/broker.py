"""The real broker over a journal in memory or in a folder, in a loop moved by hand: stopped, killed, started again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from raceway import config
from raceway.broker.broker import Broker
from raceway.journal.contract import Journal
from raceway.journal.local import LocalJournal
from raceway.model.intents.peers import Subscribe
from tests.rigs.doubles import FaultyJournal, ManualLoop, RecordingPeer
from tests.rigs.journal import DEADLINE_S, crash
from tests.rigs.journal_folder import UNSYNCED


class BrokerRig:
    """Without a folder the journal is in memory, and can be told to fail."""

    def __init__(self, folder: Path | None = None, journal: dict[str, Any] | None = None, **settings: Any) -> None:
        self._folder = folder
        self._settings = config.BrokerSettings(**settings)
        self._journal_settings = journal or {}
        self.loop = ManualLoop()
        self.journal: Journal = self._open()
        self.broker = Broker(self._settings, self.journal, self.loop, self.loop.wall_us)

    def _open(self) -> Journal:
        if self._folder is None:
            settings = config.JournalSettings(durability="memory", **self._journal_settings)
            return FaultyJournal(settings, self.loop.call_soon, self.loop.wall_us)
        settings = config.JournalSettings(folder=str(self._folder), **self._journal_settings)
        return LocalJournal(settings, self.loop.call_soon, self.loop.wall_us, UNSYNCED)

    @property
    def faulty(self) -> FaultyJournal:
        assert isinstance(self.journal, FaultyJournal)
        return self.journal

    # ---- time --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Turns and commits until nothing is left to do."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.loop.settle()
            self.journal.flush()  # a commit that failed leaves cursors behind
            finished: list[None] = []
            self.journal.after_commit(lambda error, found=finished: found.append(None), patient=True)  # type: ignore[misc]
            if finished:
                return
            while not finished:
                assert time.monotonic() < deadline, "the commit did not come in time"
                self.loop.settle()
                time.sleep(0)

    def restart(self) -> None:
        """A clean stop and a new start."""
        self.settle()
        if self._folder is not None:
            self.journal.close()
        self._start()

    def crash(self) -> None:
        """The process is killed; what was not committed is gone."""
        assert isinstance(self.journal, LocalJournal)
        crash(self.journal)
        self._start()

    def close(self) -> None:
        self.journal.close()

    def _start(self) -> None:
        if self._folder is not None:
            self.loop = ManualLoop()
            self.journal = self._open()
        else:  # the journal goes on in this loop, the broker before does not
            self.loop.forget_timers()
        self.broker = Broker(self._settings, self.journal, self.loop, self.loop.wall_us)

    def foreign_peer(self, *patterns: str, answers: str | None = None, priority: float = 0) -> RecordingPeer:
        """A connection of a wire without queues, subscribed to these patterns; `answers` is a pattern for requests."""
        peer = RecordingPeer()
        self.broker.connect(peer)
        for pattern in patterns:
            self.broker.perform(peer, Subscribe("publish", pattern))
        if answers is not None:
            self.broker.perform(peer, Subscribe("request", answers, priority))
        return peer

    def rows(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Everything stored, after a commit."""
        self.settle()
        found = [row for batch in self.journal.read(self.journal.first_position()) for row in batch.to_pylist()]
        return [row for row in found if row["kind"] != "control" and (kind is None or row["kind"] == kind)]

    def counted(self, name: str) -> int:
        return self.broker.meter.counts[name]
