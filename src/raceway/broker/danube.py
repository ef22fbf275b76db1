"""What Danube asks of the bus, call by call: topics, producers, consumers.

Each call takes and gives canonical names, changes what it has to at once, and raises a RacewayError if it cannot.
Whoever promises that a change lasts answers after the commit (`Bus.after_commit`).
"""

from __future__ import annotations

from raceway.broker.bus import Bus
from raceway.broker.consumers import Sink
from raceway.broker.letters import Letters
from raceway.broker.places import Place
from raceway.broker.producers import Producers
from raceway.broker.schemas import Schemas
from raceway.broker.subscription_table import Stream, SubscriptionTable
from raceway.broker.topic_records import TopicRecords
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
        """How consumers reach this broker; dead letters say it."""
        self._letters.broker_address = address

    def look_up(self, topic: str) -> bool:
        """Is there such a topic, or partitions under this name?"""
        return bool(self._records.partitions(topic))

    def partitions(self, topic: str) -> list[str]:
        """Names of the partitions by number, of the topic itself if it has none; empty if there is no such topic."""
        return [each.name for each in self._records.partitions(topic)]

    def create_producer(self, wanted: ProducerWanted, maker: str = "") -> ProducerRow:
        """Make, or find, a producer and with it the topic. Nothing is made if anything is against it."""
        self._bus.check_open()
        topic = self._records.check(wanted.topic, wanted.reliable)
        if topic is None and not self._bus.settings.subscriptions.auto_create:
            raise UnknownTopicError(wanted.topic)
        self._producers.check(topic, wanted)
        if wanted.subject is not None:
            self._schemas.check_reference(topic, wanted.subject, version=wanted.version, min_version=wanted.min_version)
        if topic is None or not self._producers.has(topic, wanted.name):
            self._bus.journal.check_writable()  # state alone would be taken, and wait until a full disk has space
        topic = self._records.settle(wanted.topic, wanted.reliable, maker=maker)
        if wanted.subject is not None:
            self._schemas.bind(topic, wanted.subject)
        return self._producers.create(topic, wanted)

    def is_producer(self, producer_id: int) -> bool:
        """Also a sign of life."""
        return self._producers.hear(producer_id)

    def subscribe(self, wanted: ConsumerWanted, place: Place | None = None) -> ConsumerRow:
        """Attach a consumer to a subscription, made if it is new: at `place`, where `wanted.start` is, if known."""
        self._bus.check_open()
        if wanted.create_topic and self._records.maybe_topic(wanted.topic) is None:
            self.create_topic(wanted.topic)
        return self._subscriptions.subscribe(wanted, place)

    def create_topic(self, name: str) -> None:
        """A reliable one, for whoever subscribes before anybody publishes. Raises UnknownTopicError where topics are
        not made by those who use them, errors of names, UnavailableError."""
        if not self._bus.settings.subscriptions.auto_create:
            raise UnknownTopicError(name)
        self._records.check(name, True)
        self._bus.journal.check_writable()
        self._records.settle(name, True)

    def create_subscription(self, wanted: ConsumerWanted, place: Place | None = None) -> bool:
        """Make a subscription that nobody consumes from yet; false if it is there. Raises as `subscribe`."""
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
        """Raises UnknownConsumerError."""
        return self._subscriptions.consumer(consumer_id)[0].topic.name

    def open_stream(self, consumer_id: int, sink: Sink) -> Stream:
        """Messages go to the sink from now on, when it is its turn. Raises UnknownConsumerError."""
        return self._subscriptions.open_stream(consumer_id, sink)

    def pause(self) -> None:
        """The bus stops: nothing more is handed out."""
        self._subscriptions.pause()
