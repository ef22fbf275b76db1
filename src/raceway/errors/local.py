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


class ConfigError(FactsError, LocalError):
    """The setting `key` is invalid because of `reason`; `origin` is the source of its value."""

    code = "config"
    key: str
    reason: str
    origin: str = ""

    def __str__(self) -> str:
        where = f" (from {self.origin})" if self.origin else ""
        return f"{self.key}: {self.reason}{where}"


class UnavailableError(FactsError, LocalError):
    """The bus cannot do this at the moment."""

    code = "unavailable"
    retriable = True
    reason: str


class ReadOnlyError(UnavailableError):
    """The journal takes no writes until a restart: a sync failed, or its files were removed."""

    # Not retriable: after a failed fsync the kernel may have dropped the dirty pages, and the next sync would report
    # success for data that is lost.
    code = "read_only"
    retriable = False


class DiskFullError(UnavailableError):
    """No space is left on the journal's disk, except its reserve. Writing resumes when there is space again."""

    code = "disk_full"


class BusyError(UnavailableError):
    """A queue, buffer or table of the bus is full."""

    code = "busy"


class UnreachableError(UnavailableError):
    """The connection to `address` failed; nothing was sent."""

    code = "unreachable"
    sentence = "{address} cannot be reached: {reason}"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (address, reason)
        self.address = address


class DrainingError(UnavailableError):
    """The bus is stopping and accepts no new work."""

    code = "draining"


class JournalError(LocalError):
    """An error of the journal's files."""

    code = "journal"


class LockedError(FactsError, JournalError):
    """Another process, `pid`, uses the data folder."""

    code = "locked"
    folder: str
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.folder} is in use by {holder}; stop it, or choose another folder with --data"


class FormatVersionError(FactsError, JournalError):
    """The format `found` of `file` is newer than `known`, the newest this release reads."""

    code = "format_version"
    sentence = "{file} has journal format {found}; this release reads format {known}: use a newer raceway"
    file: str
    found: int
    known: int


class TrimmedError(FactsError, JournalError):
    """An offset or position, `wanted`, was removed by retention; `first` is the first one left.

    `topic` is None for positions.
    """

    code = "trimmed"
    wanted: int
    first: int
    topic: str | None = None

    def __str__(self) -> str:
        what = f"offset {self.wanted} of topic {self.topic!r}" if self.topic else f"position {self.wanted}"
        return f"{what} was removed by retention; the first one left is {self.first}"


class MissingRowsError(FactsError, JournalError):
    """The journal's files lack `rows` rows between the positions `first` and `last`, because of `reason`."""

    code = "missing_rows"
    first: int
    last: int
    rows: int
    reason: str

    def __str__(self) -> str:
        where = f"position {self.first} is" if self.first == self.last else f"positions {self.first} to {self.last} are"
        some = "" if self.rows == self.last - self.first + 1 else f" in part ({self.rows} rows)"
        return f"{where} missing from the journal{some}: {self.reason}"


class UnsupportedError(FactsError, LocalError):
    """A client whose wire does not have `method`; `instead` is the one to call, if any. Raised in clients."""

    code = "unsupported"
    client: str
    method: str
    instead: str = ""

    def __str__(self) -> str:
        advice = f"use {self.instead}" if self.instead else "its wire does not support it"
        return f"{self.client} has no {self.method}: {advice}"


class PipelineError(LocalError):
    """An error of the tables, their checkpoint, Spark or Java; the text says what to do."""

    code = "pipeline"


class ConnectionLostError(FactsError, LocalError):
    """The connection to `address` ended before the answer arrived. Raised in clients."""

    code = "connection_lost"
    retriable = True
    sentence = "connection to {address} lost: {reason}"
    address: str
    reason: str
