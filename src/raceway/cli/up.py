"""`raceway up`: run the bus, its console and the pipeline."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from raceway import config
from raceway.cli import options, serve


def up(
    data: options.Data = None,
    port_base: serve.PortBase = None,
    host: serve.Host = None,
    config_file: options.ConfigFile = None,
    insecure: serve.Insecure = None,
    tls_cert: serve.TlsCert = None,
    tls_key: serve.TlsKey = None,
    log_level: serve.LogLevel = None,
    trigger: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Seconds between two checks of the pipeline for new rows.", min=0.1),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open the console in a browser.")] = False,
) -> None:
    """Run the bus with its console, and the pipeline that keeps the tables up to date, until Ctrl-C.

    A pipeline that fails is restarted, later each time, until it has failed `pipeline.max_failures` times in a row; the
    bus then continues without it. Without Java or the extra `spark` the bus runs alone and logs the reason. Prints
    `ready` on standard output when it accepts connections on all ports; logs go to standard error.
    """
    flags = serve.flags_of(data, port_base, host, insecure, tls_cert, tls_key, log_level)
    settings = config.load(config_file, flags=flags | {"pipeline.trigger_s": trigger})

    from raceway.server import beside, logs, process

    logs.configure(settings.config.log)
    raise typer.Exit(process.run(settings, beside=partial(beside.beside, settings.config, config_file, browser)))
