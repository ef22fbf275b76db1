"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one document per line.")]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Data folder. Default: the setting journal.folder.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings file (TOML). Default: the file named by RACEWAY_CONFIG, if set."
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=(
            "The bus, as mb://HOST:PORT; also mb+tls, mb+ws, mb+wss, danube, danube+tls, zbus, seneca, seneca+tcp, and "
            "zbus+track for a tracker. Default: RACEWAY_URL, else the bus that runs on the data folder."
        ),
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token", metavar="TOKEN", help="zbus: access token of the queue. Danube: bearer token of the client."
    ),
]
AdminToken = Annotated[
    str, typer.Option("--admin-token", metavar="TOKEN", help="Administrator's token (listen.zbus.admin_token), if set.")
]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="PLACE",
        help="Where in its topic a new one begins: first, last, an offset, or a time such as 2026-01-31T12:00:00Z.",
    ),
]
ConsoleUrl = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="Console port, as http://HOST:PORT. Default: that of the bus on the data folder."
    ),
]
