"""`raceway seneca …`: the Seneca services behind a bus. All of it goes through the console port."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode

PATH = "/api/seneca/services"
COLUMNS = ["pin", "topic", "url", "dialect", "state", "origin", "calls", "failures", "waiting"]

seneca_app = typer.Typer(
    name="seneca", help="Seneca services behind a bus: attach one, detach one, list them.", no_args_is_help=True
)

Pin = Annotated[str, typer.Argument(help="What it answers, as `role:math,cmd:*`; several are parted by `;`.")]
Address = Annotated[
    str, typer.Argument(metavar="SERVICE", help="Where it listens: http://HOST:PORT/act or tcp://HOST:PORT.")
]


@seneca_app.command()
def attach(
    pin: Pin,
    service: Address,
    dialect: Annotated[
        Literal["auto", "L", "W", "T", "S"],
        typer.Option(help="How it speaks: legacy HTTP, web HTTP, TCP lines, protocol documents; auto: it is asked."),
    ] = "auto",
    name: Annotated[
        str, typer.Option(help="The topic of this one pin on other wires, instead of what its values make.")
    ] = "",
    admin_token: options.AdminToken = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Attach a service: it answers requests of the pin and observes its publishes, also after a restart of the bus.

    A service that is not there yet is attached all the same, and found when it comes up. Of several pins all are
    attached, or none.
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
    """Detach a service. What waits for it becomes undeliverable; one from the settings comes back at the next start."""
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
    """List attached services and how they are."""
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
