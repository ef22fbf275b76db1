"""The object `lease`: who writes an archive, and below which position everything may have been given out.

A bus raises `reserved` long before it gets there. Whoever restores the archive begins at `reserved`, because rows that
were never archived may have been delivered: so no position, and no offset, is given out twice. Restoring also raises
`epoch`; a bus that finds another epoch than its own there was replaced, and writes nothing more.
"""

from __future__ import annotations

import msgspec

from raceway.errors import ArchiveError
from raceway.journal.archive.store import SETTING, Store
from raceway.journal.integrity.checksum import maybe_unprotect, protect
from raceway.journal.write.active import SEGMENT_ROWS

NAME = "lease"
# Positions reserved ahead: rows that a bus may write while the archive cannot be reached. At 10,000 messages a second
# that is almost two hours.
RESERVED = 16 * SEGMENT_ROWS


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the object. `reserved` is the first position that was never given out; `source` that of the
    journal."""

    source: str
    epoch: int
    reserved: int
    committed: int
    time_us: int

    def covers(self, committed: int) -> bool:
        """Return whether more than half of the reservation is left."""
        # Renewed early: whenever the archive becomes unreachable, about half of the reservation is left.
        return self.reserved - committed > RESERVED // 2


def maybe_lease(store: Store) -> Lease | None:
    """Return the lease of an archive; None if there is none yet. Raises ArchiveError if it cannot be read."""
    data = store.maybe_get(NAME)
    if data is None:
        return None
    found = maybe_unprotect(data)
    try:
        if found is not None:
            return msgspec.json.decode(found[0], type=Lease)
    except msgspec.DecodeError:
        pass
    # Not taken for missing: only a person can tell whether another bus has taken the archive over.
    raise ArchiveError(store.url, f"the object {NAME} is damaged beyond repair: remove it, and the bus writes another")


def check_lease(store: Store, found: Lease, source: str, epoch: int) -> None:
    """Raise ArchiveError if the archive is that of another journal, or if another bus took it over. An epoch of 0 is
    not known yet."""
    if found.source != source:
        raise ArchiveError(
            store.url, f"it belongs to another journal ({found.source}): set {SETTING} to an empty place"
        )
    if epoch and found.epoch != epoch:
        raise ArchiveError(
            store.url, "another bus was restored from it, so this one writes no more to it: stop this bus"
        )


def write_lease(store: Store, lease: Lease) -> None:
    """Write the lease and read it back."""
    content = protect(msgspec.json.encode(lease))
    store.put(NAME, iter([content]))
    # As every object is: after a loss of the disk this one alone tells which positions are free.
    if store.maybe_get(NAME) != content:
        raise ArchiveError(store.url, f"the object {NAME} reads back differently from what was written")
