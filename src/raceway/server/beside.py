"""What `raceway up` runs besides the bus: the pipeline as a child process, if its requirements are met."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from raceway import config
from raceway.errors import PipelineError
from raceway.server import tethered
from raceway.server.supervising import supervising

log = structlog.get_logger("raceway")


@contextlib.asynccontextmanager
async def beside(
    settings: config.Config, config_file: Path | None, browser: bool, urls: dict[str, str]
) -> AsyncIterator[None]:
    """Run the pipeline during the context; if its requirements are not met, log the reason instead."""
    log.info("console ready", url=f"{urls['console']}/")
    if browser:
        await asyncio.to_thread(webbrowser.open, f"{urls['console']}/")
    obstacle = await asyncio.to_thread(maybe_obstacle, settings)
    if obstacle is not None:
        log.warning("pipeline not started", reason=obstacle)
        yield
        return
    pipeline = settings.pipeline
    command = tethered.command("pipeline", "run", "--data", settings.journal.folder)
    command += ["--trigger", str(pipeline.trigger_s), *(["--config", str(config_file)] if config_file else [])]
    async with supervising(command, "pipeline", pipeline.restart_s, pipeline.max_failures):
        yield


def maybe_obstacle(settings: config.Config) -> str | None:
    """The reason why the pipeline cannot run here; None if it can."""
    from raceway.pipeline.spark import check_installed, check_java

    if settings.journal.durability == "memory":
        return "journal.durability is `memory`, and the pipeline reads the journal's files"
    if settings.cluster.url:
        return "the journal is on Kafka (cluster.url), and the pipeline reads the journal's files"
    try:
        check_installed()
        check_java()
    except PipelineError as error:
        return str(error)
    return None
