"""Place of an archive, by its URL: a folder, or a prefix of a bucket, through the file systems of pyarrow.

Objects appear whole or not at all: an object store shows them when they are complete, in a folder they are renamed. All
failures are ArchiveError, never OSError: readers take an OSError for damage of a file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from raceway import config
from raceway.config import MIB
from raceway.errors import ArchiveError, ConfigError
from raceway.journal.files import TEMPORARY, Files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

SETTING = "journal.archive"
# Enough to hide the round trip to an object store, little enough to keep a few in memory.
PIECE = 4 * MIB
# Of the AWS client; the archiver itself tries again after `archive_retry_s`.
_ATTEMPTS = 3
# The AWS client asks the network for the region if none is given, which takes seconds away from AWS.
DEFAULT_REGION = "us-east-1"
# Names of the AWS variables for what `[storage]` leaves empty.
AWS_VARIABLES = {
    "endpoint": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}


def plain_url(text: str) -> str:
    """Return the one spelling of an archive's URL. Raises ConfigError for one with a password in it."""
    # Hadoop says s3a, pyarrow and delta-rs say s3.
    url = text.replace("s3a://", "s3://", 1) if text.startswith("s3a://") else text
    if "://" not in url:
        return str(Path(url).absolute())
    try:
        parts = urlsplit(url)
        secret, bucket = parts.username or parts.password, parts.netloc or parts.path
    except ValueError as error:
        raise ConfigError(SETTING, f"not a URL: {error}") from None
    if secret:
        raise ConfigError(SETTING, "must not contain keys: set them in [storage], or in the AWS variables")
    if not bucket.strip("/"):
        raise ConfigError(SETTING, f"names no folder or bucket: {url}")
    return url.rstrip("/")


def is_url(text: str) -> bool:
    """Return whether a path is a URL, and so cannot be a data folder."""
    return "://" in text and not text.startswith("file://")


