"""Stored properties of topics and namespaces: dispatch strategy, partitions, limits, deletion.

A topic created on another wire has no record. Its dispatch strategy is open: the first registered producer sets it.

Partitions are topics called `<base>-part-<number>`, created by a producer or an administrator. A name is either
a topic or the base of partitions, never both. An administrator fixes their number; producers create one after the
other.

The rows of a deleted topic stay in the journal, so its record has the offset at which it ended: the topic does not
exist until a row after that offset, or its creation, brings it back.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from raceway import errors
from raceway.broker.bus import Bus
from raceway.broker.topics import Topic
from raceway.model.subscriptions import Policies
from raceway.model.topics import DEFAULT_NAMESPACE, namespace_of, parse_namespace, refuse_reserved

TOPICS, NAMESPACES = "topics", "namespaces"
SYSTEM_NAMESPACE = "system"
MAX_PARTITIONS = 10_000

_partition_name = re.compile(r"(.+)-part-(0|[1-9][0-9]{0,8})", re.ASCII | re.DOTALL).fullmatch
NO_POLICIES = Policies()


class TopicRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stored topic. `base`: set on partitions; `fixed`: their number if it is fixed; `deleted`: end offset."""

    reliable: bool | None = None
    base: str = ""
    fixed: int = 0
    policies: Policies = NO_POLICIES
    deleted: int | None = None
    made_ms: int = 0


class NamespaceRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    policies: Policies = NO_POLICIES
    made_ms: int = 0


NO_RECORD = TopicRecord()


def partition_of(name: str) -> tuple[str, int] | None:
    """Return the base and number of a partition's name; None for any other name."""
    match = _partition_name(name)
    return None if match is None else (match[1], int(match[2]))


