"""Simulated disk: what was written, what of it is durable, and what a crash leaves.

Current contents are real files in a folder in memory, so that the journal, Arrow included, reads them as always. What
is durable is kept beside them: the bytes of each file at its last sync and the writes since, the names at the last sync
of the folder and the changes since. A loss of power keeps what was synced and any prefix or subset of the rest; a write
may be torn. A killed process loses nothing that was written.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import greenlet

from raceway.journal.files import Files

if TYPE_CHECKING:
    from tests.sim.machine import SimMachine

# A disk writes whole sectors.
SECTOR = 512
# A disk that no history fills, unless a step makes it smaller.
SIZE = 64 << 20


class Crash(BaseException):
    """Raised where the process was when it ended."""


class _Write(NamedTuple):
    """A write, or with `data` None a truncation to `position`."""

    position: int
    data: bytes | None


class _File:
    """One inode: durable bytes, and what was done since."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.pending: list[_Write] = []
        self.size = len(durable)
        # Whether the last write stopped short.
        self.is_short = False

    def add(self, write: _Write, *, is_short: bool) -> None:
        """Take a write. What completes a short one within a sector leaves the memory with it.

        The two are microseconds apart, and the kernel writes a page back after seconds: power that fails in between is
        thought of, pages of several files written back in such moments are not.
        """
        was_short, self.is_short = self.is_short, is_short
        if was_short and self.pending:
            last = self.pending[-1]
            assert last.data is not None
            assert write.data is not None
            kept = write.position - last.position
            if 0 <= kept <= len(last.data) and kept + len(write.data) <= SECTOR:
                self.pending[-1] = last._replace(data=last.data[:kept] + write.data)
                return
        self.pending.append(write)

    def settle(self, writes: Sequence[_Write]) -> None:
        for position, data in writes:
            if data is None:
                _resize(self.durable, position)
            else:
                if len(self.durable) < position:
                    _resize(self.durable, position)
                self.durable[position : position + len(data)] = data

    def survive(self, dice: random.Random) -> None:
        """Keep what a loss of power keeps of the writes that were not synced."""
        writes, self.pending = self.pending, []
        match dice.choice(("none", "all", "prefix", "subset")):
            case "all":
                self.settle(writes)
            case "prefix":
                kept = writes[: dice.randint(0, len(writes))]
                self.settle([*kept[:-1], *(_torn(write, dice) for write in kept[-1:])])
            case "subset":
                self.settle([_torn(write, dice) for write in writes if dice.random() < 0.5])


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _torn(write: _Write, dice: random.Random) -> _Write:
    """Return a write of which, sometimes, only whole sectors up to some point arrived, or all but one of them."""
    if write.data is None or len(write.data) <= SECTOR or dice.random() < 0.3:
        return write
    if dice.random() < 0.5:
        # The file has its new size, and one of its pages never left the memory.
        at = SECTOR * dice.randrange(len(write.data) // SECTOR)
        return write._replace(data=write.data[:at] + bytes(SECTOR) + write.data[at + SECTOR :])
    return write._replace(data=write.data[: SECTOR * dice.randint(1, len(write.data) // SECTOR)])


class _Rename(NamedTuple):
    """A change of names: `new` leads to `file` (None: no longer), `old` to nothing."""

    new: str
    file: _File | None
    old: str = ""


class Disk:
    """The disk of a world, which outlives its processes."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        self._prefix = len(str(folder)) + 1
        folder.mkdir(parents=True)
        self.names: dict[str, _File] = {}
        self._durable: dict[str, _File] = {}
        self._pending: list[_Rename] = []
        self.size = SIZE
        # Names of operations to the errors that their next calls raise.
        self.faults: dict[str, list[int]] = {}
        # Operations until the power fails; None: it does not.
        self.power: int | None = None
        self.latency_s = 0.0005
        # Share of writes that stop before their end.
        self.short_writes = 0.02
        self.operations = 0
        # Which start of the operating system this is.
        self.starts = 1
        # Whether it has failed an operation since the bus was started.
        self.has_failed = False

    def open(self, machine: SimMachine) -> SimFiles:
        return SimFiles(self, machine)

    def used(self) -> int:
        return sum(file.size for file in self.names.values())

    # ---- names -------------------------------------------------------------------------------------------------------

    def name(self, path: Path) -> str:
        return str(path)[self._prefix :] or "."

    def change(self, rename: _Rename) -> None:
        self._apply(self.names, rename)
        self._pending.append(rename)

    def sync_names(self, folder: Path) -> None:
        """Make the names of a folder durable."""
        parent = self.name(folder)
        mine = [each for each in self._pending if os.path.dirname(each.new) == ("" if parent == "." else parent)]
        for each in mine:
            self._apply(self._durable, each)
        self._pending = [each for each in self._pending if each not in mine]

    @staticmethod
    def _apply(names: dict[str, _File], rename: _Rename) -> None:
        if rename.old:
            names.pop(rename.old, None)
        if rename.file is None:
            names.pop(rename.new, None)
        else:
            names[rename.new] = rename.file

    # ---- what happens to a disk --------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Keep what is durable and some of the rest."""
        dice = self.dice
        self.starts += 1
        self._notice_removed()
        match dice.choice(("none", "all", "prefix", "subset")):
            case "none":
                kept = []
            case "all":
                kept = self._pending
            case "prefix":
                kept = self._pending[: dice.randint(0, len(self._pending))]
            case _:
                kept = [each for each in self._pending if dice.random() < 0.5]
        for each in kept:
            self._apply(self._durable, each)
        self.names = self._durable
        for name in sorted(self.names):
            self.names[name].survive(dice)
        self._rewrite()

    def keep_all(self) -> None:
        """The process ended, the machine goes on: everything written is there."""
        self._notice_removed()
        for file in self.names.values():
            file.settle(file.pending)
            file.pending = []
        self._settle_names()

    def _settle_names(self) -> None:
        self._durable, self._pending = dict(self.names), []

    def _notice_removed(self) -> None:
        """Take note of names that were removed past `Files`: folders of unfinished work."""
        for name in [name for name in self.names if not (self.folder / name).exists()]:
            self.change(_Rename(name, None))

    def _rewrite(self) -> None:
        """Make the real folder what the crash left."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for name, file in self.names.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(file.durable)
            file.size = len(file.durable)
            self.stamp(path)
        self._settle_names()

    def stamp(self, path: Path) -> None:
        """Give a file the simulated time: sealed blocks are removed by it."""
        now = time.time()
        os.utime(path, (now, now))

    def flip_bit(self, name: str, dice: random.Random) -> str:
        """Flip one bit of a file, durably. Return where."""
        file = self.names[name]
        data = bytearray((self.folder / name).read_bytes())
        if not data:
            return "nothing"
        at, bit = dice.randrange(len(data)), dice.randrange(8)
        data[at] ^= 1 << bit
        file.durable, file.pending = data, []
        (self.folder / name).write_bytes(data)
        self.stamp(self.folder / name)
        return f"byte {at} bit {bit} of {name}"

    def cut(self, name: str, dice: random.Random) -> str:
        """Cut a file short, durably. Return where."""
        file, path = self.names[name], self.folder / name
        data = path.read_bytes()
        size = dice.randrange(len(data)) if data else 0
        file.durable, file.pending, file.size = bytearray(data[:size]), [], size
        path.write_bytes(data[:size])
        self.stamp(path)
        return f"{name} at {size} of {len(data)} bytes"

    def remove(self, name: str) -> None:
        """Remove a file behind the back of whoever uses it."""
        (self.folder / name).unlink()
        self.change(_Rename(name, None))


class SimFiles(Files):
    """The disk as one process sees it. When the process is dead, nothing it still tries has an effect."""

    def __init__(self, disk: Disk, machine: SimMachine) -> None:
        self._disk, self._machine = disk, machine
        self._open: dict[int, tuple[_File | None, str]] = {}
        # The index of a segment is saved under a lock that readers want, so that waits for no disk.
        self._is_quick = False

    def close_all(self) -> None:
        """Close what the process left open when it ended."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def open(self, path: Path, *, create: bool = False) -> int:
        self._begin("open")
        existed = path.exists()
        descriptor = super().open(path, create=create)
        name = self._disk.name(path)
        if not existed:
            self._disk.change(_Rename(name, _File()))
        self._open[descriptor] = (self._disk.names.get(name), name)
        return descriptor

    def open_to_read(self, path: Path) -> int:
        self._check()
        descriptor = super().open_to_read(path)
        self._open[descriptor] = (None, "")
        return descriptor

    def open_folder(self, folder: Path) -> int:
        self._check()
        descriptor = super().open_folder(folder)
        self._open[descriptor] = (None, "")
        return descriptor

    def close(self, descriptor: int) -> None:
        if descriptor in self._open and not self._machine.is_dead:
            del self._open[descriptor]
            super().close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        self._begin("write")
        file, name = self._open[descriptor]
        assert file is not None, f"{name} was opened to read"
        data = b"".join(buffers)
        grown = position + len(data) - file.size
        if grown > 0 and self._disk.size < SIZE:
            free = self._disk.size - self._disk.used()
            if grown > free:
                data = data[: max(0, len(data) - (grown - free))]
                if not data:
                    self._disk.has_failed = True
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        is_short = len(data) > 1 and self._disk.dice.random() < self._disk.short_writes
        if is_short:
            data = data[: self._disk.dice.randint(1, len(data) - 1)]
        written = super().write(descriptor, [data], position)
        file.add(_Write(position, data), is_short=is_short)
        file.size = max(file.size, position + len(data))
        self._end(0.1, name)
        return written

    def truncate(self, descriptor: int, size: int) -> None:
        self._begin("truncate")
        file, _ = self._open[descriptor]
        super().truncate(descriptor, size)
        assert file is not None
        file.pending.append(_Write(size, None))
        file.size, file.is_short = size, False

    def sync(self, descriptor: int) -> None:
        file, name = self._open[descriptor]
        assert file is not None
        try:
            self._begin("sync")
        except OSError:
            # The kernel dropped the dirty pages: what they held will never be durable, whatever a later sync says.
            file.pending = []
            raise
        # Writes that come while the disk works are not covered by this sync.
        covered = len(file.pending)
        self._end(1.0, name)
        file.settle(file.pending[:covered])
        del file.pending[:covered]

    def rename(self, old: Path, new: Path) -> None:
        self._begin("rename")
        super().rename(old, new)
        self._disk.stamp(new)
        disk = self._disk
        self._is_quick = new.suffix == ".idx"
        disk.change(_Rename(disk.name(new), disk.names[disk.name(old)], disk.name(old)))

    def remove(self, path: Path) -> None:
        self._begin("remove")
        existed = path.exists()
        super().remove(path)
        if existed:
            self._disk.change(_Rename(self._disk.name(path), None))

    def sync_folder(self, folder: Path) -> None:
        self._begin("sync_folder")
        quick, self._is_quick = self._is_quick, False
        self._end(1.0, ".idx" if quick else "")
        self._disk.sync_names(folder)

    def system_start(self) -> bytes:
        # A loss of power ends the simulated system, too.
        return self._disk.starts.to_bytes(16, "big")

    def names(self, folder: Path) -> list[str]:
        self._check()
        return sorted(super().names(folder))

    def space(self, folder: Path) -> tuple[int, int]:
        return max(0, self._disk.size - self._disk.used()), self._disk.size

    # ---- faults ------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._machine.is_dead:
            self._unwind()

    def _begin(self, operation: str) -> None:
        """Count an operation; end the process or fail, if that was planned."""
        self._check()
        disk = self._disk
        disk.operations += 1
        if disk.power is not None:
            disk.power -= 1
            if disk.power < 0:
                disk.power = None
                self._machine.world.note_crash("power")
                self._unwind()
        planned = disk.faults.get(operation)
        if planned:
            error = planned.pop(0)
            disk.has_failed = True
            raise OSError(error, os.strerror(error))

    def _unwind(self) -> None:
        """End the thread that is running: the process is no more."""
        if self._machine.is_main():
            raise Crash
        raise greenlet.GreenletExit

    def _end(self, times: float, name: str) -> None:
        """Let the operation take its time, in which others run."""
        if not name.endswith((".idx", ".new")):
            disk = self._disk
            self._machine.pause(disk.latency_s * times * (0.2 + disk.dice.random() * 2))
            self._check()
