"""`raceway serve` and `raceway up`: run a bus, or a bus with its pipeline."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from raceway import config, wires
from raceway.cli import options


class Listening(options.OptionRecord):
    """Options of every process that listens."""

    host: Annotated[str | None, "--host ADDRESS", "Address to listen on. Default: 127.0.0.1."] = None
    config_file: options.ConfigFile = None
    insecure: Annotated[bool | None, "--insecure", "Allow a non-loopback address without TLS."] = None

    def load(self, flags: dict[str, Any]) -> config.Settings:
        """Read the settings with the options, and with `flags`, and set up the log. Raises ConfigError."""
        from raceway.server import logs

        flags |= {"listen.host": self.host, "listen.insecure": self.insecure}
        settings = config.load(self.config_file, flags=flags, sections=wires.sections())
        logs.configure(settings.config.log)
        return settings


class BusOptions(Listening):
    """Options of a bus."""

    data: options.Data = None
    port_base: Annotated[
        int | None, "--port-base N", "First of ten consecutive ports. Default: the standard port of each wire."
    ] = None
    tls_cert: Annotated[Path | None, "--tls-cert FILE", "PEM file with the certificate chain."] = None
    tls_key: Annotated[Path | None, "--tls-key FILE", "PEM file with the private key."] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None, "--log-level", "Lowest level of log records."
    ] = None

    def load(self, flags: dict[str, Any]) -> config.Settings:
        own = {
            "journal.folder": self.data and str(self.data),
            "listen.port_base": self.port_base,
            "listen.tls_certificate": self.tls_cert and str(self.tls_cert),
            "listen.tls_key": self.tls_key and str(self.tls_key),
            "log.level": self.log_level,
        }
        return super().load(own | flags)


def serve(
    bus: BusOptions,
    durability: Annotated[
        Literal["sync", "os", "memory"] | None,
        "--durability",
        "When a message counts as stored: after fdatasync, after write, or at once (kept in memory only).",
    ] = None,
    lanes: Annotated[
        int | None,
        "--lanes N",
        "Run the bus in N processes, each with the topics of one lane. Default: 1. The number cannot change later.",
        {"min": 1, "max": 64},
    ] = None,
    cluster: Annotated[
        str | None, "--cluster URL", "Keep the journal on Kafka, in the cluster kafka://HOST:PORT,…/NAME."
    ] = None,
    advertise: Annotated[
        str | None, "--advertise HOST", "With --cluster: the name under which others reach this node."
    ] = None,
    kafka_config: Annotated[
        Path | None, "--kafka-config FILE", "With --cluster: properties of Kafka's client, one name=value per line."
    ] = None,
) -> None:
    """Run the bus until SIGTERM or Ctrl-C.

    Prints `ready` on standard output when it accepts connections on all ports, and on a terminal the URL of the console
    and what to try next; logs go to standard error. A stop refuses new work, finishes open requests and ends with
    status 0. With --cluster one node of a cluster serves; the others wait, answer 503 on `/readyz`, and take over.
    """
    settings = bus.load({
        "journal.durability": durability, "lanes.count": lanes, "cluster.url": cluster, "cluster.advertise": advertise,
        "cluster.kafka_config": kafka_config and str(kafka_config),
    })  # fmt: skip
    folder = f" --data {bus.data}" if bus.data else ""
    if settings.config.lanes.count > 1:
        # Imported on use: most buses are one process.
        from raceway.server.lanes import run_lanes

        raise typer.Exit(run_lanes(settings, partial(_welcome, folder)))
    run(settings, beside=partial(_welcomed, folder))


@asynccontextmanager
async def _welcomed(folder: str, urls: dict[str, str]) -> AsyncIterator[None]:
    _welcome(folder, urls)
    yield


def _welcome(folder: str, urls: dict[str, str]) -> None:
    """Say on a terminal where the console is and what to try next. A service manager reads `ready` alone."""
    if sys.stdout.isatty():
        print(f"the console is at {urls['console']}/")
        print("try this in other terminals:")
        print(f"  raceway sub 'hello.#'{folder}")
        print(f"  raceway pub hello.world '{{\"n\": 1}}'{folder}", flush=True)


def up(
    bus: BusOptions,
    trigger: Annotated[
        float | None, "--trigger SECONDS", "Seconds between two checks of the pipeline for new rows.", {"min": 0.1}
    ] = None,
    browser: Annotated[bool, "--browser", "Open the console in a browser."] = False,
) -> None:
    """Run the bus with its console, and the pipeline that keeps the tables up to date, until Ctrl-C.

    A pipeline that fails is restarted, later each time, until it has failed `pipeline.max_failures` times in
    succession; the bus then continues without it. Without Java or the extra `spark` the bus runs alone and logs the
    reason. Prints `ready` on standard output when it accepts connections on all ports; logs go to standard error.
    """
    settings = bus.load({"pipeline.trigger_s": trigger})
    from raceway.server import beside

    run(settings, beside=partial(beside.beside, settings.config, bus.config_file, browser))


def run(settings: config.Settings, **keywords: Any) -> NoReturn:
    from raceway.server import process

    raise typer.Exit(process.run(settings, **keywords))
