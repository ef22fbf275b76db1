"""What wires and web may look at: read-only rows, by subject. Nothing here changes the bus.

administration  namespaces, topics, partitions, limits; subscriptions and how they deliver
topics          topics, their offsets, who reads them
peers           connected peers
subscriptions   subscriptions by name
queues          queues
schemas         the schema registry and the schemas of topics
permissions     who a caller is, and whether a principal may do something
health          status of the bus and its journal, counters
"""

from __future__ import annotations

from typing import Any

from raceway.broker.broker import Broker
from raceway.broker.view.administration import AdministrationView
from raceway.broker.view.health import HealthView
from raceway.broker.view.peers import PeerView
from raceway.broker.view.permissions import PermissionView
from raceway.broker.view.queues import QueueView
from raceway.broker.view.schemas import SchemaView
from raceway.broker.view.subscriptions import SubscriptionView
from raceway.broker.view.topics import TopicView
from raceway.journal.contract import SearchedRows


class View:
    """`rows` are the committed rows of the journal, for searches in any thread. `labels` are those of all its
    metrics, and say which part of a bus it is."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.labels: dict[str, str] = {}
        self.rows: SearchedRows = broker.journal
        self.administration = AdministrationView(broker)
        self.topics = TopicView(broker)
        self.peers = PeerView(broker.peers)
        self.subscriptions = SubscriptionView(broker.subscriptions)
        self.queues = QueueView(broker.queues)
        self.schemas = SchemaView(broker)
        self.permissions = PermissionView(broker.security)
        self.health = HealthView(broker)

    def rate(self, counter: str) -> int:
        """Return how much a counter has grown in the last full second."""
        return self._broker.meter.rate(counter)

    def unmasked(self, message_id: bytes) -> bytes:
        """Return the sender's id of a message that was delivered under a masked id; any other id as it is."""
        return self._broker.chains.unmask(message_id)[0]

    def kept(self, section: str) -> dict[str, Any]:
        """Return the values that `KeepServices` has stored in a section, by key."""
        return dict(self._broker.journal.state.section(section))

    def public_name(self, name: str) -> str:
        """Return the name by which clients know a topic: a partition has that of its base, an aliased topic its alias.

        An unknown name is returned as it is.
        """
        topic = self._broker.topics.maybe_exact(name)
        return name if topic is None else topic.public
