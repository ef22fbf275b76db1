"""Sends spans to a collector, over OTLP.

It follows the journal, behind the commit, so messages never wait for it: a collector that is slow or gone costs nothing
but being behind. Where it has come to is kept in the journal's state, before the oldest request that is still open.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from raceway import __version__, config
from raceway.errors import TrimmedError, UnavailableError
from raceway.journal.contract import Journal
from raceway.telemetry import names
from raceway.telemetry.spans import COLUMNS, SpanFacts, SpanMaker

log = structlog.get_logger("raceway.telemetry")

SECTION, KEY = "telemetry", "position"
# Rows read at once.
READ_ROWS = 2000
# The position is kept so often at most; a restart sends what was behind it once more.
KEEP_S = 10.0
_KINDS = {names.PRODUCER: SpanKind.PRODUCER, names.CONSUMER: SpanKind.CONSUMER}


class Exporter:
    """`keep` remembers something small in the journal: section, key, value; `clock_us` is the clock of its rows."""

    def __init__(
        self,
        journal: Journal,
        settings: config.Telemetry,
        keep: Callable[[str, str, Any], None],
        clock_us: Callable[[], int],
    ) -> None:
        self._journal, self._settings, self._keep, self._clock_us = journal, settings, keep, clock_us
        self._maker = SpanMaker(settings.service_name)
        kept = journal.state.get(SECTION, KEY)
        self._position = journal.committed + 1 if kept is None else int(kept)
        self._has_sent, self._kept_at = False, time.monotonic()
        if kept is None:
            keep(SECTION, KEY, self._position)
        self._sender = OTLPSpanExporter(
            settings.endpoint, headers=dict(settings.headers), timeout=settings.timeout_ms / 1000
        )
        self._resource = Resource({names.SERVICE_NAME: settings.service_name, names.SERVICE_VERSION: __version__})
        self._scope = InstrumentationScope(names.RACEWAY, __version__)
        self._waiting: list[SpanFacts] = []
        self._is_failing = False

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            went_on = await self.step()
            self._keep_position()
            if not went_on:
                await asyncio.sleep(self._settings.interval_ms / 1000)

    async def step(self) -> bool:
        """Read the next rows and send what they make. False when there is nothing more, or nobody takes it."""
        if not self._waiting:
            end = min(self._position + READ_ROWS, self._journal.committed + 1)
            self._waiting = await asyncio.to_thread(self._read, self._position, end)
            self._position = max(end, self._position)
        if not await asyncio.to_thread(self._send, self._waiting):
            return False
        self._waiting = []
        return self._position <= self._journal.committed

    def close(self) -> None:
        self._keep_position(now=True)
        self._sender.shutdown()  # type: ignore[no-untyped-call]  # the library's

    def _read(self, begin: int, end: int) -> list[SpanFacts]:
        try:
            batches = list(self._journal.read(begin, end, COLUMNS)) if begin < end else []
        except TrimmedError:  # it was too far behind
            batches = []
        rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
        return self._maker.spans(rows, self._clock_us())

    def _send(self, spans: Sequence[SpanFacts]) -> bool:
        size = self._settings.batch_spans
        for at in range(0, len(spans), size):
            batch = [self._readable(span) for span in spans[at : at + size]]
            if self._sender.export(batch) is not SpanExportResult.SUCCESS:
                self._note_failure(True)
                return False
        if spans:
            self._has_sent = True
            self._note_failure(False)
        return True

    def _note_failure(self, failing: bool) -> None:
        if failing != self._is_failing:
            self._is_failing = failing
            (log.warning if failing else log.info)(
                "the collector takes nothing" if failing else "the collector is back", endpoint=self._settings.endpoint
            )

    def _readable(self, span: SpanFacts) -> ReadableSpan:
        trace_id = int(span.trace_id, 16)
        own, above = (
            SpanContext(trace_id, int(each, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
            for each in (span.span_id, span.parent_id or "0")
        )
        return ReadableSpan(
            span.name, own, above if span.parent_id else None, self._resource, span.attributes,
            kind=_KINDS[span.kind], status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ns, end_time=span.end_ns, instrumentation_scope=self._scope,
        )  # fmt: skip

    def _keep_position(self, now: bool = False) -> None:
        """Only if something was sent: the row this writes is no reason to write another."""
        if self._waiting or not self._has_sent or not (now or time.monotonic() - self._kept_at >= KEEP_S):
            return
        self._has_sent, self._kept_at = False, time.monotonic()
        oldest = self._maker.oldest_open
        with contextlib.suppress(UnavailableError):  # then a restart sends once more what is behind the last one kept
            self._keep(SECTION, KEY, self._position if oldest is None else min(oldest, self._position))
