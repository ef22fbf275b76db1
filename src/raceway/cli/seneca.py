"""`raceway seneca …`: the Seneca services attached to a bus, over the console port."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode

PATH = "/api/seneca/services"
COLUMNS = ["pin", "topic", "url", "dialect", "state", "origin", "calls", "failures", "waiting"]

seneca_app = typer.Typer(name="seneca", help="Seneca services of a bus: attach, detach, list.", no_args_is_help=True)

Pin = Annotated[
    str, typer.Argument(help="Pattern that the service answers, such as `role:math,cmd:*`; separate several with `;`.")
]
Address = Annotated[
    str, typer.Argument(metavar="SERVICE", help="Address of the service: http://HOST:PORT/act or tcp://HOST:PORT.")
]


@seneca_app.command()
def attach(
    pin: Pin,
    service: Address,
    dialect: Annotated[
        Literal["auto", "L", "W", "T", "S"],
        typer.Option(
            help="Dialect of the service: legacy HTTP, web HTTP, TCP lines, protocol documents; auto: detect it."
        ),
    ] = "auto",
    name: Annotated[
        str, typer.Option(help="Topic of this pattern on other wires. Default: made from its values.")
    ] = "",
    admin_token: options.AdminToken = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Attach a service: it answers requests that match its pattern and receives matching publishes. Survives a restart.

    A service that is not running yet is attached, too, and called once it is up. Several patterns are attached together
    or not at all.
    """
    wanted = {"pin": pin, "url": service, "dialect": dialect} | ({"name": name} if name else {})
    rows = _call("POST", wanted, url, data, admin_token)["services"]
    if as_json:
        output.print_json(rows)
        return
    for row in rows:
        state = "is up" if row["state"] == "up" else f"is {row['state']}: {row['reason']}"
        output.note(f"{row['pin']} is attached as {row['topic']}; {row['url']} {state}")


@seneca_app.command()
def detach(
    pin: Pin,
    service: Address,
    admin_token: options.AdminToken = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Detach a service. Its waiting messages become undeliverable; one from the settings is attached again at the next
    start."""
    gone = _call("DELETE", {"pin": pin, "url": service}, url, data, admin_token)["detached"]
    if not gone:
        output.fail(f"{service} is not attached as {pin}", ExitCode.FAILED)
    if as_json:
        output.print_json({"detached": gone})
    else:
        output.note(f"{service} is detached from {pin}")


@seneca_app.command("list")
def list_services(
    admin_token: options.AdminToken = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """List attached services and their state."""
    rows = _call("GET", {}, url, data, admin_token)["services"]
    if as_json:
        output.print_json(rows)
        return
    cells = [tuple(row[name] for name in COLUMNS) for row in rows]
    output.print_table("Seneca services", COLUMNS, cells, ["calls", "failures", "waiting"])
    for row in rows:
        if row["reason"]:
            output.note(f"{row['url']}: {row['reason']}")


def _call(method: str, query: dict[str, str], url: str | None, data: Path | None, token: str) -> Any:
    path = f"{PATH}?{urlencode(query)}" if query else PATH
    return bus.call_console(bus.console_url(url, data), path, method, token)