class TopicRecords:
    def __init__(self, bus: Bus) -> None:
        self._bus, limits = bus, bus.settings.subscriptions.limits
        self._widest = Policies(**{name: getattr(limits, name) for name in Policies.__struct_fields__})
        self._records: dict[str, TopicRecord] = {}
        self._namespaces = {DEFAULT_NAMESPACE: NamespaceRecord(), SYSTEM_NAMESPACE: NamespaceRecord()}
        self._partitions: dict[str, dict[int, Topic]] = {}
        self._policies: dict[str, Policies] = {}
        # Whether any publish limit exists. Usually none does, and publishes skip the check.
        self.is_limited = False
        state = bus.journal.state
        for name, value in state.section(NAMESPACES).items():
            self._namespaces[name] = msgspec.convert(value, NamespaceRecord)
        for name, value in state.section(TOPICS).items():
            self._restore(name, msgspec.convert(value, TopicRecord))
        self._note_limits()

    def _restore(self, name: str, record: TopicRecord) -> None:
        if record.deleted is None:
            topic = self._bus.topics.own(name)
            self._records[name] = record
            if record.base:
                self._join_partition(topic, record.base)
        elif record.deleted == self._bus.journal.offsets(name)[1]:
            self._bus.topics.forget(self._bus.topics.own(name))

    # ---- topics ------------------------------------------------------------------------------------------------------

    def maybe_topic(self, name: str) -> Topic | None:
        """Return the topic of exactly this name, unless it is the base of partitions."""
        topic = self._bus.topics.maybe_exact(name)
        return None if topic is None or topic.partitions else topic

    def topic(self, name: str) -> Topic:
        """Return the topic of exactly this name. Raises UnknownTopicError, also for the base of partitions."""
        topic = self.maybe_topic(name)
        if topic is None:
            raise errors.UnknownTopicError(name)
        return topic

    def parts(self, name: str) -> tuple[Topic, ...]:
        """Return the partitions by number, or the topic itself if it has none. Raises UnknownTopicError."""
        topics = self.partitions(name)
        if not topics:
            raise errors.UnknownTopicError(name)
        return topics

    def reliable(self, topic: Topic) -> bool | None:
        """Return the dispatch strategy; None if it is not set yet."""
        return self._records.get(topic.name, NO_RECORD).reliable

    def check(self, name: str, reliable: bool) -> Topic | None:
        """Check that the topic may be created or used with this strategy. Return it if it exists.

        Raises NameReservedError, UnknownNamespaceError, TopicKindError, MismatchError.
        """
        refuse_reserved(name)
        namespace = namespace_of(name)
        if namespace not in self._namespaces:
            raise errors.UnknownNamespaceError(namespace)
        known = self._bus.topics.maybe_exact(name)
        if known is not None and known.partitions:
            raise errors.TopicKindError(name, known.partitions[0].name)
        self._check_partition(name)
        settled = None if known is None else self.reliable(known)
        if settled is not None and settled != reliable:
            raise errors.MismatchError(f"the dispatch strategy of {name!r}", _strategy(settled), _strategy(reliable))
        return known

    def _check_partition(self, name: str) -> None:
        found = partition_of(name)
        if found is None:
            return
        base, number = found
        plain = self.maybe_topic(base)
        if plain is not None:
            raise errors.TopicKindError(name, base)
        if number >= MAX_PARTITIONS:
            raise errors.InvalidValueError(name, f"a topic can have at most {MAX_PARTITIONS} partitions")
        siblings = self._partitions.get(base)
        if siblings and number not in siblings:
            fixed = self._records[next(iter(siblings.values())).name].fixed
            if fixed:
                raise errors.MismatchError(f"the number of partitions of {base!r}", str(fixed), f"more than {number}")

    def settle(self, name: str, reliable: bool, fixed: int = 0, maker: str = "") -> Topic:
        """Return the topic with this strategy, created if it is new, after `check`. Raises errors of names."""
        topics, found = self._bus.topics, partition_of(name)
        record = self._records.get(name, NO_RECORD)
        if record.reliable is not None:
            return topics.own(name)
        base = "" if found is None else found[0]
        # The base's name must be free too, in every spelling.
        young = [each for each in (base, name) if each and topics.maybe_exact(each) is None]
        made = [topics.named(each, maker) for each in young]
        made_ms = record.made_ms or self._bus.clock_us() // 1000
        try:
            self._keep(name, msgspec.structs.replace(
                record, reliable=reliable, base=base, fixed=fixed, made_ms=made_ms, deleted=None
            ))  # fmt: skip
        except errors.UnavailableError:
            for topic in made:
                topics.forget(topic)
            raise
        if base:
            self._join_partition(topics.own(name), base)
        return topics.own(name)

    def create_reliable(self, name: str, maker: str = "") -> Topic:
        """Create a reliable topic for a consumer that comes before any producer.

        `maker` is the network of the client. Raises UnknownTopicError without `auto_create`, UnavailableError,
        BusyError, errors of names.
        """
        if not self._bus.settings.subscriptions.auto_create:
            raise errors.UnknownTopicError(name)
        self.check(name, True)
        self._bus.journal.check_writable()
        return self.settle(name, True, maker=maker)

    def partitions(self, name: str) -> tuple[Topic, ...]:
        """Return the partitions by number; the topic itself if it has none; empty if it is unknown."""
        topic = self._bus.topics.maybe_exact(name)
        return () if topic is None else topic.partitions or (topic,)

    def delete(self, topic: Topic) -> None:
        """Delete a topic. Its rows stay in the journal."""
        record = self._records.pop(topic.name, NO_RECORD)
        self._policies.pop(topic.name, None)
        end = self._bus.journal.offsets(topic.name)[1]
        kept = msgspec.to_builtins(TopicRecord(deleted=end)) if end else None
        self._bus.set_state(TOPICS, topic.name, kept)
        self._bus.topics.forget(topic)
        self._bus.routing.renamed(topic)
        if record.base:
            self._leave_base(topic, record.base)

    def _join_partition(self, topic: Topic, base: str) -> None:
        numbers = self._partitions.setdefault(base, {})
        found = partition_of(topic.name)
        assert found is not None
        numbers[found[1]] = topic
        whole = self._bus.topics.own(base)
        whole.partitions = tuple(numbers[number] for number in sorted(numbers))
        topic.public = whole.public
        self._bus.routing.renamed(topic)

    def _leave_base(self, topic: Topic, base: str) -> None:
        numbers = {number: each for number, each in self._partitions.pop(base).items() if each is not topic}
        whole = self._bus.topics.own(base)
        whole.partitions = tuple(numbers[number] for number in sorted(numbers))
        if numbers:
            self._partitions[base] = numbers
        else:
            self._bus.topics.forget(whole)

    def _keep(self, name: str, record: TopicRecord) -> None:
        self._bus.set_state(TOPICS, name, msgspec.to_builtins(record))
        self._records[name] = record

    # ---- namespaces and limits ---------------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        return sorted(self._namespaces)

    def create_namespace(self, name: str) -> None:
        """Create a namespace. Raises TopicKindError if it exists, NameInvalidError, NameReservedError."""
        name = parse_namespace(name)
        if name in self._namespaces:
            raise errors.TopicKindError(name, name)
        refuse_reserved(f"/{name}/")
        self._keep_namespace(name, NamespaceRecord(made_ms=self._bus.clock_us() // 1000))

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace. Raises UnknownNamespaceError, or InUseError unless it is empty."""
        self._find_namespace(name)
        if name in (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE):
            raise errors.InUseError(f"namespace {name!r}", "the broker itself")
        if any(namespace_of(topic.name) == name and not topic.partitions for topic in self._bus.topics):
            raise errors.InUseError(f"namespace {name!r}", "it has topics")
        self._bus.set_state(NAMESPACES, name, None)
        del self._namespaces[name]
        self._note_limits()

    def namespace_policies(self, name: str) -> Policies:
        """Return the effective policies of a namespace. Raises UnknownNamespaceError."""
        return self._find_namespace(name).policies.within(self._widest)

    def policies(self, topic: Topic) -> Policies:
        """Return the effective policies of a topic."""
        found = self._policies.get(topic.name)
        if found is None:
            own = self._records.get(topic.name, NO_RECORD).policies
            namespace = self._namespaces.get(namespace_of(topic.name), NamespaceRecord())
            found = self._policies[topic.name] = own.within(namespace.policies.within(self._widest))
        return found

    def topic_policies(self, name: str) -> Policies:
        """Return the effective policies of a topic. Raises UnknownTopicError."""
        return self.policies(self.topic(name))

    def set_policies(self, scope: Literal["namespace", "topic"], name: str, policies: Policies) -> None:
        """Set the policies of a namespace, or of a topic and its partitions.

        Raises UnknownNamespaceError, UnknownTopicError, InvalidValueError.
        """
        topics = self.parts(name) if scope == "topic" else ()
        policies.check()
        if scope == "namespace":
            self._keep_namespace(name, msgspec.structs.replace(self._find_namespace(name), policies=policies))
        for topic in topics:
            self._keep(topic.name, msgspec.structs.replace(self._records.get(topic.name, NO_RECORD), policies=policies))
        self._note_limits()

    def _find_namespace(self, name: str) -> NamespaceRecord:
        record = self._namespaces.get(name)
        if record is None:
            raise errors.UnknownNamespaceError(name)
        return record

    def _keep_namespace(self, name: str, record: NamespaceRecord) -> None:
        self._bus.set_state(NAMESPACES, name, msgspec.to_builtins(record))
        self._namespaces[name] = record

    def _note_limits(self) -> None:
        self._policies.clear()
        narrower = [record.policies for record in self._namespaces.values()]
        narrower += [record.policies for record in self._records.values()]
        self.is_limited = any(
            policies.max_publish_rate or policies.max_message_size for policies in (self._widest, *narrower)
        )


def _strategy(reliable: bool) -> str:
    return "reliable" if reliable else "non-reliable"
