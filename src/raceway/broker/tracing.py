"""Masked ids of deliveries, and the chains of messages that form a trace.

The broker never passes a client's id on to another client: delivered messages have a *masked* id. A service that sends
messages while it handles one names the masked id as their parent. Unmasking returns the real parent, and with it the
root of the whole chain, the correlation id.

Masked ids are UUIDs of version 4. Those of requests are completely random. Those of publishes share 24 random
characters per batch, and their last twelve digits are the row: one table entry covers a whole batch, and creating an id
is one concatenation. Publishes are not answered, so guessing such an id gains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from raceway.broker.remembered import Remembered
from raceway.model.envelope import Batch, Hop, encode_json
from raceway.net.ids import random_id

# Rows whose masked ids are remembered. Enough for minutes of chained calls; about 20 MB when full.
KEPT_ROWS = 100_000
PREFIX_LENGTH = 24

# Bytes that stand for themselves in JSON.
_PLAIN = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# An id, and the member that it is in a hop. No other text in the hop has such quotes: JSON escapes them.
_SOME_ID, _SOME_MEMBER = b"id", b'"mid":"id"'

_suffixes = [b"%012x" % row for row in range(4096)]


def mint_batch(count: int) -> list[bytes]:
    """Return ids for a batch of publishes: a common random prefix, and the row."""
    while len(_suffixes) < count:
        _suffixes.append(b"%012x" % len(_suffixes))
    prefix = random_id()[:PREFIX_LENGTH]
    if count == 1:
        return [prefix + _suffixes[0]]
    return [prefix + suffix for suffix in _suffixes[:count]]


def answer_hop(requester: str, responder: str, message_id: bytes, times_us: tuple[int, ...]) -> bytes:
    """Encode the hop of an answered request: accepted, forwarded, answered, by the broker's clock."""
    hop = Hop(sid=requester, rid=responder, mid=message_id.decode(), tms=tuple([time // 1000 for time in times_us]))
    return encode_json((hop,))


def answer_hops(legs: list[tuple[str, int, int]], responder: str, message_ids: list[bytes], now_us: int) -> list[bytes]:
    """Encode the hops of answers that came together. A leg: requester, and when its request was accepted, forwarded."""

    def encoded(leg: tuple[str, int, int], message_id: bytes) -> bytes:
        sid, accepted_us, handed_us = leg
        return answer_hop(sid, responder, message_id, (accepted_us, handed_us, max(now_us, handed_us)))

    if len(legs) == 1 or b"".join(message_ids).translate(None, _PLAIN):
        return list(map(encoded, legs, message_ids))
    # Requests that came together differ in little but their ids: what is around those is encoded once.
    around = {leg: encoded(leg, _SOME_ID).split(_SOME_MEMBER) for leg in dict.fromkeys(legs)}
    return [
        b'%b"mid":"%b"%b' % (before, message_id, after)
        for leg, message_id in zip(legs, message_ids, strict=True)
        for before, after in (around[leg],)
    ]


class Chains:
    """Maps a parent id, masked or not, to (real parent, root of the chain)."""

    def __init__(self, kept_rows: int = KEPT_ROWS) -> None:
        self._single: Remembered[bytes, tuple[bytes, bytes]] = Remembered(kept_rows)
        self._batches: Remembered[bytes, tuple[list[bytes | None], list[bytes | None] | None]] = Remembered(kept_rows)

    def remember(self, masked_id: bytes, message_id: bytes, correlation_id: bytes) -> None:
        """Remember a message that is forwarded under a masked id."""
        self._single.put(masked_id, (message_id, correlation_id))

    def remember_all(self, messages: Mapping[bytes, tuple[bytes, bytes]]) -> None:
        """Remember messages by their masked ids: the id and the root of each."""
        self._single.put_all(messages)

    def remember_batch(
        self, masked_ids: list[bytes], message_ids: list[bytes | None], correlation_ids: list[bytes | None] | None
    ) -> None:
        """Remember publishes whose masked ids came from one `mint_batch`."""
        self._batches.put(masked_ids[0][:PREFIX_LENGTH], (message_ids, correlation_ids), len(message_ids))

    def unmask_parents(self, batch: Batch) -> None:
        """Replace the parents of a batch by the real ones, and set the roots of their chains. A root named by the
        sender is kept.

        A sender may also name its own id as parent, even one of the same batch: those are remembered here.
        """
        if batch.parent_id is None:
            if batch.correlation_id is not None:
                self._remember_roots(batch)
            return
        parents: list[bytes | None] = []
        roots: list[bytes | None] = []
        for row in range(batch.count):
            named = batch.item("parent_id", row)
            parent, root = (None, None) if named is None else self.unmask(named)
            root = batch.item("correlation_id", row) or root  # a root named by the sender wins
            parents.append(parent)
            roots.append(root)
            message_id = batch.item("message_id", row)
            if root is not None and message_id is not None:
                self._single.put(message_id.lower(), (message_id, root))
        batch.parent_id, batch.correlation_id = parents, roots

    def _remember_roots(self, batch: Batch) -> None:
        """Remember roots named by senders. Some wires deliver a message under its own id, and messages that name it as
        parent belong to the same chain."""
        for message_id, root in zip(batch.column("message_id"), batch.column("correlation_id"), strict=True):
            if message_id is not None and root is not None:
                self._single.put(message_id.lower(), (message_id, root))

    def unmask(self, parent_id: bytes) -> tuple[bytes, bytes]:
        """Return (real parent, root). An unknown id, for example from before a restart, is its own parent and root."""
        key = parent_id.lower()
        known = self._single.get(key) or self._maybe_in_batch(key)
        return known if known is not None else (parent_id, parent_id)

    def _maybe_in_batch(self, key: bytes) -> tuple[bytes, bytes] | None:
        batch = self._batches.get(key[:PREFIX_LENGTH])
        if batch is None:
            return None
        message_ids, correlation_ids = batch
        try:
            row = int(key[PREFIX_LENGTH:], 16)
        except ValueError:  # some wires accept any text as id
            return None
        message_id = message_ids[row] if 0 <= row < len(message_ids) else None
        if message_id is None:
            return None
        root = correlation_ids[row] if correlation_ids is not None else None
        return message_id, root or message_id
