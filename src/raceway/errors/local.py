"""What goes wrong on our own side: this process, its disk, its settings."""

from __future__ import annotations

from raceway.errors.root import RacewayError


class LocalError(RacewayError):
    """Our doing: this process, its disk, its settings."""


class ConfigError(LocalError):
    """`key` cannot be used because of `reason`; `origin` says where the value came from."""

    code = "config"

    def __init__(self, key: str, reason: str, origin: str = "") -> None:
        super().__init__(key, reason, origin)
        self.key, self.reason, self.origin = key, reason, origin

    def __str__(self) -> str:
        where = f" (from {self.origin})" if self.origin else ""
        return f"{self.key}: {self.reason}{where}"


class UnavailableError(LocalError):
    """The bus cannot do it now."""

    code = "unavailable"
    retriable = True

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ReadOnlyError(UnavailableError):
    """A sync failed, and the kernel may have dropped the pages; or the journal's files were taken away. Only a restart
    ends this."""

    code = "read_only"
    retriable = False


class DiskFullError(UnavailableError):
    """No space left on the journal's disk, or only its reserve; it goes on by itself when there is space again."""

    code = "disk_full"


class BusyError(UnavailableError):
    """Too much is waiting already."""

    code = "busy"


class UnreachableError(UnavailableError):
    """No connection to `address` can be had: nothing was sent there."""

    code = "unreachable"

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(reason)
        self.args = (address, reason)
        self.address = address

    def __str__(self) -> str:
        return f"{self.address} cannot be reached: {self.reason}"


class DrainingError(UnavailableError):
    """The bus is stopping and takes nothing new."""

    code = "draining"


class JournalError(LocalError):
    """The journal's files."""

    code = "journal"


class LockedError(JournalError):
    """Another process, `pid`, holds the data folder."""

    code = "locked"

    def __init__(self, folder: str, pid: int | None) -> None:
        super().__init__(folder, pid)
        self.folder, self.pid = folder, pid

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid else "another process"
        return f"the data folder {self.folder} is in use by {holder}; stop it, or choose another folder with --data"


class FormatVersionError(JournalError):
    """`file` has format `found`; this release reads up to `known`."""

    code = "format_version"

    def __init__(self, file: str, found: int, known: int) -> None:
        super().__init__(file, found, known)
        self.file, self.found, self.known = file, found, known

    def __str__(self) -> str:
        return (
            f"{self.file} has journal format {self.found}; this release reads format {self.known}: use a newer raceway"
        )


class DamagedError(JournalError):
    """Bytes of `file` that could not be repaired; rows `first` to `last` are lost."""

    code = "damaged"

    def __init__(self, file: str, first: int, last: int, reason: str) -> None:
        super().__init__(file, first, last, reason)
        self.file, self.first, self.last, self.reason = file, first, last, reason

    def __str__(self) -> str:
        return f"{self.file}: rows {self.first} to {self.last} are damaged ({self.reason})"


class TrimmedError(JournalError):
    """`wanted` was removed by retention; `first` is the first one left. `topic` is None for positions."""

    code = "trimmed"

    def __init__(self, wanted: int, first: int, topic: str | None = None) -> None:
        super().__init__(wanted, first, topic)
        self.wanted, self.first, self.topic = wanted, first, topic

    def __str__(self) -> str:
        what = f"offset {self.wanted} of topic {self.topic!r}" if self.topic else f"position {self.wanted}"
        return f"{what} was removed by retention; the first one left is {self.first}"


class MissingRowsError(JournalError):
    """`rows` rows between the positions `first` and `last` did not come, for the `reason` given."""

    code = "missing_rows"

    def __init__(self, first: int, last: int, rows: int, reason: str) -> None:
        super().__init__(first, last, rows, reason)
        self.first, self.last, self.rows, self.reason = first, last, rows, reason

    def __str__(self) -> str:
        where = f"position {self.first} is" if self.first == self.last else f"positions {self.first} to {self.last} are"
        some = "" if self.rows == self.last - self.first + 1 else f" in part ({self.rows} rows)"
        return f"{where} missing from the journal{some}: {self.reason}"


class PipelineError(LocalError):
    """Something about the tables, their checkpoint, Spark or Java; the text says what to do."""

    code = "pipeline"


class ConnectionLostError(LocalError):
    """A client's connection to `address` ended before the answer came."""

    code = "connection_lost"
    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address, self.reason = address, reason

    def __str__(self) -> str:
        return f"connection to {self.address} lost: {self.reason}"
