"""`raceway serve`: run a bus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from raceway import config
from raceway.cli import options

PortBase = Annotated[
    int | None,
    typer.Option(metavar="N", help="First of ten consecutive ports. Default: the standard port of each wire."),
]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on. Default: 127.0.0.1.")]
Insecure = Annotated[bool | None, typer.Option("--insecure", help="Allow a non-loopback address without TLS.")]
Durability = Annotated[
    Literal["sync", "os", "memory"] | None,
    typer.Option(
        help="When a message counts as stored: after fdatasync, after write, or at once (kept in memory only)."
    ),
]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file with the certificate chain.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file with the private key.")]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(help="Lowest level of log records."),
]


def serve(
    data: options.Data = None,
    port_base: PortBase = None,
    host: Host = None,
    config_file: options.ConfigFile = None,
    insecure: Insecure = None,
    durability: Durability = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    log_level: LogLevel = None,
) -> None:
    """Run the bus until SIGTERM or Ctrl-C.

    Prints `ready` on standard output when it accepts connections on all ports; logs go to standard error. A stop
    refuses new work, finishes open requests and ends with status 0.
    """
    flags = flags_of(data, port_base, host, insecure, tls_cert, tls_key, log_level)
    settings = config.load(config_file, flags=flags | {"journal.durability": durability})

    from raceway.server import logs, process

    logs.configure(settings.config.log)
    raise typer.Exit(process.run(settings))


def flags_of(
    data: Path | None,
    port_base: int | None,
    host: str | None,
    insecure: bool | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    log_level: str | None,
) -> dict[str, object]:
    """The settings that the command-line options set."""
    return {
        "journal.folder": data and str(data),
        "listen.port_base": port_base,
        "listen.host": host,
        "listen.insecure": insecure,
        "listen.tls_certificate": tls_cert and str(tls_cert),
        "listen.tls_key": tls_key and str(tls_key),
        "log.level": log_level,
    }
