"""Block as it lies in a file: its head repaired if necessary, its body loaded and checked stripe by stripe.

A stripe whose CRC differs sends the whole body through repair. If every stripe can be repaired and the body's word sum
comes back, the block is as it was written. Otherwise the stripes that differ are bad, repaired or not, and only rows
without a byte in them are returned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import unpack

import pyarrow as pa
import pyarrow.compute as pc

from raceway.config import MIB
from raceway.errors import FormatVersionError
from raceway.journal import format as block_format
from raceway.journal.contract import Damage, DamageKind
from raceway.journal.files import Source
from raceway.journal.format import Batches, Columns, Meta, Prefix
from raceway.journal.integrity.checksum import STRIPE, crc, maybe_mend_all
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.salvage import good_ranges
from raceway.journal.read.rows import Budget, decode_rows
from raceway.journal.write.columns import STORED_TYPES, word_sum

# Bodies up to this size are loaded whole; of larger ones only the stripes that are needed.
_WHOLE = MIB
# Readers get batches of about this size. Arrow's allocator keeps several times as much for itself, and a reader that
# lags far behind must stay well below 64 MiB.
_BATCH_BYTES = 2 * MIB
# Prefix and meta of nearly every block fit; a block of 32 MiB has 2 KiB of CRCs.
_HEAD_READ = 8192
# Columns that are filled from others where they are null: both must be good.
_NEEDS = {"correlation_id": ("message_id",)}


HEAD_REPAIRED = "a flipped bit in the head of a block"


class BadStripesError(Exception):
    """Raised for bytes that cannot be trusted. Does not leave this module."""


class StoredBlock:
    """Block of `source` at `position`."""

    def __init__(
        self,
        source: Source,
        position: int,
        prefix: Prefix,
        meta: Meta,
        file: str,
        damage: DamageLog,
    ) -> None:
        self.prefix, self.meta = prefix, meta
        self._source, self._position, self._file, self._damage = source, position, file, damage
        self._sums = unpack(f"<{len(meta.sums) // 4}I", meta.sums)
        self._body: bytes | None = None
        self._places: pa.RecordBatch | None = None  # topics and offsets: kept for the next read of this block
        self._bad: frozenset[int] = frozenset()

    def is_sound(self) -> bool:
        """Return whether the whole body is present and good, repaired if necessary."""
        try:
            self._load(0, self.prefix.body_size)
        except BadStripesError:
            return False
        return True

    def read(self, begin: int, end: int, columns: Columns = None) -> Batches:
        """Yield rows `begin` to `end` in batches of bounded size, without those that cannot be proven good."""
        step = self._rows_at_once(_BATCH_BYTES)
        for at in range(begin, end, step):
            yield from self._read_good(at, min(at + step, end), columns)

    def read_topic(self, topic: str, offset: int, budget: Budget, columns: Columns) -> Batches:
        """Yield rows of `topic` from `offset` on until the budget is spent."""
        wanted = columns and [*columns, *({"topic", "offset"} - set(columns))]
        for begin, end, is_pure in self._topic_rows(topic, offset, budget):
            for batch in self._read_good(begin, end, wanted):
                # Ranges are contiguous, so rows of other topics between those of this one are read too and
                # filtered here.
                found = batch if is_pure else batch.filter(_of_topic(batch, topic, offset))
                if found.num_rows:
                    taken = budget.take(found)
                    yield taken if columns is None else taken.select(columns)
                if budget.is_spent:
                    return

    def _topic_rows(self, topic: str, offset: int, budget: Budget) -> Iterator[tuple[int, int, bool]]:
        """Yield ranges of rows that hold the topic, each not much larger than the budget, and whether they hold no
        other rows."""
        rows = self.prefix.rows
        step = self._rows_at_once(min(_BATCH_BYTES, budget.size))
        if len(self.meta.spans) == 1 and self.meta.spans[0][::2] == (
            topic,
            rows,
        ):  # the only topic, and all have offsets
            at = max(0, offset - self.meta.spans[0][1])
            while at < rows:
                begin, at = at, min(rows, at + step, at + max(1, budget.rows))
                yield begin, at, True
            return
        try:
            self._places = self._places or self._decode(0, rows, ["topic", "offset"])
        except BadStripesError:
            # Topics or offsets are damaged: let the caller read the rows that can be proven and filter those.
            yield 0, rows, False
            return
        found = pc.indices_nonzero(_of_topic(self._places, topic, offset))
        at = 0
        while at < len(found):
            begin, low = found[at].as_py(), at
            fitting = bisect_left(range(len(found)), begin + step, lo=at, key=lambda n: found[n].as_py())
            at = min(fitting, at + budget.rows)
            end = found[at - 1].as_py() + 1
            yield begin, end, end - begin == at - low

    def _rows_at_once(self, size: int) -> int:
        """Estimate how many rows have `size` bytes, by the block's mean row size; at least one."""
        return max(1, self.prefix.rows * size // max(1, self.prefix.body_size))

    def _read_good(self, begin: int, end: int, columns: Columns) -> Batches:
        """Yield the good rows of a range, as one batch if the block is sound."""
        if not self._bad:
            try:
                yield self._decode(begin, end, columns)
            except BadStripesError:
                pass
            else:
                return
        # `_load` has healed the block by now, so `_bad` tells which stripes to avoid.
        for run in self._good_ranges(columns):
            low, high = max(begin, run.start), min(end, run.stop)
            if low < high:
                yield self._decode(low, high, columns)

    def _decode(self, begin: int, end: int, columns: Columns) -> pa.RecordBatch:
        return decode_rows(self.meta, self.prefix.first, self.prefix.rows, self._load, begin, end, columns)

    def _load(self, at: int, size: int) -> pa.Buffer:
        """Return checked bytes of the body. Raises BadStripesError where they cannot be trusted."""
        if not size:
            return pa.py_buffer(b"")
        # Checksums cover whole stripes, so whole stripes are read even for a few bytes.
        low, high = at // STRIPE, -(-(at + size) // STRIPE)
        if self._body is not None:
            if not self._bad.isdisjoint(range(low, high)):
                raise BadStripesError
            return pa.py_buffer(self._body).slice(at, size)
        whole = self.prefix.body_size <= _WHOLE
        if whole:
            low, high = 0, len(self._sums)
        begin, end = low * STRIPE, min(high * STRIPE, self.prefix.body_size)
        data = self._source.read(end - begin, self._position + self.prefix.body_at + begin)
        # A short read means that the file ends inside the body: repair treats the missing stripes as bad.
        if len(data) < end - begin or not self._agrees(data, low):
            self._heal()
            return self._load(at, size)
        if whole:
            self._body = data
        return pa.py_buffer(data).slice(at - begin, size)

    def _agrees(self, data: bytes, stripe: int) -> bool:
        """Return whether each stripe of `data`, beginning with number `stripe`, has its CRC."""
        for at in range(0, len(data), STRIPE):
            if crc(data[at : at + STRIPE]) != self._sums[stripe]:
                return False
            stripe += 1
        return True

    def _heal(self) -> None:
        """Load the whole body and repair it, or find out which stripes are bad; report either."""
        data = self._source.read(self.prefix.body_size, self._position + self.prefix.body_at)
        self._body, repaired, bad = maybe_mend_all(data, self._sums)
        # Without the word sum, three or more flips in one stripe would pass as one, once in 4,096 cases.
        if not bad and (not repaired or word_sum(self._body) == self.meta.check):
            if repaired:
                reason = "a flipped bit in the body"
                self._damage.add(of_block("repaired", self._file, self._position, self.prefix, reason))
            return
        # The word sum covers the whole body: if it differs, any of the repaired stripes may be the wrong one.
        self._bad = frozenset(bad + repaired)
        good = sum(map(len, self._good_ranges(None)))
        reason = f"{len(self._bad)} of {len(self._sums)} stripes of the block are damaged"
        self._damage.add(
            of_block("quarantined", self._file, self._position, self.prefix, reason, self.prefix.rows - good)
        )

    def _good_ranges(self, columns: Columns) -> list[range]:
        """Return the runs of rows whose bytes, in the given columns, all lie in good stripes."""
        names = STORED_TYPES if columns is None else {n for name in columns for n in (name, *_NEEDS.get(name, ()))}
        assert self._body is not None
        return good_ranges(self.meta, self.prefix.rows, self._body, self._bad, names)


def maybe_read_block(
    source: Source, position: int, size: int, marker: bytes, file: str, damage: DamageLog
) -> StoredBlock | None:
    """Read the head of the block of `size` bytes at `position`; None if it is damaged beyond repair."""
    data = source.read(min(size, _HEAD_READ), position)
    parsed = block_format.maybe_parse_prefix(data[: block_format.PREFIX_SIZE], marker)
    if parsed is None:
        return None
    prefix, prefix_mended = parsed
    check_version(prefix, file)
    meta_end = block_format.PREFIX_SIZE + prefix.meta_size
    # A block with very many topics or stripes: its metadata did not fit into the first read.
    if len(data) < meta_end:
        data = source.read(meta_end, position)
    found = block_format.maybe_parse_meta(data[block_format.PREFIX_SIZE : meta_end], prefix)
    if found is None:
        return None
    meta, meta_mended = found
    if prefix_mended or meta_mended:
        damage.add(of_block("repaired", file, position, prefix, HEAD_REPAIRED))
    return StoredBlock(source, position, prefix, meta, file, damage)


def of_block(kind: DamageKind, file: str, position: int, prefix: Prefix, reason: str, rows: int = 0) -> Damage:
    """Return the report of a damaged block, which lost so many rows."""
    return Damage(
        kind=kind, file=file, position=position, size=prefix.size, first=prefix.first, last=prefix.last, rows=rows,
        reason=reason,
    )  # fmt: skip


def check_version(prefix: Prefix, file: str) -> None:
    """Raise FormatVersionError if the block has another format version."""
    if prefix.version != block_format.VERSION:
        raise FormatVersionError(file, prefix.version, block_format.VERSION)


def _of_topic(batch: pa.RecordBatch, topic: str, offset: int) -> pa.Array:
    """Return a mask of the rows of `topic` with an offset of at least `offset`."""
    same = pc.equal(batch.column("topic"), pa.scalar(topic, pa.string()))
    behind = pc.greater_equal(batch.column("offset"), pa.scalar(offset, pa.int64()))
    # Answers and control rows have no offset: comparing null gives null, which `filter` must not see as true.
    return pc.fill_null(pc.and_(same, behind), pa.scalar(False, pa.bool_()))
