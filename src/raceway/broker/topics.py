"""The table of topics, and their lookup by the names that wires use.

A topic keeps the spelling of its first user, in lower case if that was a wire that ignores case. Other wires look
names up exactly; a name that differs from an existing one only in case is refused.

A topic is `orders`, or `/shop/orders` in a namespace. The latter cannot be expressed on other wires, unless it has an
alias. A name may also be the base of partitions, topics called `orders-part-0`, `orders-part-1`, ...: other wires use
the name of the base for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from raceway.broker.registry.contracts import Contract
from raceway.errors import BusyError, NameTakenError
from raceway.model.topics import canonical_name, fold, refuse_reserved

# Cached spellings, so that a common name costs one lookup. Names come from peers, so the cache is bounded.
SPELLINGS = 65_536


class Topic:
    """A topic: its canonical name as text, as bytes, and case-folded.

    `public` is its name on other wires, empty if they cannot express it; for a partition that of the base. `spoken` is
    the name of exactly this topic on a wire of plain names: its alias or its name. `partitions` are those of a base.
    `contract` is the check required by the topic's schema policy, if any.
    """

    __slots__ = ("contract", "encoded", "folded", "name", "partitions", "public", "spoken")

    def __init__(self, name: str, alias: str | None = None) -> None:
        folded = fold(name)
        self.name = name
        self.encoded = name.encode()
        self.folded = name if folded == name else folded  # one object if equal: there may be a million topics
        self.public = alias if alias is not None else "" if name.startswith("/") else name
        self.spoken = alias.encode() if alias else self.encoded
        self.partitions: tuple[Topic, ...] = ()
        self.contract: Contract | None = None


class TopicTable:
    """All topics. `may_make` is called for each new one with the address of its creator, empty for the bus itself."""

    def __init__(
        self,
        names: Iterable[str],
        limit: int,
        aliases: Mapping[str, str] | None = None,
        may_make: Callable[[str], bool] = lambda maker: True,
    ) -> None:
        self._limit = limit
        self._may_make = may_make
        self._by_fold: dict[str, Topic] = {}
        self._by_spelling: dict[bytes, Topic] = {}
        self._aliases = {fold(alias): name for alias, name in (aliases or {}).items()}
        self._alias_of = {fold(name): alias for alias, name in (aliases or {}).items()}
        for name in names:
            self.own(name)

    def spelled(self, sent: bytes, folds_case: bool, maker: str = "") -> Topic:
        """Return the topic of a peer's spelling, created if it is new.

        Raises NameInvalidError, NameReservedError, NameTakenError (only without `folds_case`) or BusyError.
        """
        topic = self._by_spelling.get(sent)
        if topic is None or not (folds_case or topic.encoded == sent):
            topic = self._find_or_make(sent.decode("utf-8", "replace"), folds_case, maker)
            if len(self._by_spelling) >= SPELLINGS:
                self._by_spelling.clear()
            self._by_spelling[sent] = topic
        return topic

    def maybe_spelled(self, sent: bytes) -> Topic | None:
        """Return the topic whose own name this is, if it was looked up before."""
        topic = self._by_spelling.get(sent)
        return topic if topic is not None and topic.encoded == sent else None

    def own(self, name: str) -> Topic:
        """Return the topic of a canonical name that is the bus's own or in the journal, added without checks."""
        folded = fold(name)
        topic = self._by_fold.get(folded)
        if topic is None:
            topic = Topic(name, self._alias_of.get(folded) if self._alias_of else None)
            self._by_fold[topic.folded] = topic
        return topic

    def named(self, name: str, maker: str = "") -> Topic:
        """Return the topic of exactly this canonical name, in any namespace, created if it is new.

        Raises NameReservedError, NameTakenError or BusyError.
        """
        refuse_reserved(name)
        return self._exact_or_made(name, maker)

    def forget(self, topic: Topic) -> None:
        """Remove a topic. A further use creates it again."""
        if self._by_fold.get(topic.folded) is topic:
            del self._by_fold[topic.folded]
            self._by_spelling.clear()

    def maybe_exact(self, name: str) -> Topic | None:
        topic = self._by_fold.get(fold(name))
        return topic if topic is not None and topic.name == name else None

    def maybe_known_as(self, name: str) -> Topic | None:
        """Return the topic that has exactly this name or alias on other wires."""
        return self.maybe_exact(self._aliases.get(fold(name), name))

    def maybe_get(self, name: str) -> Topic | None:
        return self._by_fold.get(fold(name))

    def _find_or_make(self, text: str, folds_case: bool, maker: str) -> Topic:
        name = canonical_name(text)
        refuse_reserved(name)
        name = self._aliases.get(fold(name), name)
        if folds_case:
            return self.maybe_get(name) or self._made(name.lower(), maker)
        return self._exact_or_made(name, maker)

    def _exact_or_made(self, name: str, maker: str) -> Topic:
        topic = self._by_fold.get(fold(name))
        if topic is not None and topic.name != name:
            raise NameTakenError(name, topic.name)
        return topic or self._made(name, maker)

    def _made(self, name: str, maker: str) -> Topic:
        if len(self._by_fold) >= self._limit:
            raise BusyError(f"the limit of {self._limit} topics is reached (broker.max_topics)")
        if not self._may_make(maker):
            raise BusyError("too many new topics from this address (broker.topic_rate)")
        return self.own(name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_fold.values())

    def __len__(self) -> int:
        return len(self._by_fold)
