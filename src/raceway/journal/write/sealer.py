"""Owner's side of sealing: chooses the next segment, runs one child process at a time, collects its outcome.

Converting 256 MiB of rows to Parquet takes a core for seconds. It happens in a child at the lowest priority
(`raceway.journal.write.seal`), which reads its result back before it puts it in place; the owner only polls.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from raceway.journal.contract import Damage
from raceway.journal.machine import Machine

# Pause before a segment that could not be sealed (a full disk, for example) is tried again.
_PAUSE_S = 60.0
_BLOCKS, _PARQUET = ".blocks", ".parquet"


class SealOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of a child, printed as one line of JSON. `error` is empty on success."""

    job: Literal["seal", "hold"]
    name: str
    error: str = ""
    rows: int = 0
    size: int = 0
    source_size: int = 0
    missing: tuple[tuple[int, int], ...] = ()
    damage: tuple[Damage, ...] = ()
    seconds: float = 0.0


def maybe_next_to_seal(names: Iterable[str], skipped: Iterable[str] = ()) -> str | None:
    """Return the oldest closed segment that has blocks and no Parquet file yet; None if there is none."""
    found = set(names)
    stems = sorted(name.removesuffix(_BLOCKS) for name in found if name.startswith("segment-") and _BLOCKS in name)
    left_out = set(skipped)
    # Without the newest, which is still written to.
    return next((stem for stem in stems[:-1] if stem + _PARQUET not in found and stem not in left_out), None)


def outlived_blocks(folder: Path, keep_s: float, now_s: float) -> list[Path]:
    """Return blocks whose Parquet file was finished at least `keep_s` ago and can be read, oldest first."""
    found = []
    for blocks in sorted(folder.glob(f"segment-*{_BLOCKS}")):
        sealed = blocks.with_suffix(_PARQUET)
        # The blocks are the fallback for a damaged Parquet file, so that is opened before they are removed.
        if sealed.exists() and sealed.stat().st_mtime + keep_s <= now_s:
            # The Parquet library is loaded when there is something to read.
            from raceway.journal.read.sealed import SealedSegment

            if SealedSegment(sealed).is_usable():
                found.append(blocks)
    return found


class Sealer:
    """Starts children and collects their outcomes. Owner thread only."""

    def __init__(self, folder: Path, row_group_rows: int, machine: Machine | None = None) -> None:
        self._folder = folder
        self._row_group_rows = row_group_rows
        self._machine = machine or Machine()
        self._child: subprocess.Popen[bytes] | None = None
        self._job: Literal["seal", "hold"] = "seal"
        self._name = ""
        self._resting: dict[str, float] = {}

    @property
    def is_busy(self) -> bool:
        return self._child is not None

    def is_reading(self, path: Path) -> bool:
        """Return whether the child reads this segment."""
        return self._child is not None and path.stem == self._name

    def maybe_next(self, names: Iterable[str]) -> str | None:
        """Return the segment to seal next, given the names in the folder; those that failed recently are skipped."""
        now = self._machine.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        return maybe_next_to_seal(names, self._resting)

    def maybe_outcome(self) -> SealOutcome | None:
        """Return the outcome once the child has ended; None while it runs. Never blocks."""
        child = self._child
        if child is None or child.poll() is None:
            return None
        return self._collect(child)

    def stop(self) -> None:
        """Kill the child, if there is one; its staging folder is removed at the next start."""
        child = self._child
        if child is not None:
            # SIGKILL is safe at any moment, because nothing is visible before the final rename.
            child.kill()
            self._collect(child)

    def start(self, job: Literal["seal", "hold"], name: str, topics: Iterable[str] = ()) -> None:
        """Start sealing the closed segment `name` (without suffix), or copying the rows of `topics` to its held
        file."""
        assert self._child is None, "one child at a time"
        # The same interpreter, hence the same packages as the bus.
        command = [sys.executable, "-m", "raceway.journal.write.seal", str(self._folder), name]
        command += ["--row-group-rows", str(self._row_group_rows), *(["--hold"] if job == "hold" else [])]
        self._job, self._name = job, name
        self._child = self._machine.spawn(command)
        assert self._child.stdin is not None
        try:
            # By a pipe, because a list of topics may be longer than a command line.
            self._child.stdin.write(msgspec.json.encode(list(topics)))
            self._child.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already; its exit status tells why

    def _collect(self, child: subprocess.Popen[bytes]) -> SealOutcome:
        """Read the outcome of an ended child."""
        assert child.stdout is not None
        with child:
            said = child.stdout.read()
        self._child = None
        try:
            outcome = msgspec.json.decode(said, type=SealOutcome)
        except msgspec.DecodeError:
            reason = f"the sealing process ended with status {child.returncode} and no result"
            outcome = SealOutcome(job=self._job, name=self._name, error=reason)
        if outcome.error:
            self._resting[self._name] = self._machine.monotonic() + _PAUSE_S
        return outcome
