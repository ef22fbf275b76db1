"""State that all parts of the broker share: tables, journal, meter, and the turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import structlog

from raceway import config
from raceway.broker.logs import LogWatch
from raceway.broker.metrics import Meter
from raceway.broker.peers import Peer
from raceway.broker.readers import Readers
from raceway.broker.routing import Routing
from raceway.broker.runs import Refused
from raceway.broker.security.security import Security
from raceway.broker.steps import Steps, Then, WaitFor, run_here
from raceway.broker.topics import TopicTable
from raceway.broker.tracing import Chains
from raceway.errors import AwayError, DrainingError, NoRouteError
from raceway.journal.contract import Journal, OnCommit
from raceway.model.buckets import Buckets
from raceway.model.envelope import Batch
from raceway.model.intents.kinds import Done
from raceway.model.topics import AUDIT_STREAM
from raceway.net.runtime import Runtime
from raceway.net.timers import Clock

log = structlog.get_logger("raceway.broker")

R = TypeVar("R")
IntentHandler = Callable[[Any, Any], Any]
NO_SECURITY = config.SecuritySettings()
# Pause before rows that could not be brought back from the archive are asked for again.
AWAY_PAUSE_S = 1.0


class Bus:
    def __init__(
        self,
        settings: config.BrokerSettings,
        journal: Journal,
        loop: Clock,
        clock_us: Callable[[], int],
        security: config.SecuritySettings = NO_SECURITY,
    ) -> None:
        self.settings = settings
        self.journal = journal
        self.loop = loop
        self.clock_us = clock_us
        self._new_topics = Buckets(loop.time)
        self.topics = TopicTable(
            journal.topics(), settings.max_topics, settings.subscriptions.aliases, self._may_make_topic
        )
        self.routing = Routing()
        self.readers = Readers()
        # Connected peers by id, in order of connection.
        self.peers: dict[str, Peer] = {}
        self.chains = Chains()
        self.meter = Meter()
        self.logs = LogWatch(clock_us)
        self.runtime = Runtime(settings, loop, clock_us, self.meter.counts, self.logs.emit, journal.after_commit)
        # With those of connections of this process that are not this bus's own.
        self.runtimes = [self.runtime]
        self.turn, self.credits, self.unfinished = self.runtime.turn, self.runtime.credits, self.runtime.unfinished
        self.security = Security(security, journal.state, self.set_state)
        self.draining = False
        # Runs work in another thread and passes on its result or exception; set by the process.
        self.offload: Callable[[Callable[[], Any], Then], None] = run_here
        # Who waits for which segment of the archive, each once.
        self._away: dict[str, dict[Callable[[], None], None]] = {}
        self._journal_owed = False
        self._lingering = False

    def _may_make_topic(self, maker: str) -> bool:
        """Return whether an address may create one more topic: topics are permanent, so their rate is limited."""
        rate = self.settings.topic_rate
        if not (rate and maker) or self._new_topics.take(maker, rate, self.settings.topic_burst):
            return True
        self.meter.counts["bus.topics_refused"] += 1
        return False

    def append(self, batch: Batch, done: OnCommit | None, *, awaited: bool | None = None) -> int:
        """Append rows to the journal, to be flushed at the end of the turn. Return the first row's sequence.

        Rows whose commit nobody waits for (one-way publishes, requests, answers) may collect for `linger_ms`, so that
        the writer thread does not hold the GIL while an answer is being sent.
        """
        batch.complete()
        first = self.journal.append(batch, done, awaited=awaited)
        self._owe_journal()
        return first

    def _owe_journal(self) -> None:
        if not self._journal_owed:
            self._journal_owed = True
            self.turn.owe(self, last=True)

    def set_state(self, section: str, key: str, value: Any | None) -> None:
        """Store a small value in the journal's state, to be flushed at the end of the turn."""
        self.journal.set_state(section, key, value)
        self._owe_journal()

    def after_commit(self, done: OnCommit, *, patient: bool = False) -> None:
        """Call `Journal.after_commit` and flush the journal at the end of the turn."""
        self.journal.after_commit(done, patient=patient)
        self._owe_journal()

    def aside(self, work: Callable[[], Any]) -> WaitFor:
        """Return the step that waits for the result of work in another thread."""
        return partial(self.offload, work)

    def bring_back(self, away: AwayError, then: Callable[[], None]) -> None:
        """Copy archived rows to the local disk in another thread, then call `then`; if that fails, after a pause."""
        if away.segment in self._away:
            self._away[away.segment][then] = None
            return
        self._away[away.segment] = {then: None}
        self.offload(partial(self.journal.bring_back, away.segment), partial(self._brought_back, away.segment))

    def _brought_back(self, segment: str, found: Exception | None) -> None:
        waiting = self._away.pop(segment)
        if found is None:
            for then in waiting:
                then()
            return
        log.warning("archived rows not brought back", segment=segment, reason=str(found))
        for then in waiting:
            self.loop.call_later(AWAY_PAUSE_S, then)

    def commit(self, then: OnCommit) -> None:
        """Wait for the commit of everything so far: a step."""
        self.journal.after_commit(then)

    def changing(self, work: Callable[[Any], Any]) -> IntentHandler:
        """Return the handler of an intent that changes stored state: `work` is given the intent."""
        return lambda peer, call: self.change(lambda: work(call))

    def change(self, work: Callable[[], R], *, renews: bool = False) -> Steps[R | Done]:
        """Change stored state; the outcome comes after the commit. Raises UnavailableError if nothing can be stored.

        `renews`: the work may find nothing to store, and checks itself whether it can. On a full disk, or while Kafka
        is away, its outcome comes immediately: clients would wait for ever.
        """
        if not renews:
            self.journal.check_writable()
        found = work()
        if not renews or self.journal.health().status not in ("disk_full", "away"):
            yield self.commit
        return Done() if found is None else found

    def flush(self) -> None:
        """Flush the journal at the end of a turn, or start the linger timer if no commit is awaited."""
        self._journal_owed = False
        if self.journal.is_awaited or not self.settings.linger_ms:
            self.journal.flush()
        elif not self._lingering:
            self._lingering = True
            self.loop.call_later(self.settings.linger_ms / 1000, self._end_linger)

    def _end_linger(self) -> None:
        self._lingering = False
        self.journal.flush()

    def admit(self, kind: str, peer: Peer, batch: Batch) -> None:
        """Count a received batch. Raises DrainingError while the bus is stopping, except for answers."""
        if kind != "response":
            self.check_open()
        self.count(kind, peer, batch)

    def check_open(self) -> None:
        """Check that the bus is not stopping. Raises DrainingError."""
        if self.draining:
            raise DrainingError("The bus is stopping")

    def count(self, kind: str, peer: Peer, batch: Batch) -> None:
        """Count a received batch."""
        batch.complete()
        assert type(batch.payload) is list
        self.meter.count_batch(kind, peer.wire, batch.payload)  # type: ignore[arg-type]  # every row has one

    def count_refused(self, counter: str, refused: Refused) -> None:
        """Count refused rows as errors. Rows without a route are counted where they are found."""
        if refused:
            self.meter.counts[counter] += sum(
                stop - start for start, stop, error in refused if not isinstance(error, NoRouteError)
            )

    def has_responder(self, name: str) -> bool:
        """Return whether a request to this name has a responder, not counting queues without consumers."""
        topic = self.topics.maybe_known_as(name)
        responders = self.routing.responders(name) if topic is None else self.routing.route(topic).responders
        return bool(responders)

    def audit(self, payload: bytes) -> None:
        """Send one audit record to all subscribers of the audit stream."""
        for peer in self.routing.subscribers(AUDIT_STREAM):
            if isinstance(peer, Peer):  # queues receive no messages of the broker
                peer.announce(AUDIT_STREAM, payload)

    def note_subscriptions(self) -> None:
        """Update `Runtime.audited` after subscriptions changed."""
        audited = bool(self.routing.subscribers(AUDIT_STREAM))
        for runtime in self.runtimes:
            runtime.audited = audited
