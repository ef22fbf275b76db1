"""OpenLineage events of a run: one for the beginning and one for the end of each batch, to a URL or a file.

They say which tables were computed from what, for catalogues such as Marquez or DataHub. Whoever receives them must not
hold up the tables: an event that cannot be sent is logged and left out, and for a minute none is tried.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from raceway.errors import ConfigError, PipelineError
from raceway.pipeline.lake import Lake
from raceway.pipeline.tables import MESSAGES
from raceway.wires.captures.columns import columns_of

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

SETTING = "pipeline.lineage"
NAMESPACE, JOB = "raceway", "pipeline"
# Says what made an event (OpenLineage: `producer`).
PRODUCER = "urn:raceway:pipeline"
# The variable of OpenLineage's own clients with the key for the URL.
KEY_VARIABLE = "OPENLINEAGE_API_KEY"
_TIMEOUT_S, _REST_S = 5.0, 60.0

log = structlog.get_logger("raceway.pipeline")


class BatchRun:
    """A batch in progress; whoever computes adds the tables that changed, and rows and bytes of bronze."""

    def __init__(self) -> None:
        self.id = str(uuid.uuid4())
        self.tables: list[str] = []
        self.rows = self.bytes = 0


class Lineage:
    """Sender of the events of one lake. Raises ConfigError for a place that is neither a URL nor a file."""

    def __init__(self, where: str, lake: Lake) -> None:
        self._lake = lake
        self._client = _client(where) if where else None
        self._resting_until_s = 0.0

    @contextmanager
    def batch(self) -> Iterator[BatchRun]:
        """Tell of a batch: that it began, and at the end of the context that it is complete, or failed and why."""
        run = BatchRun()
        self._send("START", run)
        try:
            yield run
        except BaseException as error:
            self._send("FAIL" if isinstance(error, Exception) else "ABORT", run, str(error))
            raise
        self._send("COMPLETE", run)

    def _send(self, kind: str, run: BatchRun, error: str = "") -> None:
        if self._client is None or time.monotonic() < self._resting_until_s:
            return
        try:
            self._client.emit(self._event(kind, run, error))
        except Exception as failure:  # noqa: BLE001 - of the library, of its transport, of the network
            self._resting_until_s = time.monotonic() + _REST_S
            log.warning("lineage event not sent", kind=kind, reason=str(failure))

    def _event(self, kind: str, run: BatchRun, error: str) -> Any:
        from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
        from openlineage.client.generated.error_message_run import ErrorMessageRunFacet

        facets: dict[str, Any] = (
            {"errorMessage": ErrorMessageRunFacet(error, "python", producer=PRODUCER)} if error else {}
        )
        inputs = [InputDataset(*_named(self._lake.folders.journal))]
        outputs = [self._output(name, run) for name in self._outputs(run)]
        return RunEvent(
            eventType=RunState[kind], eventTime=datetime.now(UTC).isoformat(), producer=PRODUCER,
            run=Run(run.id, facets), job=Job(NAMESPACE, JOB), inputs=inputs, outputs=outputs,
        )  # fmt: skip

    def _outputs(self, run: BatchRun) -> Iterable[str]:
        known = self._lake.names()
        return [name for name in dict.fromkeys(run.tables) if name in known]

    def _output(self, name: str, run: BatchRun) -> Any:
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
        from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

        table = self._lake.table(name)
        fields = [
            SchemaDatasetFacetFields(column, kind, table.metadata(column)["comment"])
            for column, kind in columns_of(table.ddl)
        ]
        written = OutputStatisticsOutputDatasetFacet(run.rows, run.bytes, producer=PRODUCER)
        return OutputDataset(
            *_named(self._lake.storage.url(name)),
            {"outputStatistics": written} if name == MESSAGES else {},
            facets={"schema": SchemaDatasetFacet(fields, producer=PRODUCER)},
        )


def _named(url: str) -> tuple[str, str]:
    """Namespace and name of a dataset, by the naming rules of OpenLineage."""
    if "://" not in url:
        return "file", url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


def _client(where: str) -> OpenLineageClient:
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport, TokenProvider
    except ImportError:
        raise PipelineError(f"{SETTING} needs OpenLineage's client: pip install 'raceway[spark]'") from None
    if where.startswith(("http://", "https://")):
        key = os.environ.get(KEY_VARIABLE)
        auth = ApiKeyTokenProvider({"apiKey": key}) if key else TokenProvider({})
        http = HttpConfig(where, timeout=_TIMEOUT_S, auth=auth, retry={"total": 0})
        return OpenLineageClient(transport=HttpTransport(http))
    if "://" in where and not where.startswith("file://"):
        raise ConfigError(SETTING, f"is the URL of a server (http://…), or a file, not {where}")
    return OpenLineageClient(transport=FileTransport(FileConfig(where.removeprefix("file://"), append=True)))
