"""The bus as a whole: joins its parts and performs the intents that come through the door (`door.py`).

Nothing here waits, locks, or creates a task. Batches of messages go to `Publishing` and `Exchanges`, single calls are
answered here. Work per message is in lists and dictionaries; sockets are written and the journal is flushed once at the
end of the turn (`Turn`). Callers that wait for the commit pass `done`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from raceway import config
from raceway.broker.bus import NO_SECURITY, Bus, IntentHandler
from raceway.broker.changes import Changes
from raceway.broker.delivery.catch_up import CatchUps
from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.peers import Peer
from raceway.broker.producers import Producers
from raceway.broker.publishing import Publishing
from raceway.broker.queues.calls import QueueCalls
from raceway.broker.queues.table import QueueTable
from raceway.broker.reading import Reading
from raceway.broker.registry.schemas import Schemas
from raceway.broker.requests.exchanges import Exchanges
from raceway.broker.routing import patterns
from raceway.broker.services import CalledServices
from raceway.broker.subscriptions.administration import SubscriptionAdministration
from raceway.broker.subscriptions.table import SubscriptionTable
from raceway.broker.topic_admin import TopicAdministration
from raceway.broker.topic_records import TopicRecords
from raceway.broker.undelivered.dead_letters import Letters
from raceway.broker.undelivered.redrive import Redrive
from raceway.broker.undelivered.undeliverable import park
from raceway.errors import ForbiddenError, InvalidValueError, LimitError, UnknownPeerError
from raceway.journal.contract import Journal, OnCommit
from raceway.model.intents import peers as intents
from raceway.model.intents.batches import Acknowledge, AskAll, Intent, Park, Publish, Request, Respond, Return, Send
from raceway.model.intents.kinds import Done, Outcome
from raceway.model.security import Permission
from raceway.model.topics import LOG_STREAM, fold, has_wildcard
from raceway.net.timers import Clock

log = structlog.get_logger("raceway.broker")

# Calls that show other peers.
LOOKS_AROUND = {intents.ListPeers, intents.ListSubscriptions, intents.ListTopics, intents.ReadMetrics}


# A peer with one of these permissions anywhere may register a name.
NAMED: tuple[Permission, ...] = ("Produce", "Consume")


class Broker(Bus):
    def __init__(
        self,
        settings: config.BrokerSettings,
        journal: Journal,
        loop: Clock,
        clock_us: Callable[[], int],
        security: config.SecuritySettings = NO_SECURITY,
    ) -> None:
        super().__init__(settings, journal, loop, clock_us, security)
        self.topic_records = TopicRecords(self)
        self.catch_ups = CatchUps(self)
        self.queues = QueueTable(self, self.catch_ups)
        self.schemas = Schemas(self)
        publishing = Publishing(self, self.topic_records)
        exchanges = Exchanges(self, self.queues, publishing.schema_door)
        self.security.changed = self._end_forbidden
        self.schema_violations = publishing.schema_door.violations
        records = self.topic_records
        self.letters = Letters(self, records, publishing)
        self.producers = Producers(self, records, self.schemas, publishing)
        self.subscriptions = SubscriptionTable(self, records, self.letters)
        reading = Reading(self)
        self.subscription_admin = SubscriptionAdministration(self, records, self.subscriptions, self.queues, reading)
        self.topic_admin = TopicAdministration(
            self, records, self.schemas, self.producers, self.subscriptions, self.queues
        )  # fmt: skip
        self.correlation, self.reply_queues = exchanges.correlation, exchanges.reply_queues
        self._exchanges = exchanges
        self._queue_calls = QueueCalls(self, self.queues, publishing, exchanges)
        self._batches: dict[type, Callable[[Peer, Any, OnCommit | None], Outcome]] = {
            Publish: publishing.publish,
            Request: exchanges.request,
            AskAll: exchanges.ask_all,
            Respond: exchanges.respond,
            Send: self.producers.send,
            Acknowledge: self.subscriptions.acknowledge,
            Return: self.subscriptions.refuse,
            **self._queue_calls.batches(),
        }
        self._calls = self._own_calls()
        tables = (self.producers, self.subscriptions, self.subscription_admin, self.topic_admin, self.schemas)
        others = (Redrive(self, self.subscriptions), CalledServices(self), Changes(self, publishing))
        for room in (*tables, reading, self._queue_calls, *others):
            self._calls |= room.calls()

    def _own_calls(self) -> dict[type, IntentHandler]:
        """Return the handlers of the calls that the broker and its security perform themselves."""
        return {
            intents.Heartbeat: lambda peer, call: Done(),
            intents.Audit: self._audit,
            Park: self._park,
            intents.Register: self._register,
            intents.Subscribe: self._subscribe,
            intents.Unsubscribe: self._unsubscribe,
            intents.WatchLog: self._watch_log,
            intents.UnwatchLog: self._unwatch_log,
            intents.DisconnectPeer: self._disconnect_peer,
            intents.ListPeers: self._list_peers,
            intents.ListSubscriptions: self._list_subscriptions,
            intents.ListTopics: lambda peer, call: intents.Patterns(patterns(self.peers.values())),
            intents.ReadMetrics: self._read_metrics,
            **self.security.calls(self.changing),
        }

    def perform(self, peer: Peer, intent: Intent, done: OnCommit | None = None) -> Any:
        """Perform the peer's intent. Return its outcome, or the steps to it (`steps.py`).

        `done` is for batches: it is called when their rows are committed, or with the error if the commit failed.
        Raises a RacewayError if no part of the intent was done.
        """
        batch_door = self._batches.get(type(intent))
        if batch_door is not None:
            return batch_door(peer, intent, done)
        if type(intent) in LOOKS_AROUND:
            self.security.check(peer.principal, "Lookup")
        return self._calls[type(intent)](peer, intent)

    def connect(self, peer: Peer) -> None:
        self.peers[peer.id] = peer
        if isinstance(peer, LivePeer):
            peer.catch_ups = self.catch_ups
        self.meter.counts["connection.connected"] += 1
        self.meter.counts["registry.registration"] += 1

    def disconnect(self, peer: Peer) -> None:
        """Remove a peer. Requests to it stay open until their deadline; answers to its own are dropped. Idempotent."""
        peer.open = False
        if self.peers.pop(peer.id, None) is None:
            return
        if isinstance(peer, LivePeer):
            peer.stop()
        self.routing.remove(peer)
        self._queue_calls.leave(peer)
        self._exchanges.leave(peer)
        self.logs.unwatch(peer)
        self.note_subscriptions()
        self.meter.counts["connection.disconnected"] += 1
        self.meter.counts["registry.unregistration"] += 1

    def drain(self) -> None:
        """Refuse new messages and stop delivering, for the shutdown."""
        self.draining = True
        self.queues.pause()
        self.subscriptions.pause()

    def count_error(self, peer: Peer) -> None:
        """Count a message of this peer that was answered with an error."""
        peer.errors += 1
        self.meter.counts["router.message.error"] += 1

    def tick(self) -> None:
        """Update the rates; called once a second. Rates are those of the last full second."""
        self.meter.tick()
        for peer in self.peers.values():
            peer.error_rate, peer.errors = peer.errors, 0

    # ---- calls -------------------------------------------------------------------------------------------------------

    def _register(self, peer: Peer, call: intents.Register) -> Done:
        """Set the peer's name, which rows and lists show. Needs permission to publish or consume somewhere."""
        if self.security.enabled and not any(self.security.allows_somewhere(peer.principal, each) for each in NAMED):
            raise ForbiddenError(str(peer.principal), f"register the name {call.name}")
        peer.name, peer.description = call.name, call.description
        peer.producer = call.name.encode()
        peer.registered_us = self.clock_us()
        self.meter.counts["registry.registration"] += 1
        return Done()

    def _disconnect_peer(self, peer: Peer, call: intents.DisconnectPeer) -> Done:
        """Raises ForbiddenError, UnknownPeerError, InvalidValueError."""
        self.security.check(peer.principal, "ManageBroker")
        found = self.peers.get(call.peer)
        if found is None:
            raise UnknownPeerError(call.peer)
        if found.hang_up is None:
            raise InvalidValueError(f"peer {call.peer}", "has no connection of its own; detach the service instead")
        log.info("peer disconnected by administrator", peer=found.id, name=found.name, by=str(peer.principal))
        found.hang_up("disconnected by an administrator")
        return Done()

    def _park(self, peer: Peer, call: Park) -> Done:
        park(self, call.batch, call.row, call.receiver, call.reason)
        return Done()

    def _audit(self, peer: Peer, call: intents.Audit) -> Done:
        self.audit(call.record)
        return Done()

    def _subscribe(self, peer: Peer, call: intents.Subscribe) -> Done:
        self.security.check(peer.principal, "Consume", self._meant(call.pattern))
        kinds = intents.SUBSCRIPTION_KINDS if call.kind == "all" else (call.kind,)
        self._check_room(peer, sum((kind, fold(call.pattern)) not in peer.subscriptions for kind in kinds))
        for kind in kinds:
            if kind == "publish":
                peer.note_subscribed(call.pattern)
            self.routing.subscribe(peer, kind, call.pattern, call.priority)
        self.note_subscriptions()
        return Done()

    def _check_room(self, peer: Peer, more: int) -> None:
        """Check that the peer may have so many subscriptions more. Raises LimitError."""
        limit = self.settings.max_peer_subscriptions
        if more and len(peer.subscriptions) + more > limit:
            raise LimitError("subscriptions of one peer (broker.max_peer_subscriptions)", limit)

    def _meant(self, pattern: str) -> str | None:
        """Return the topic of a pattern, or None for one with wildcards, which may match any topic."""
        if has_wildcard(pattern):
            return None
        topic = self.topics.maybe_get(pattern)
        return pattern if topic is None else topic.name

    def _end_forbidden(self) -> None:
        """End subscriptions that are no longer permitted, after roles or bindings have changed."""
        self.queues.end_forbidden()
        for peer in self.peers.values():
            if peer.by_content:  # attached services: an administrator attached them
                continue
            for kind, pattern in list(peer.subscriptions):
                if not self.security.allows(peer.principal, "Consume", self._meant(pattern)):
                    self.routing.unsubscribe(peer, kind, pattern)
                    if kind == "publish":
                        peer.note_unsubscribed(pattern, forbidden=True)
                    if pattern == LOG_STREAM:
                        self.logs.unwatch(peer)
                    log.warning("subscription ended: permission revoked", peer=peer.id, pattern=pattern)
        self.note_subscriptions()

    def _unsubscribe(self, peer: Peer, call: intents.Unsubscribe) -> Done:
        kinds = intents.SUBSCRIPTION_KINDS if call.kind == "all" else (call.kind,)
        if "publish" in kinds:
            peer.note_unsubscribed(call.pattern)
        ended = [self.routing.unsubscribe(peer, kind, call.pattern) for kind in kinds]
        self.note_subscriptions()
        return Done(any(ended))

    def _watch_log(self, peer: Peer, call: intents.WatchLog) -> Done:
        self.security.check(peer.principal, "Consume", LOG_STREAM)
        self.logs.watch(peer, call.levels, call.regex)
        self.routing.subscribe(peer, "publish", LOG_STREAM, 0)
        return Done()

    def _unwatch_log(self, peer: Peer, call: intents.UnwatchLog) -> Done:
        """Remove the log filter. Succeeds also if there was none."""
        self.logs.unwatch(peer)
        self.routing.unsubscribe(peer, "publish", LOG_STREAM)
        return Done()

    def _list_peers(self, peer: Peer, call: intents.ListPeers) -> intents.Peers:
        self.meter.counts["registry.discovery"] += 1
        return intents.Peers(tuple(other.row() for other in self.peers.values()))

    def _list_subscriptions(self, peer: Peer, call: intents.ListSubscriptions) -> intents.SubscriptionList:
        if call.peer is not None and call.peer not in self.peers:
            raise UnknownPeerError(call.peer)
        owner = peer if call.peer is None else self.peers[call.peer]
        rows = [
            intents.SubscriptionRow(kind, pattern, priority)
            for (kind, pattern), priority in owner.subscriptions.items()
        ]
        return intents.SubscriptionList(tuple(sorted(rows, key=lambda row: (row.pattern, row.kind))))

    def _read_metrics(self, peer: Peer, call: intents.ReadMetrics) -> intents.Metrics:
        now, wanted = self.clock_us(), call.parameters
        rows = self.meter.rows(self.peers.values(), now)
        if wanted is not None:
            rows = [row for row in rows if row.parameters and wanted.items() <= row.parameters.items()]
        return intents.Metrics(now, tuple(rows))