class Store:
    """Objects below one URL. Thread-safe. Nothing is connected, and pyarrow.fs not imported, before the first use."""

    def __init__(
        self, url: str, settings: config.StorageSettings | None = None, timeout_s: float = config.ARCHIVE_TIMEOUT_S
    ) -> None:
        self.url = plain_url(url)
        self._settings, self._timeout_s = settings or config.StorageSettings(), timeout_s

    # ---- objects ----------------------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        """Return the size of each object by name."""
        from pyarrow.fs import FileSelector, FileType

        with self._failures("its objects cannot be listed"):
            # A place that nobody has written to yet is empty, not missing.
            found = self._place[0].get_file_info(FileSelector(self._place[1], allow_not_found=True))
        return {each.base_name: each.size for each in found if each.type == FileType.File}

    def maybe_get(self, name: str) -> bytes | None:
        """Return the content of a small object; None if there is none."""
        with self._failures(name):
            try:
                with self._place[0].open_input_file(self._path(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def open(self, name: str) -> pa.NativeFile:
        """Open an object for reading at any position. Raises FileNotFoundError if there is none."""
        with self._failures(name):
            return self._place[0].open_input_file(self._path(name))

    def read(self, file: pa.NativeFile, name: str, size: int, position: int) -> bytes:
        """Return bytes of an open object; fewer at its end."""
        with self._failures(name):
            size = min(size, file.size() - position)
            return bytes(file.read_at(size, position)) if size > 0 else b""

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the content of an object, piece by piece. Raises ArchiveError if there is none."""
        try:
            file = self.open(name)
        except FileNotFoundError:
            raise ArchiveError(self.url, f"{name} is missing there") from None
        with file:
            position = 0
            while piece := self.read(file, name, PIECE, position):
                yield piece
                position += len(piece)

    def digest(self, name: str) -> bytes:
        """Read an object back and return its digest."""
        return digest(self.pieces(name))

    def put(self, name: str, content: Iterator[bytes]) -> None:
        """Write an object, replacing one of that name. An exception of `content` leaves none."""
        system, _ = self._place
        final = self._path(name)
        # A folder would show half a file; an object store shows nothing before the end.
        staged = final + TEMPORARY if self._is_folder else final
        with self._failures(name):
            if self._is_folder:
                system.create_dir(self._place[1], recursive=True)
            try:
                with system.open_output_stream(staged, compression=None) as stream:
                    for piece in content:
                        stream.write(piece)
            except BaseException:  # also a stop of the bus: half a file must not stay
                with suppress(Exception):
                    system.delete_file(staged)
                raise
            if self._is_folder:
                _make_durable(Path(staged), Path(final))

    def remove(self, name: str) -> None:
        with self._failures(name), suppress(FileNotFoundError):
            self._place[0].delete_file(self._path(name))

    # ---- place ------------------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, str]:
        """Return what another process needs to find the same place, without secrets."""
        told = {"url": self.url, "endpoint": self._settings.endpoint, "region": self._settings.region}
        return {name: value for name, value in told.items() if value}

    @property
    def _is_folder(self) -> bool:
        return not is_url(self.url)

    def _path(self, name: str) -> str:
        return f"{self._place[1]}/{name}"

    @cached_property
    def _place(self) -> tuple[FileSystem, str]:
        """The file system, and the path of the archive in it."""
        from pyarrow import fs

        if self._is_folder:
            return fs.LocalFileSystem(), self.url.removeprefix("file://")
        if not self.url.startswith("s3://"):
            try:
                system, path = fs.FileSystem.from_uri(self.url)
                return system, str(path)
            except (OSError, ValueError) as error:  # its ArrowInvalid is a ValueError
                raise ArchiveError(self.url, _first_line(error)) from None
        given = {name: getattr(self._settings, name) or os.environ.get(key, "") for name, key in AWS_VARIABLES.items()}
        endpoint, region = given.pop("endpoint") or None, given.pop("region") or DEFAULT_REGION
        keys = {name: value for name, value in given.items() if value}
        system = fs.S3FileSystem(
            endpoint_override=endpoint, region=region, connect_timeout=self._timeout_s,
            request_timeout=self._timeout_s, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **keys,
        )  # fmt: skip
        return system, self.url.removeprefix("s3://")

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        """Turn errors of the file system into ArchiveError; FileNotFoundError passes."""
        import pyarrow as pa

        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArchiveError(self.url, f"{what}: {_first_line(error)}") from None


def digest(pieces: Iterator[bytes]) -> bytes:
    """Return the digest of all pieces."""
    # Against faults of network and disk, not against an attacker: 16 bytes are plenty.
    found = blake2b(digest_size=16)
    for piece in pieces:
        found.update(piece)
    return found.digest()


def file_pieces(path: Path, may_go_on: Callable[[], bool] = lambda: True) -> Iterator[bytes]:
    """Yield the content of a local file. Raises ArchiveError when it must not go on."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            if not may_go_on():
                raise ArchiveError(path.name, "the bus stops")
            yield piece


def put_proven(store: Store, file: Path, may_go_on: Callable[[], bool] = lambda: True) -> None:
    """Copy a local file to the object of its name, and read it back. Raises ArchiveError if that differs."""
    store.put(file.name, file_pieces(file, may_go_on))
    # The content itself is read: what a store tells of an upload (an ETag of several parts) is no digest of it.
    if store.digest(file.name) != digest(file_pieces(file, may_go_on)):
        raise ArchiveError(store.url, f"{file.name} reads back differently from what was written")


def storage_of(facts: Mapping[str, Any], settings: config.StorageSettings | None) -> config.StorageSettings:
    """Return settings, completed by what the bus wrote down about its archive."""
    told = settings or config.StorageSettings()
    # Keys come from settings alone: what the bus wrote down has none.
    return config.StorageSettings(
        endpoint=told.endpoint or facts.get("endpoint", ""), region=told.region or facts.get("region", ""),
        access_key=told.access_key, secret_key=told.secret_key, session_token=told.session_token,
    )  # fmt: skip


def _make_durable(staged: Path, final: Path) -> None:
    """Put a file in its place, so that a power failure leaves all of it or nothing."""
    files = Files()
    descriptor = files.open(staged)
    try:
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    # Data, name, folder: a name that is durable before its data would show an empty object after a power failure.
    files.rename(staged, final)
    files.sync_folder(final.parent)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
