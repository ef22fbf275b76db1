"""`GET /api/cluster`: nodes, lane and brokers of the cluster that this node serves.

Kafka is asked at most once in `LEAST_S`, however many consoles look.
"""

from __future__ import annotations

import asyncio
import time

import msgspec

from raceway.model.clusters import ClusterStatus
from raceway.web.routing import LOOKUP, Site, SiteRoutes, get

LEAST_S = 2.0


class Clustered(msgspec.Struct, frozen=True):
    """Status of the cluster; null for a bus whose journal is on its own disk."""

    cluster: ClusterStatus | None


class ClusterRoutes(SiteRoutes):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._lock = asyncio.Lock()
        self._found, self._found_s = Clustered(None), -LEAST_S

    @get("/api/cluster", LOOKUP, "bus")
    async def status(self) -> Clustered:
        """Status of the cluster."""
        ask = self._site.cluster
        if ask is None:
            return self._found
        async with self._lock:
            if time.monotonic() - self._found_s >= LEAST_S:
                self._found = Clustered(await self._site.desk.run(ask))
                self._found_s = time.monotonic()
        return self._found
