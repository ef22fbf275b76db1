"""Queries over HTTP that take a while: run outside the event loop.

Searching the journal is done by another process: a thread would compete with the loop for the GIL at every step. The
process is started with the first such query, reads the files as they are, and gives way to the bus. A journal in memory
has no files; a thread is used for it.

A query that is cancelled while it waits is never run; one that runs already goes on to its end, which its limit of rows
and time brings near.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from raceway import config
from raceway.broker.view import View
from raceway.errors import BusyError
from raceway.journal.contract import SearchedRows
from raceway.journal.read.reader import Reader

T = TypeVar("T")
P = ParamSpec("P")
THREADS, MAX_WAITING = 2, 16
# Below the bus, not below everything: a person waits for the answer.
NICENESS = 5
# prctl(2): send this process a signal when its parent exits.
PR_SET_PDEATHSIG = 1


class QueryPool:
    """Runs queries, a few at a time. `data` is the folder of the journal, unused if that is in memory, `storage` leads
    to its archive."""

    def __init__(self, view: View, data: Path | None, storage: config.StorageSettings | None = None) -> None:
        self._storage = storage
        self._rows = view.rows
        # Without files of its own, a journal is read in this process.
        has_files = view.health.now().journal.durability not in ("memory", "kafka")
        self._folder = data if has_files else None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="raceway-console")
        self._process: ProcessPoolExecutor | None = None
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, run in a thread. Raises BusyError if too many are waiting."""
        return await self._submit(self._threads, work)

    async def look(self, ask: Callable[Concatenate[SearchedRows, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `ask(journal, …)`, run in the other process. `ask` must be a module-level function;
        arguments and result are pickled. Raises BusyError if too many are waiting."""
        if self._folder is None:
            return await self._submit(self._threads, partial(ask, self._rows, *args, **kwargs))
        work = partial(_look, self._folder, ask, *args, **kwargs)
        try:
            return await self._submit(self._reader(), work)
        except BrokenProcessPool:  # killed, for example by the OOM killer: retry once with a new one
            self._process = None
            return await self._submit(self._reader(), work)

    def warm(self) -> None:
        """Start the other process ahead of the first query, because it takes half a second."""
        if self._folder is not None and self._process is None:
            self._reader().submit(_look, self._folder, _nothing)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.shutdown(wait=False, cancel_futures=True)

    def _reader(self) -> ProcessPoolExecutor:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            given = (os.getpid(), self._storage)
            self._process = ProcessPoolExecutor(1, mp_context=context, initializer=_settle, initargs=given)
        return self._process

    async def _submit(self, where: Executor, work: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise BusyError(f"{MAX_WAITING} queries are waiting already")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(where, work)
        finally:
            self._waiting -= 1


# ---- in the other process --------------------------------------------------------------------------------------------


class _Files:
    """A journal read from its folder. `committed` does not change during one query."""

    def __init__(self, folder: Path) -> None:
        self._reader = reader = Reader(folder, _storage)
        self.first_position, self.read, self.read_topic = reader.first_position, reader.read, reader.read_topic
        self.committed = -1

    def refresh(self) -> None:
        self.committed = self._reader.committed()
        self._reader.read(self.committed, self.committed)  # makes the reader see the newest files


_opened: dict[Path, _Files] = {}
_storage: config.StorageSettings | None = None


def _settle(parent: int, storage: config.StorageSettings | None) -> None:
    """Set a lower priority than that of the bus, ignore Ctrl-C, and make the process end with its parent."""
    global _storage  # of a process that has this one purpose
    _storage = storage
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _look(folder: Path, ask: Callable[Concatenate[SearchedRows, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    journal = _opened.get(folder)
    if journal is None:
        journal = _opened[folder] = _Files(folder)
    journal.refresh()
    return ask(journal, *args, **kwargs)


def _nothing(journal: SearchedRows) -> None:
    """Do nothing: the journal was opened by the call."""
