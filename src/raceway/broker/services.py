"""Services that the bus itself calls: attached to topics, and kept over a restart."""

from __future__ import annotations

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.model.intents.kinds import Done
from raceway.model.intents.services import AttachService, CheckWritable, DetachService, KeepServices


class CalledServices:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def calls(self) -> dict[type, IntentHandler]:
        """Return the handlers of its intents."""
        return {
            AttachService: self._attach,
            DetachService: self._detach,
            CheckWritable: self._check_writable,
            KeepServices: self._keep,
        }

    def _attach(self, peer: Peer, call: AttachService) -> Done:
        if call.kind == "request":
            self._bus.peers[peer.id] = peer
        self._bus.routing.subscribe(peer, call.kind, call.topic, 0)
        self._changed()
        return Done()

    def _detach(self, peer: Peer, call: DetachService) -> Done:
        self._bus.peers.pop(peer.id, None)
        self._bus.routing.remove(peer)
        self._changed()
        return Done()

    def _changed(self) -> None:
        # Which of several services spells a name is up to their wire, so every cached route may be another now.
        self._bus.routing.forget_routes()
        self._bus.note_subscriptions()

    def _check_writable(self, peer: Peer, call: CheckWritable) -> Done:
        self._bus.journal.check_writable()
        return Done()

    def _keep(self, peer: Peer, call: KeepServices) -> Done:
        for key, value in call.values.items():
            if value is not None or self._bus.journal.state.get(call.section, key) is not None:
                self._bus.set_state(call.section, key, value)
        return Done()
