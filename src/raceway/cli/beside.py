"""What `raceway up` runs beside a bus: the pipeline as a child process, if it can run here."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from raceway import config
from raceway.cli import tethered
from raceway.cli.supervising import supervising
from raceway.errors import PipelineError

log = structlog.get_logger("raceway")


@contextlib.asynccontextmanager
async def beside(
    settings: config.Config, config_file: Path | None, browser: bool, urls: dict[str, str]
) -> AsyncIterator[None]:
    """Until it is left; says where the console is, and why there are no tables if there are none."""
    log.info("console", url=f"{urls['console']}/")
    if browser:
        await asyncio.to_thread(webbrowser.open, f"{urls['console']}/")
    obstacle = await asyncio.to_thread(maybe_obstacle, settings)
    if obstacle is not None:
        log.warning("the bus runs without tables", reason=obstacle)
        yield
        return
    pipeline = settings.pipeline
    command = _command(settings, config_file)
    async with supervising(command, "the pipeline", pipeline.restart_s, pipeline.max_failures):
        yield


def maybe_obstacle(settings: config.Config) -> str | None:
    """Why there can be no tables, in a sentence."""
    from raceway.pipeline.spark import check_installed, check_java

    if settings.journal.durability == "memory":
        return "the journal is in memory (journal.durability), and the pipeline reads files"
    try:
        check_installed()
        check_java()
    except PipelineError as error:
        return str(error)
    return None


def _command(settings: config.Config, config_file: Path | None) -> list[str]:
    command = tethered.command("pipeline", "run", "--data", settings.journal.folder)
    command += ["--trigger", str(settings.pipeline.trigger_s)]
    return command + (["--config", str(config_file)] if config_file else [])
