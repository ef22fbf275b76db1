"""The record of changes: who changed what of the bus, on the topic `raceway.audit`.

An entry is a publish of the bus itself, so it is kept like every message, searched in the console, and received by
subscribers of the topic. Its attributes name the principal and the action; its payload is what was asked for, as JSON.
"""

from __future__ import annotations

from typing import Any

import structlog

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.peers import Peer
from raceway.broker.publishing import Publishing
from raceway.broker.runs import RowSpan
from raceway.broker.steps import Steps
from raceway.errors import RacewayError
from raceway.model.envelope import PUBLISH, Batch, encode_attributes, encode_json
from raceway.model.intents.administration import RecordChange
from raceway.model.intents.kinds import Done

AUDIT = "raceway.audit"
# Fields that are never written down, wherever they stand in what was asked for.
SECRETS = frozenset({"token", "password", "secret"})
HIDDEN = "***"
# Larger ones, such as edited payloads, are in the journal where they went; here their size is enough.
DETAIL_BYTES = 16 * 1024
log = structlog.get_logger("raceway.broker")


class Changes:
    def __init__(self, bus: Bus, publishing: Publishing) -> None:
        self._bus, self._publishing = bus, publishing

    def calls(self) -> dict[type, IntentHandler]:
        return {RecordChange: self._record}

    def _record(self, peer: Peer, call: RecordChange) -> Steps[Done]:
        """Store an entry. The change is made already, so a journal that cannot be written is only logged."""
        topic = self._bus.topics.own(AUDIT)
        who = str(peer.principal)
        entry = Batch(1, wire=peer.wire, kind=PUBLISH, producer=who.encode(), payload=[_detail(call.asked)])
        entry.encoding = [b"application/json"]
        entry.attributes = [encode_attributes({"principal": who, **call.facts})]
        try:
            self._publishing.store_own(entry, [RowSpan(topic, topic.encoded, 0, 1)], None)
        except RacewayError as error:
            log.warning("change not recorded", principal=who, reason=str(error), **call.facts)
            return Done()
        yield self._bus.commit
        return Done()


def _detail(asked: dict[str, Any] | None) -> bytes:
    detail = encode_json(_without_secrets(asked or {}))
    return detail if len(detail) <= DETAIL_BYTES else encode_json({"bytes": len(detail)})


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN if name.lower() in SECRETS and each else _without_secrets(each) for name, each in value.items()
        }
    return [_without_secrets(each) for each in value] if isinstance(value, list) else value
