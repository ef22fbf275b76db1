"""The topics that exist, and finding them by the names wires use.

A topic keeps the spelling of its first user, lower case if that was a wire that disregards case (MB). Other wires look
a name up exactly; a name that differs from an existing one only in case is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raceway.errors import BusyError, NameTakenError
from raceway.model.topics import canonical_name, fold, refuse_reserved

# Spellings seen on the wire, so that the usual name costs one lookup. Names come from peers, so the number is bounded.
SPELLINGS = 65_536


class Topic:
    """A topic: its canonical name, as text, as bytes, and in the form that disregards case."""

    __slots__ = ("encoded", "folded", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.encoded = name.encode()
        self.folded = fold(name)


class TopicTable:
    def __init__(self, names: Iterable[str], limit: int) -> None:
        self._limit = limit
        self._by_fold: dict[str, Topic] = {}
        self._by_spelling: dict[bytes, Topic] = {}
        for name in names:
            topic = Topic(name)
            self._by_fold[topic.folded] = topic

    def spelled(self, sent: bytes, folds_case: bool) -> Topic:
        """The topic that a peer's spelling names, made if it is new.

        Raises NameInvalidError, NameReservedError, NameTakenError (only without `folds_case`) or BusyError.
        """
        topic = self._by_spelling.get(sent)
        if topic is None or not (folds_case or topic.encoded == sent):
            topic = self._find_or_make(sent.decode("utf-8", "replace"), folds_case)
            if len(self._by_spelling) >= SPELLINGS:
                self._by_spelling.clear()
            self._by_spelling[sent] = topic
        return topic

    def own(self, name: str) -> Topic:
        """A topic the journal already knows by its canonical name, made if it has no rows yet."""
        topic = self._by_fold.get(fold(name))
        if topic is None:
            topic = self._by_fold[fold(name)] = Topic(name)
        return topic

    def maybe_exact(self, name: str) -> Topic | None:
        topic = self._by_fold.get(fold(name))
        return topic if topic is not None and topic.name == name else None

    def maybe_get(self, name: str) -> Topic | None:
        return self._by_fold.get(fold(name))

    def _find_or_make(self, text: str, folds_case: bool) -> Topic:
        name = canonical_name(text)
        refuse_reserved(name)
        topic = self._by_fold.get(fold(name))
        if topic is None:
            if len(self._by_fold) >= self._limit:
                raise BusyError(f"there are {self._limit} topics already (broker.max_topics)")
            topic = Topic(name.lower() if folds_case else name)
            self._by_fold[topic.folded] = topic
        elif not folds_case and topic.name != name:
            raise NameTakenError(name, topic.name)
        return topic

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_fold.values())

    def __len__(self) -> int:
        return len(self._by_fold)
