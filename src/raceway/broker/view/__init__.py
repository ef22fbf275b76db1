"""What wires and web may look at: read-only rows, by subject. Nothing here changes the bus.

administration  namespaces, topics, partitions, limits; subscriptions and how they deliver
permissions     who a caller is, and whether a principal may do something
schemas         the schema registry and the schemas of topics
"""

from __future__ import annotations

from raceway.broker.broker import Broker
from raceway.broker.view.administration import AdministrationView
from raceway.broker.view.permissions import PermissionView
from raceway.broker.view.schemas import SchemaView


class View:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.administration = AdministrationView(broker)
        self.permissions = PermissionView(broker.security)
        self.schemas = SchemaView(broker)

    def unmasked(self, message_id: bytes) -> bytes:
        """Return the sender's id of a message that was delivered under a masked id; any other id as it is."""
        return self._broker.chains.unmask(message_id)[0]

    def public_name(self, name: str) -> str:
        """Return the name by which clients know a topic: a partition has that of its base, an aliased topic its alias.

        An unknown name is returned as it is.
        """
        topic = self._broker.topics.maybe_exact(name)
        return name if topic is None else topic.public
