"""Rules of the wires that readers of stored rows need: where a row keeps what has no column of its own."""

from __future__ import annotations

from raceway.model.envelope import DANUBE, ZBUS

# Wires whose requests may wait in a queue, also across a restart, and are delivered under their own ids.
QUEUEING = frozenset({ZBUS})
# The attribute with the subject by which consumers of a publish/subscribe queue choose. On other wires the subject is
# the name of the topic.
SUBJECTS = {ZBUS: "zbus.topic"}
# Wires whose rows have canonical names, but that call a topic by its public name.
PUBLICLY_NAMED = frozenset({DANUBE})
_SPELLINGS = {ZBUS: "zbus.mq"}


def spelling_key(wire: bytes) -> str:
    """Return the attribute that stores a sender's non-canonical spelling of a name."""
    return _SPELLINGS.get(wire) or f"{wire.decode()}.topic"
