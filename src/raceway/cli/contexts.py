"""`raceway context …`: saved names for buses, each with a URL and perhaps a token, and which of them is in use."""

from __future__ import annotations

from typing import Annotated

from raceway import wires
from raceway.cli import options
from raceway.cli.bus import BUS_PORTS
from raceway.cli.saved_buses import SavedBus, SavedBuses, saved_bus, saved_buses, write_buses
from raceway.net.client.address import parse_urls

context_app = options.Commands("context", "Saved buses: add, choose, list, remove.")

ContextArgument = Annotated[str, "Name of the context."]


@context_app.command()
def add(
    cli: options.Printing,
    name: ContextArgument,
    url: Annotated[str, "The bus, as raceway://HOST[:8600]; also http(s)://HOST:PORT, or a wire's URL."],
    token: options.TokenOption = "",
    use: Annotated[bool, "--use", "Use this context from now on."] = False,
) -> None:
    """Save a bus under a name, with a token if one is given. An existing context of this name is replaced."""
    parse_urls(url, BUS_PORTS | {scheme: each.default_port for scheme, each in wires.schemes().items()})
    saved = saved_buses()
    used = name if use else saved.used
    write_buses(SavedBuses(used, saved.contexts | {name: SavedBus(url, token)}))
    cli.tell(_row(name, SavedBus(url, token), used), f"context {name} is {url}{', in use' if used == name else ''}")


@context_app.command()
def use(
    cli: options.Printing,
    name: Annotated[str | None, "Name of the context. Default: none, so that the data folder's bus is found."] = None,
) -> None:
    """Use a context in all commands that name no other bus. Without a name, use none."""
    if name is not None:
        saved_bus(name, "the command line")
    write_buses(SavedBuses(name or "", saved_buses().contexts))
    cli.tell({"used": name}, "no context is in use" if name is None else f"context {name} is in use")


@context_app.command("list")
def list_contexts(cli: options.Printing) -> None:
    """List contexts. Tokens are not shown."""
    saved = saved_buses()
    rows = [_row(name, each, saved.used) for name, each in sorted(saved.contexts.items())]
    columns = {
        "name": "name", "url": "url", "token": lambda row: "yes" if row["token"] else "",
        "in use": lambda row: "yes" if row["used"] else "",
    }  # fmt: skip
    cli.show(rows, columns, "Contexts")
    if not rows:
        cli.note("`raceway context add NAME raceway://HOST` saves one")


@context_app.command()
def remove(cli: options.Printing, name: ContextArgument) -> None:
    """Remove a context. If it was in use, none is."""
    saved_bus(name, "the command line")
    saved = saved_buses()
    left = {key: each for key, each in saved.contexts.items() if key != name}
    write_buses(SavedBuses("" if saved.used == name else saved.used, left))
    cli.tell({"removed": name}, f"context {name} is removed")


def _row(name: str, saved: SavedBus, used: str) -> dict[str, object]:
    return {"name": name, "url": saved.url, "token": bool(saved.token), "used": name == used}
