"""Errors of this process, its disk and its settings. The package docstring has the whole tree."""

from __future__ import annotations

from raceway.errors.root import FactsError, RacewayError

__all__ = [
    "BusyError", "ConfigError", "ConnectionLostError", "DiskFullError", "DrainingError",
    "FormatVersionError", "JournalError", "LocalError", "LockedError", "MissingRowsError", "PipelineError",
    "ReadOnlyError", "TrimmedError", "UnavailableError", "UnreachableError", "UnsupportedError",
]  # fmt: skip


class LocalError(RacewayError):
    """An error of this process, its disk or its settings."""


class ConfigError(FactsError, LocalError, code="config"):
    """The setting `key` is invalid because of `reason`; `origin` is the source of its value."""

    key: str
    reason: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" (from {self.origin})" if self.origin else ""
        return f"{self.key}: {self.reason}{where}"


class UnavailableError(FactsError, LocalError, code="unavailable", retriable=True):
    """The bus cannot do this at the moment."""

    reason: str


class ReadOnlyError(UnavailableError, code="read_only"):
    """The journal takes no writes until a restart: a sync failed, or its files were removed."""

    # Not retriable: after a failed fsync the kernel may have dropped the dirty pages, and the next sync would report
    # success for data that is lost.
    retriable = False


class DiskFullError(UnavailableError, code="disk_full"):
    """No space is left on the journal's disk, except its reserve. Writing resumes when there is space again."""


class BusyError(UnavailableError, code="busy"):
    """A queue, buffer or table of the bus is full."""


class UnreachableError(UnavailableError, code="unreachable"):
    """The connection to `address` failed; nothing was sent."""

    sentence = "{address} cannot be reached: {reason}"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (address, reason)
        self.address = address


class DrainingError(UnavailableError, code="draining"):
    """The bus is stopping and accepts no new work."""


class JournalError(LocalError, code="journal"):
    """An error of the journal's files."""


class LockedError(FactsError, JournalError, code="locked"):
    """Another process, `pid`, uses the data folder."""

    folder: str
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.folder} is in use by {holder}; stop it, or choose another folder with --data"


class FormatVersionError(FactsError, JournalError, code="format_version"):
    """The format `found` of `file` is newer than `known`, the newest this release reads."""

    sentence = "{file} has journal format {found}; this release reads format {known}: use a newer raceway"
    file: str
    found: int
    known: int


class TrimmedError(FactsError, JournalError, code="trimmed"):
    """An offset or position, `wanted`, was removed by retention; `first` is the first one left.

    `topic` is None for positions.
    """

    wanted: int
    first: int
    topic: str | None = None

    def __str__(self) -> str:
        what = f"offset {self.wanted} of topic {self.topic!r}" if self.topic else f"position {self.wanted}"
        return f"{what} was removed by retention; the first one left is {self.first}"


class MissingRowsError(FactsError, JournalError, code="missing_rows"):
    """The journal's files lack `rows` rows between the positions `first` and `last`, because of `reason`."""

    first: int
    last: int
    rows: int
    reason: str

    def __str__(self) -> str:
        where = f"position {self.first} is" if self.first == self.last else f"positions {self.first} to {self.last} are"
        some = "" if self.rows == self.last - self.first + 1 else f" in part ({self.rows} rows)"
        return f"{where} missing from the journal{some}: {self.reason}"


class UnsupportedError(FactsError, LocalError, code="unsupported"):
    """A client whose wire does not have `method`; `instead` is the one to call, if any. Raised in clients."""

    client: str
    method: str
    instead: str = ""

    def __str__(self) -> str:
        advice = f"use {self.instead}" if self.instead else "its wire does not support it"
        return f"{self.client} has no {self.method}: {advice}"


class PipelineError(LocalError, code="pipeline"):
    """An error of the tables, their checkpoint, Spark or Java; the text says what to do."""


class ConnectionLostError(FactsError, LocalError, code="connection_lost", retriable=True):
    """The connection to `address` ended before the answer arrived. Raised in clients."""

    sentence = "connection to {address} lost: {reason}"
    address: str
    reason: str
