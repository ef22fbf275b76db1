"""The door of one lane of several, for its console: refuses what concerns other lanes, or the bus as a whole.

Without it, a topic would be made in the lane whose console was asked, where no wire looks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from raceway.broker.door import CommitCallback, Door
from raceway.broker.peers import Peer
from raceway.errors import LanesError, OtherLaneError, RacewayError
from raceway.link.splitting import name_of
from raceway.model.intents import roles, schemas, services, topics
from raceway.model.intents.administration import PeekQueue, PurgeQueue, RemoveQueue
from raceway.model.intents.batches import Intent
from raceway.model.intents.queues import CreateQueue
from raceway.model.lanes import LaneTable

# What all lanes would have to know: not shared by lanes.
OF_ALL_LANES = (
    schemas.RegisterSchema, schemas.DeleteVersion, schemas.DeleteSubject, schemas.SetMode, schemas.PrepareMode,
    schemas.SetAccess, schemas.BindTopic, schemas.UnbindTopic, topics.SetTopicSchema, topics.CreateNamespace,
    topics.DeleteNamespace, topics.SetLimits, roles.PutRole, roles.DeleteRole, roles.BindRole, roles.DeleteBinding,
    services.AttachService, services.DetachService, services.KeepServices,
)  # fmt: skip
# Intents whose `name` is that of a topic or queue.
NAMED = (CreateQueue, PeekQueue, PurgeQueue, RemoveQueue, topics.CreateTopic, topics.DeleteTopic)


class LaneDoor(Door):
    """A door to `lane`, the lane `number` of `table`. `url_of` has the URL of each lane's console."""

    def __init__(self, lane: Door, number: int, table: LaneTable, url_of: Callable[[int], str]) -> None:
        self._lane, self._number, self._table, self._url_of = lane, number, table, url_of
        self.runtime, self.view = lane.runtime, lane.view
        self.view.labels = {"lane": str(number)}
        self.connect, self.disconnect, self.count_error = lane.connect, lane.disconnect, lane.count_error

    def perform(
        self,
        peer: Peer,
        intent: Intent,
        done: Callable[[Any], None] | None = None,
        committed: CommitCallback | None = None,
    ) -> None:
        """See `Door.perform`. The outcome is LanesError or OtherLaneError for what this lane cannot do."""
        refusal = self._maybe_refusal(intent)
        if refusal is None:
            self._lane.perform(peer, intent, done, committed)  # type: ignore[arg-type]  # as it was given
        elif done is not None:
            done(refusal)

    def _maybe_refusal(self, intent: Intent) -> RacewayError | None:
        if isinstance(intent, OF_ALL_LANES):
            return LanesError(name_of(intent))
        if isinstance(intent, topics.CreateTopic) and intent.partitions is not None:
            return LanesError("topics with partitions")
        for name in _names(intent):
            lane = self._table.lane_of(name)
            if lane != self._number:
                return OtherLaneError(name.decode("utf-8", "replace"), lane, self._url_of(lane))
        return None


def _names(intent: Intent) -> Iterator[bytes]:
    """Yield the topics of an intent, as they were given."""
    batch, name = getattr(intent, "batch", None), getattr(intent, "topic", None)
    if batch is not None:
        yield from (batch.topic if type(batch.topic) is list else (batch.topic,))
    if isinstance(intent, NAMED):
        name = intent.name
    if isinstance(name, str):
        yield name.encode("utf-8", "replace")
