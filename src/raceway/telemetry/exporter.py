"""Exporter of spans to a collector, over OTLP.

It reads the journal after the commit, so messages never wait for it: a slow or unreachable collector only makes it lag.
Its position is stored in the journal's state, at the oldest request that is still open.
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

# Place of the position in the journal's state.
SECTION, KEY = "telemetry", "position"
# Rows read at once: bounds the memory and the time in the reading thread.
READ_ROWS = 2000
# Shortest time between two writes of the position; after a restart, spans since the last one are sent again.
KEEP_S = 10.0
_KINDS = {names.PRODUCER: SpanKind.PRODUCER, names.CONSUMER: SpanKind.CONSUMER}


class Exporter:
    """Sends spans until cancelled. `keep` stores (section, key, value) in the journal; `clock_us` is the clock of its
    rows."""

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
        # A first start begins at the end: exporting all of an old journal would flood the collector.
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
        """Export until cancelled."""
        while True:
            went_on = await self.step()
            self._keep_position()
            if not went_on:
                await asyncio.sleep(self._settings.interval_ms / 1000)

    async def step(self) -> bool:
        """Read the next rows and send their spans. Return False if nothing is left or the collector refuses them."""
        if not self._waiting:
            end = min(self._position + READ_ROWS, self._journal.committed + 1)
            # In a thread: reading and sending block, and the loop serves the wires.
            self._waiting = await asyncio.to_thread(self._read, self._position, end)
            # Advanced before the spans are sent: they wait in `_waiting` until the collector accepts them.
            self._position = max(end, self._position)
        if not await asyncio.to_thread(self._send, self._waiting):
            return False
        self._waiting = []
        return self._position <= self._journal.committed

    def close(self) -> None:
        """Store the position and close the connection to the collector."""
        self._keep_position(now=True)
        self._sender.shutdown()  # type: ignore[no-untyped-call]  # the library's

    def _read(self, begin: int, end: int) -> list[SpanFacts]:
        """Return the spans of rows `begin` to before `end`."""
        try:
            batches = list(self._journal.read(begin, end, COLUMNS)) if begin < end else []
        except TrimmedError:  # it lagged so far that retention has removed the rows
            batches = []
        rows = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
        return self._maker.spans(rows, self._clock_us())

    def _send(self, spans: Sequence[SpanFacts]) -> bool:
        """Send spans in batches; return False at the first batch that is not accepted."""
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
        """Log once when the collector starts or stops failing."""
        if failing != self._is_failing:
            self._is_failing = failing
            (log.warning if failing else log.info)(
                "collector unavailable" if failing else "collector available again", endpoint=self._settings.endpoint
            )

    def _readable(self, span: SpanFacts) -> ReadableSpan:
        """Convert to the SDK's span type."""
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
        """Store the position, but only if spans were sent: storing writes a row, which must not cause another write."""
        if self._waiting or not self._has_sent or not (now or time.monotonic() - self._kept_at >= KEEP_S):
            return
        self._has_sent, self._kept_at = False, time.monotonic()
        # A restart must see the request again, or its answer would have no span to end.
        oldest = self._maker.oldest_open
        with contextlib.suppress(UnavailableError):  # a restart then repeats the spans since the last one stored
            self._keep(SECTION, KEY, self._position if oldest is None else min(oldest, self._position))
