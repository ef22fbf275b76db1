"""Under which topic a document goes, and who answers it.

Attached pins are looked at first, by the rule of Seneca's own router; the pin that wins says the topic, and its
services alone answer: topics of pins may overlap, and a topic says less than the document. Without one the topic is
made of the keys that commonly name an action. A pin that has this topic is meant only if the document matches it.

Callers repeat themselves: what a pin made of certain values it makes of them again, so the last findings are kept by
the values of all keys that any pin looks at, as they came.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from raceway.codec.seneca import Call
from raceway.errors import NoRouteError
from raceway.model.patterns import INTERNAL_KEYS, KEY_ORDER, PinTable, canonical_text, is_internal, maybe_topic

# Values come from callers, so what is kept is bounded.
KEPT, KEPT_KEYS, KEPT_BYTES = 4096, 16, 256


class Named(NamedTuple):
    """`pattern` is the one that matched, `keys` are those that say where a message goes. `group` is what the
    table of pins has under the one that won, None if none did."""

    topic: bytes
    pattern: str
    keys: Collection[str]
    group: Any = None


class Names:
    def __init__(self, pins: PinTable[Any]) -> None:
        self._pins = pins
        self._changes = -1
        self._keys: tuple[str, ...] = ()
        self._kept: dict[tuple[bytes | None, ...], Named] = {}

    def of(self, sent: Call) -> Named:
        """Raises NoRouteError if nothing names a topic, and the errors of names."""
        if self._changes != self._pins.changes:
            self._forget()
        get = sent.members.get
        values = tuple([None if (value := get(key)) is None else bytes(value) for key in self._keys])
        named = self._kept.get(values)
        return self._found(sent, values) if named is None else named

    def _forget(self) -> None:
        self._changes, self._kept = self._pins.changes, {}
        self._keys = tuple(sorted({*INTERNAL_KEYS, *(key for pin, _ in self._pins for key in pin.pattern)}))

    def _found(self, sent: Call, values: tuple[bytes | None, ...]) -> Named:
        if is_internal(sent.look):
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
        topic = maybe_topic(sent.text)
        if topic is None:
            raise NoRouteError("")
        missed = self._pins.maybe_missed(topic, sent.look)
        if missed is not None:
            pin, group = missed
            return Named(topic.encode(), pin.text, pin.pattern.keys(), group)
        named = {key: text for key in KEY_ORDER if (text := sent.text(key)) is not None}
        return Named(topic.encode(), canonical_text(named), named.keys())
