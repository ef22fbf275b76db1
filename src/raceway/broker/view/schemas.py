"""The schema registry: subjects, versions, modes; and the schemas of topics."""

from __future__ import annotations

from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.model.schemas import TopicSchema


class SchemaView:
    """The reading half of `Registry`: see there."""

    def __init__(self, broker: Broker) -> None:
        self._topics, self._schemas = broker.topics, broker.schemas
        schemas = broker.schemas
        self.subjects, self.versions, self.users = schemas.subjects, schemas.versions, schemas.users
        self.get, self.latest, self.find = schemas.get, schemas.latest, schemas.find
        self.maybe_version, self.maybe_registered = schemas.known.maybe_version, schemas.known.maybe_registered
        self.registered, self.differences, self.ready = schemas.registered, schemas.differences, schemas.known.ready
        self.maybe_subject = schemas.known.names.get
        self.mode, self.own_mode = schemas.mode, schemas.own_mode
        self.access, self.own_access = schemas.access, schemas.own_access

    @property
    def default_mode(self) -> str:
        return self._schemas.default_mode

    def topic_schema(self, name: str) -> TopicSchema:
        """Return the schema and the policy of a topic."""
        return self._schemas.topic_schema(self._topics.maybe_exact(name) or Topic(name))

    def bound_topics(self) -> list[TopicSchema]:
        """Return the topics that are bound to a subject, sorted by name."""
        return [self.topic_schema(name) for name in sorted(self._schemas.bound_topics())]
