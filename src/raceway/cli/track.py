"""`raceway track`: run a zbus tracker."""

from __future__ import annotations

from typing import Annotated

import typer

from raceway import config
from raceway.cli import options, serve


def track(
    port: Annotated[int | None, typer.Option(metavar="N", help="Port to listen on. Default: 16666.")] = None,
    host: serve.Host = None,
    config_file: options.ConfigFile = None,
    insecure: serve.Insecure = None,
) -> None:
    """Run a zbus tracker without a bus, until SIGTERM or Ctrl-C.

    Brokers report to it; clients ask it for brokers and their queues. It stores nothing on disk. Prints `ready` on
    standard output when its port is open; logs go to standard error.
    """
    flags = {
        "listen.zbus.tracker": True,
        "listen.zbus.tracker_port": port,
        # --port takes precedence over listen.port_base in the settings.
        "listen.port_base": None if port is None else 0,
        "listen.host": host,
        "listen.insecure": insecure,
        "journal.durability": "memory",
    }
    settings = config.load(config_file, flags=flags)

    from raceway.server import logs, process

    logs.configure(settings.config.log)
    raise typer.Exit(process.run(settings, tracker_only=True))
