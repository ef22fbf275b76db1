"""The topics that exist, and finding them by the names wires use.

A topic keeps the spelling of its first user, lower case if that was a wire that disregards case (MB). Other wires look
a name up exactly; a name that differs from an existing one only in case is not made.

A topic is `orders`, or `/shop/orders` in a namespace of its own: the latter no other wire can say, unless an alias is
set for it. A name may also stand for partitions, which are topics called `orders-part-0`, `orders-part-1`, ...: other
wires know the whole by the name of the base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from raceway.broker.contracts import Contract
from raceway.errors import BusyError, NameTakenError
from raceway.model.topics import canonical_name, fold, refuse_reserved

# Spellings seen on the wire, so that the usual name costs one lookup. Names come from peers, so the number is bounded.
SPELLINGS = 65_536


class Topic:
    """A topic: its canonical name, as text, as bytes, and in the form that disregards case.

    `public` is the name under which other wires know it, empty if they do not: that of the base for a partition.
    `spoken` is what a wire of plain names calls this very topic: its alias, else its name. `partitions` are those of a
    base.
    `contract` is what the topic's schema policy demands, None if nothing.
    """

    __slots__ = ("contract", "encoded", "folded", "name", "partitions", "public", "spoken")

    def __init__(self, name: str, alias: str | None = None) -> None:
        folded = fold(name)
        self.name = name
        self.encoded = name.encode()
        self.folded = name if folded == name else folded  # there may be a million: nothing is kept twice
        self.public = alias if alias is not None else "" if name.startswith("/") else name
        self.spoken = alias.encode() if alias else self.encoded
        self.partitions: tuple[Topic, ...] = ()
        self.contract: Contract | None = None


class TopicTable:
    """`may_make` is asked for each new topic, with who makes it: the address of a peer, empty for the bus itself."""

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
        """The topic that a peer's spelling names, made if it is new.

        Raises NameInvalidError, NameReservedError, NameTakenError (only without `folds_case`) or BusyError.
        """
        topic = self._by_spelling.get(sent)
        if topic is None or not (folds_case or topic.encoded == sent):
            topic = self._find_or_make(sent.decode("utf-8", "replace"), folds_case, maker)
            if len(self._by_spelling) >= SPELLINGS:
                self._by_spelling.clear()
            self._by_spelling[sent] = topic
        return topic

    def own(self, name: str) -> Topic:
        """A topic the journal already knows by its canonical name, made if it has no rows yet."""
        folded = fold(name)
        topic = self._by_fold.get(folded)
        if topic is None:
            topic = Topic(name, self._alias_of.get(folded) if self._alias_of else None)
            self._by_fold[topic.folded] = topic
        return topic

    def named(self, name: str, maker: str = "") -> Topic:
        """The topic of exactly this canonical name, whatever its namespace, made if it is new.

        Raises NameReservedError, NameTakenError or BusyError.
        """
        refuse_reserved(name)
        return self._exact_or_made(name, maker)

    def forget(self, topic: Topic) -> None:
        """It is no more; a further use makes it anew."""
        if self._by_fold.get(topic.folded) is topic:
            del self._by_fold[topic.folded]
            self._by_spelling.clear()

    def maybe_exact(self, name: str) -> Topic | None:
        topic = self._by_fold.get(fold(name))
        return topic if topic is not None and topic.name == name else None

    def maybe_known_as(self, name: str) -> Topic | None:
        """The topic that other wires know by exactly this name."""
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
            raise BusyError(f"there are {self._limit} topics already (broker.max_topics)")
        if not self._may_make(maker):
            raise BusyError("too many new topics from this address (broker.topic_rate)")
        return self.own(name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_fold.values())

    def __len__(self) -> int:
        return len(self._by_fold)
