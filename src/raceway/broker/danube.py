"""Operations of the Danube wire on topics, producers and consumers.

Each takes and returns canonical names, takes effect immediately, and raises a RacewayError if it cannot. Callers that
promise durability answer after the commit (`Bus.after_commit`).
"""

from __future__ import annotations

from raceway.broker.bus import Bus
from raceway.broker.places import Place
from raceway.broker.producers import Producers
from raceway.broker.registry.schemas import Schemas
from raceway.broker.subscriptions.consumers import Sink
from raceway.broker.subscriptions.table import Stream, SubscriptionTable
from raceway.broker.topic_records import TopicRecords
from raceway.broker.undelivered.dead_letters import Letters
from raceway.errors import RacewayError, UnknownTopicError
from raceway.model.subscriptions import ConsumerRow, ConsumerWanted, ProducerRow, ProducerWanted


class Danube:
    def __init__(
        self,
        bus: Bus,
        records: TopicRecords,
        schemas: Schemas,
        producers: Producers,
        subscriptions: SubscriptionTable,
        letters: Letters,
    ) -> None:
        self._bus, self._records, self._schemas, self._letters = bus, records, schemas, letters
        self._producers, self._subscriptions = producers, subscriptions

    def advertise(self, address: str) -> None:
        """Set the broker's address, which dead letters contain."""
        self._letters.broker_address = address

    def look_up(self, topic: str) -> bool:
        """Return whether the topic exists, itself or as partitions."""
        return bool(self._records.partitions(topic))

    def partitions(self, topic: str) -> list[str]:
        """Return the names of the partitions by number; of the topic itself if it has none; empty if it is unknown."""
        return [each.name for each in self._records.partitions(topic)]

    def create_producer(self, wanted: ProducerWanted, maker: str = "") -> ProducerRow:
        """Create or find a producer, and its topic if needed. Creates nothing if any check fails."""
        self._bus.check_open()
        topic = self._records.check(wanted.topic, wanted.reliable)
        if topic is None and not self._bus.settings.subscriptions.auto_create:
            raise UnknownTopicError(wanted.topic)
        self._producers.check(topic, wanted)
        if wanted.subject is not None:
            self._schemas.check_reference(topic, wanted.subject, version=wanted.version, min_version=wanted.min_version)
        if topic is None or not self._producers.has(topic, wanted.name):
            self._bus.journal.check_writable()  # on a full disk the state would wait for space
        topic = self._records.settle(wanted.topic, wanted.reliable, maker=maker)
        if wanted.subject is not None:
            self._schemas.bind(topic, wanted.subject)
        return self._producers.create(topic, wanted)

    def is_producer(self, producer_id: int) -> bool:
        """Return whether the producer exists, and reset its idle timer."""
        return self._producers.hear(producer_id)

    def subscribe(self, wanted: ConsumerWanted, place: Place | None = None) -> ConsumerRow:
        """Attach a consumer to a subscription, created if it is new: at `place`, the position of `wanted.start`."""
        self._bus.check_open()
        if wanted.create_topic and self._records.maybe_topic(wanted.topic) is None:
            self.create_topic(wanted.topic)
        return self._subscriptions.subscribe(wanted, place)

    def create_topic(self, name: str) -> None:
        """Create a reliable topic for a consumer that comes before any producer. Raises UnknownTopicError without
        `auto_create`, NameInvalidError and others for the name, UnavailableError."""
        if not self._bus.settings.subscriptions.auto_create:
            raise UnknownTopicError(name)
        self._records.check(name, True)
        self._bus.journal.check_writable()
        self._records.settle(name, True)

    def create_subscription(self, wanted: ConsumerWanted, place: Place | None = None) -> bool:
        """Create a subscription without consumers. Return False if it exists. Raises as `subscribe`."""
        self._bus.check_open()
        if wanted.create_topic and self._records.maybe_topic(wanted.topic) is None:
            self.create_topic(wanted.topic)
        return self._subscriptions.make(wanted, place)

    def is_consumer(self, consumer_id: int) -> bool:
        try:
            self._subscriptions.consumer(consumer_id)
        except RacewayError:
            return False
        return True

    def consumer_topic(self, consumer_id: int) -> str:
        """Return the topic of a consumer. Raises UnknownConsumerError."""
        return self._subscriptions.consumer(consumer_id)[0].topic.name

    def open_stream(self, consumer_id: int, sink: Sink) -> Stream:
        """Deliver the consumer's messages to this sink from now on. Raises UnknownConsumerError."""
        return self._subscriptions.open_stream(consumer_id, sink)

    def pause(self) -> None:
        """Stop delivering, for the shutdown."""
        self._subscriptions.pause()
