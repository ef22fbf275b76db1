"""The topic of a document, and its responders.

Attached pins are matched first, by the rule of Seneca's own router. The matching pin determines the topic, and only its
services answer: topics of pins may overlap, and a topic is less specific than a document. Without a matching pin the
topic is built from the keys that commonly name an action. A pin that has this topic applies only if the document
matches it.

Results are cached by the raw values of all keys that occur in any pin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from raceway.errors import NoRouteError
from raceway.wires.seneca.codec import patterns
from raceway.wires.seneca.codec.call import Call

# Values come from callers, so the cache is bounded.
KEPT, KEPT_KEYS, KEPT_BYTES = 4096, 16, 256


class Named(NamedTuple):
    """Topic and responders of a document. `pattern` is the one that matched, `keys` are the routing keys, `group` is
    the matching pin's entry in the table of pins, None without a match."""

    topic: bytes
    pattern: str
    keys: Collection[str]
    group: Any = None


class Names:
    def __init__(self, pins: patterns.PinTable[Any]) -> None:
        self._pins = pins
        self._changes = -1
        self._keys: tuple[str, ...] = ()
        self._kept: dict[tuple[bytes | None, ...], Named] = {}

    def of(self, sent: Call) -> Named:
        """Return the topic and responders of a call. Raises NoRouteError without a topic, and NameInvalidError."""
        if self._changes != self._pins.changes:
            self._changes, self._kept = self._pins.changes, {}
            keys = {key for pin, _ in self._pins for key in pin.pattern}
            self._keys = tuple(sorted(keys.union(patterns.INTERNAL_KEYS)))
        get = sent.members.get
        values = tuple([None if (value := get(key)) is None else bytes(value) for key in self._keys])
        named = self._kept.get(values)
        return self._found(sent, values) if named is None else named

    def _found(self, sent: Call, values: tuple[bytes | None, ...]) -> Named:
        if patterns.is_internal(sent.look):
            raise NoRouteError("")
        found = self._pins.maybe_find(sent.look)
        if found is None:
            return self._by_common_keys(sent)
        pin, group = found
        named = Named(pin.topic_for(sent.look).encode(), pin.text, pin.pattern.keys(), group)
        if len(values) <= KEPT_KEYS and sum([len(value or b"") for value in values]) <= KEPT_BYTES:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[values] = named
        return named

    def _by_common_keys(self, sent: Call) -> Named:
        topic = patterns.maybe_topic(sent.text)
        if topic is None:
            raise NoRouteError("")
        missed = self._pins.maybe_missed(topic, sent.look)
        if missed is not None:
            pin, group = missed
            return Named(topic.encode(), pin.text, pin.pattern.keys(), group)
        named = {key: text for key in patterns.KEY_ORDER if (text := sent.text(key)) is not None}
        return Named(topic.encode(), patterns.canonical_text(named), named.keys())
