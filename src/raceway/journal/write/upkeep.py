"""Regular work of a journal on files: seal closed segments, remove blocks that were sealed, apply retention."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from raceway import config
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.read.catalogue import PARQUET, SEGMENT, FolderCatalogue
from raceway.journal.read.segment import missing
from raceway.journal.write.intake import Intake
from raceway.journal.write.mark import write_trimmed
from raceway.journal.write.retention import CursorMove, Plan, plan, remove_segment
from raceway.journal.write.sealer import Sealer, SealOutcome, outlived_blocks

if TYPE_CHECKING:
    from raceway.journal.archive.copying import Archiver

# State section with the cursors that retention had to move, and what they skipped: kept until an operator sees it.
MOVED = "moved_cursors"


class Upkeep:
    """Upkeep on the owner thread; never blocks. A child process does what takes long."""

    def __init__(
        self,
        settings: config.JournalSettings,
        folder: Path,
        files: Files,
        catalogue: FolderCatalogue,
        damage: DamageLog,
        clock: Callable[[], int],
        machine: Machine,
        archiver: Archiver | None = None,
    ) -> None:
        self._settings, self._folder, self._files, self._archiver = settings, folder, files, archiver
        self._catalogue, self._damage, self._clock = catalogue, damage, clock
        self._sealer = Sealer(folder, settings.row_group_rows, machine)

    def run(self, owner: Intake) -> None:
        """Do one round: collect the child's outcome, remove old blocks, apply retention, start the next child."""
        outcome = self._sealer.maybe_outcome()
        if outcome is not None:
            _log_outcome(outcome)
            # Rows that the segment lacked when it was sealed: the Parquet file alone would not show them.
            for first, last in outcome.missing if outcome.job == "seal" else ():
                reason = "lost before the segment was sealed"
                self._damage.add(missing(f"{outcome.name}{PARQUET}", 0, 0, first, last, reason))
            self._catalogue.refresh()
        if self._archiver is not None:
            self._archiver.wake()
        # Space is freed before a new child needs some.
        self._drop_sealed_blocks()
        planned = self._plan(owner)
        self._carry_out(planned, owner)
        if not self._sealer.is_busy:
            self._start_next(planned)

    def stop(self) -> None:
        self._sealer.stop()

    def _drop_sealed_blocks(self) -> None:
        """Remove blocks whose Parquet file is older than `seal_keep_s`."""
        for blocks in outlived_blocks(self._folder, self._settings.seal_keep_s, time.time()):
            if not self._sealer.is_reading(blocks):
                self._files.remove(blocks)
                self._catalogue.refresh()

    def _plan(self, owner: Intake) -> Plan:
        """Return what retention has to do; an empty plan if no limits are set."""
        retention = self._settings.retention
        if not retention.max_age_s and not retention.max_bytes:
            return Plan()
        has = None if self._archiver is None else self._archiver.has
        local, held, cursors = self._catalogue.local(), self._catalogue.listing.held, owner.state.section("cursors")
        return plan(local, held, cursors, self._clock(), retention, has)

    def _carry_out(self, planned: Plan, owner: Intake) -> None:
        """Move cursors, then remove segments and held files, oldest first."""
        move_cursors(planned.moves, owner)
        local = self._catalogue.local()
        gone = [segment.path for segment in local if segment.first in planned.remove]
        if gone and not self._sealer.is_reading(gone[0]):
            # The active segment always stays, so `kept` is never empty. Synced before the first file is
            # removed.
            kept = [segment.first for segment in local if segment.first not in planned.remove]
            write_trimmed(self._files, self._folder, kept[0])
        gone += [segment.path for segment in self._catalogue.listing.held if segment.first in planned.remove_held]
        for path in gone:
            if self._sealer.is_reading(path):
                break  # the child would create it again; oldest first, so the later ones wait too
            remove_segment(self._files, path)
            log().info("segment removed by retention", file=path.name)
        if gone:
            self._catalogue.refresh()

    def _start_next(self, planned: Plan) -> None:
        """Start the next child: held rows first, because their segments wait to be removed."""
        for first, topics in planned.hold.items():
            self._sealer.start("hold", f"{SEGMENT}{first:020}", topics)
            return
        name = self._sealer.maybe_next(self._files.names(self._folder)) if self._settings.seal else None
        if name is not None:
            self._sealer.start("seal", name)


def move_cursors(moves: Iterable[CursorMove], owner: Intake) -> None:
    """Move cursors before their rows are removed, or a subscription would get TrimmedError in between."""
    for move in moves:
        log().error("cursor moved by retention", cursor=move.key, reason=str(move))
        kept = owner.state.get("cursors", move.key) or {"topic": move.topic}
        # What else is kept there, such as acknowledgements ahead of the cursor, counts from where it was.
        begun = kept.get("begun", move.offset)
        owner.set_state("cursors", move.key, {**kept, "offset": move.first_left, "begun": begun})
        owner.set_state(MOVED, move.key, {"topic": move.topic, "from": move.offset, "to": move.first_left})


def _log_outcome(outcome: SealOutcome) -> None:
    """Log the outcome of a child."""
    if outcome.error:
        log().error("sealing failed", segment=outcome.name, reason=outcome.error)
    else:
        log().info(
            "segment sealed" if outcome.job == "seal" else "held rows copied", segment=outcome.name, rows=outcome.rows,
            bytes=outcome.size, bytes_before=outcome.source_size, seconds=outcome.seconds,
        )  # fmt: skip
