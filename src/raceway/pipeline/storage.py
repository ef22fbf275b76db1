"""Where the tables lie: a folder, or a URL of an object store. Hadoop, delta-rs and pyarrow all read and write there,
and each has its own names for the same settings.

A URL is spelled `s3://`; `s3a://`, Hadoop's name for it, is accepted. Keys are passed on to the libraries only: they
are in no log, no plan of Spark and no table.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raceway import config
from raceway.journal.archive.store import AWS_VARIABLES, DEFAULT_REGION

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_HADOOP = "spark.hadoop."
# Each setting, and its name in Hadoop. delta-rs takes the names of `AWS_VARIABLES`.
_NAMES = {
    "endpoint": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "access_key": "fs.s3a.access.key",
    "secret_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
}


@dataclass(frozen=True, repr=False)
class Storage:
    """The place of all tables, and how each library gets there. Tasks of Spark carry it along."""

    root: str
    settings: config.StorageSettings

    @property
    def is_s3(self) -> bool:
        return self.root.startswith("s3://")

    @property
    def is_remote(self) -> bool:
        return "://" in self.root

    def url(self, table: str) -> str:
        """The folder of a table: `bronze.messages` is bronze/messages."""
        return f"{self.root}/{table.replace('.', '/')}"

    def hadoop_url(self, table: str) -> str:
        return self.url(table).replace("s3://", "s3a://", 1) if self.is_s3 else self.url(table)

    def hadoop_options(self) -> dict[str, str]:
        """Properties of a Spark session."""
        if not self.is_s3:
            return {}
        options = {_HADOOP + _NAMES[name]: value for name, value in self._given().items()}
        if self.settings.endpoint:
            # Servers other than AWS have no host name for each bucket.
            options[f"{_HADOOP}fs.s3a.path.style.access"] = "true"
            options[f"{_HADOOP}fs.s3a.connection.ssl.enabled"] = str(not self._is_plain()).lower()
        return options

    def delta_options(self) -> dict[str, str]:
        """Options of delta-rs."""
        if not self.is_s3:
            return {}
        options = {AWS_VARIABLES[name]: value for name, value in self._given().items()}
        options["AWS_ALLOW_HTTP"] = str(self._is_plain()).lower()
        return options

    def filesystem(self) -> FileSystem:
        """The file system of pyarrow; `path` names a table in it."""
        import pyarrow.fs as pafs

        if not self.is_s3:
            return pafs.FileSystem.from_uri(self.root)[0]
        given = self._given()
        endpoint = given.pop("endpoint", None)
        return pafs.S3FileSystem(endpoint_override=endpoint, **given)

    def path(self, table: str) -> str:
        """The folder of a table, as `filesystem` names it."""
        import pyarrow.fs as pafs

        url = self.url(table)
        return url.removeprefix("s3://") if self.is_s3 else str(pafs.FileSystem.from_uri(url)[1])

    def _given(self) -> dict[str, str]:
        return {name: value for name in _NAMES if (value := getattr(self.settings, name))}

    def _is_plain(self) -> bool:
        return self.settings.endpoint.startswith("http://")


def storage_of(
    root: str, settings: config.StorageSettings | None = None, conf: Mapping[str, str] | None = None
) -> Storage:
    """Complete the settings: from Spark properties that name an object store, then from the variables of AWS."""
    told = settings or config.StorageSettings()
    if not root.startswith(("s3://", "s3a://")):
        return Storage(root, told)
    known = {name: getattr(told, name) or _told_elsewhere(name, conf or {}) for name in _NAMES}
    known["region"] = known["region"] or DEFAULT_REGION
    return Storage(root.replace("s3a://", "s3://", 1), config.StorageSettings(**known))


def _told_elsewhere(name: str, conf: Mapping[str, str]) -> str:
    return conf.get(_HADOOP + _NAMES[name], "") or os.environ.get(AWS_VARIABLES[name], "")
