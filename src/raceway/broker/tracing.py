"""Ids minted for delivery, the way back from them, and what joins messages into one trace.

The broker never passes a client's id on to another client: what is delivered has a *masked* id. A service that sends
messages of its own while it handles one names the masked id as their parent. Unmasking it gives the true parent, and
with it the root of the whole chain, the correlation id.

Masked ids are UUIDs of version 4. Those of requests are random throughout. Those of publishes share 24 random
characters per batch, and their last twelve digits are the row: one table entry then leads back to a whole batch, and a
minted id costs one concatenation. Nobody answers a publish, so nothing is gained by guessing such an id.
"""

from __future__ import annotations

import os
from collections import OrderedDict

from raceway.model.envelope import Batch, Hop, encode_hops

# How far back a parent can be named. Enough for minutes of chained calls; about 20 MB when full.
KEPT_ROWS = 100_000
PREFIX_LENGTH = 24
IDS_AT_ONCE = 64

_suffixes = [b"%012x" % row for row in range(4096)]


_random_ids: list[bytes] = []


def random_id() -> bytes:
    """A random UUID of version 4. Made many at a time: the call for random bytes is the dear part."""
    if not _random_ids:
        digits = os.urandom(16 * IDS_AT_ONCE).hex()
        _random_ids.extend(_uuid4(digits[at : at + 32]) for at in range(0, len(digits), 32))
    return _random_ids.pop()


def _uuid4(digits: str) -> bytes:
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}".encode()


def mint_batch(count: int) -> list[bytes]:
    """Ids for a batch of publishes: the same random prefix, and the row."""
    while len(_suffixes) < count:
        _suffixes.append(b"%012x" % len(_suffixes))
    prefix = random_id()[:PREFIX_LENGTH]
    return [prefix + suffix for suffix in _suffixes[:count]]


def answer_hop(requester: str, responder: str, message_id: bytes, times_us: tuple[int, ...]) -> bytes:
    """The hop of an answered request: accepted, handed over, answered, all by the broker's clock."""
    hop = Hop(sid=requester, rid=responder, mid=message_id.decode(), tms=tuple([time // 1000 for time in times_us]))
    encoded = encode_hops((hop,))
    assert encoded is not None
    return encoded


class Chains:
    """From a parent id, masked or not, to (true parent, root of the chain)."""

    def __init__(self, kept_rows: int = KEPT_ROWS) -> None:
        self._kept_rows = kept_rows
        self._single: OrderedDict[bytes, tuple[bytes, bytes]] = OrderedDict()
        self._batches: OrderedDict[bytes, tuple[list[bytes | None], list[bytes | None] | None]] = OrderedDict()
        self._batch_rows = 0

    def remember(self, masked_id: bytes, message_id: bytes, correlation_id: bytes) -> None:
        """A request that is handed over under a masked id."""
        self._single[masked_id] = (message_id, correlation_id)
        if len(self._single) > self._kept_rows:
            self._single.popitem(last=False)

    def remember_batch(
        self, masked_ids: list[bytes], message_ids: list[bytes | None], correlation_ids: list[bytes | None] | None
    ) -> None:
        """Publishes whose masked ids came from one `mint_batch`."""
        self._batches[masked_ids[0][:PREFIX_LENGTH]] = (message_ids, correlation_ids)
        self._batch_rows += len(message_ids)
        while self._batch_rows > self._kept_rows and len(self._batches) > 1:
            _, (gone, _) = self._batches.popitem(last=False)
            self._batch_rows -= len(gone)

    def unmask_parents(self, batch: Batch) -> None:
        """Parents of a batch become what they stand for, and lead to the roots of their chains. A sender that names the
        root itself is believed.

        A sender may also name an id of its own as parent, even one of the same batch: those are remembered in passing.
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
            root = batch.item("correlation_id", row) or root  # what a sender says itself counts
            parents.append(parent)
            roots.append(root)
            message_id = batch.item("message_id", row)
            if root is not None and message_id is not None:
                self._single[message_id.lower()] = (message_id, root)
        self._trim_single()
        batch.parent_id, batch.correlation_id = parents, roots

    def _remember_roots(self, batch: Batch) -> None:
        """Senders that say themselves to which chain a message belongs. Some wires hand on its own id, not a masked
        one, and whoever names it as parent belongs there too."""
        for message_id, root in zip(batch.column("message_id"), batch.column("correlation_id"), strict=True):
            if message_id is not None and root is not None:
                self._single[message_id.lower()] = (message_id, root)
        self._trim_single()

    def unmask(self, parent_id: bytes) -> tuple[bytes, bytes]:
        """An id never seen is its own parent and root: it may come from before a restart, or from elsewhere."""
        key = parent_id.lower()
        known = self._single.get(key) or self._maybe_in_batch(key)
        return known if known is not None else (parent_id, parent_id)

    def _trim_single(self) -> None:
        while len(self._single) > self._kept_rows:
            self._single.popitem(last=False)

    def _maybe_in_batch(self, key: bytes) -> tuple[bytes, bytes] | None:
        batch = self._batches.get(key[:PREFIX_LENGTH])
        if batch is None:
            return None
        message_ids, correlation_ids = batch
        try:
            row = int(key[PREFIX_LENGTH:], 16)
        except ValueError:  # a wire that takes any text for an id
            return None
        message_id = message_ids[row] if 0 <= row < len(message_ids) else None
        if message_id is None:
            return None
        root = correlation_ids[row] if correlation_ids is not None else None
        return message_id, root or message_id
