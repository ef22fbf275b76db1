"""Commands over Seneca, and `raceway seneca …`: the services attached to a bus, over the console port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from raceway.cli import options, output
from raceway.cli.talk import Sending, Talk

PATH = "/api/seneca/services"
COLUMNS = ("pin", "topic", "url", "dialect", "state", "origin", ">calls", ">failures", ">waiting")


class SenecaTalk(Talk):
    missing: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("sub", "topics"), "Seneca has no subscriptions: see `raceway seneca list` for what is attached"
    )

    def publishing(self, given: Sending) -> dict[str, Any]:
        # Lines over TCP have no acknowledgements.
        return {"confirm": given.confirm and not given.url.startswith("seneca+tcp:")}


seneca_app = options.Commands("seneca", "Seneca services of a bus: attach, detach, list.")

PinArgument = Annotated[str, "Pattern that the service answers, such as `role:math,cmd:*`; separate several with `;`."]
AddressArgument = Annotated[
    str, "Address of the service: http://HOST:PORT/act or tcp://HOST:PORT.", {"metavar": "SERVICE"}
]


@seneca_app.command()
def attach(
    cli: options.OverConsole,
    pin: PinArgument,
    service: AddressArgument,
    dialect: Annotated[
        Literal["auto", "L", "W", "T", "S"],
        "--dialect",
        "Dialect of the service: legacy HTTP, web HTTP, TCP lines, protocol documents; auto: detect it.",
    ] = "auto",
    name: Annotated[str, "--name", "Topic of this pattern on other wires. Default: made from its values."] = "",
) -> None:
    """Attach a service: it answers requests that match its pattern and receives matching publishes. Survives a restart.

    A service that is not running yet is attached, too, and called once it is up. Several patterns are attached together
    or not at all.
    """
    wanted = {"pin": pin, "url": service, "dialect": dialect, "name": name or None}
    rows = cli.ask(PATH, "POST", query=wanted)["services"]
    cli.tell(rows, *map(_attached, rows))


def _attached(row: dict[str, Any]) -> str:
    state = "is up" if row["state"] == "up" else f"is {row['state']}: {row['reason']}"
    return f"{row['pin']} is attached as {row['topic']}; {row['url']} {state}"


@seneca_app.command()
def detach(cli: options.OverConsole, pin: PinArgument, service: AddressArgument) -> None:
    """Detach a service. Its waiting messages become undeliverable; one from the settings is attached again at the next
    start."""
    gone = cli.ask(PATH, "DELETE", query={"pin": pin, "url": service})["detached"]
    if not gone:
        output.fail(f"{service} is not attached as {pin}")
    cli.tell({"detached": gone}, f"{service} is detached from {pin}")


@seneca_app.command("list")
def list_services(cli: options.OverConsole) -> None:
    """List attached services and their state."""
    rows = cli.ask(PATH)["services"]
    cli.show(rows, {name: name.lstrip(">") for name in COLUMNS}, "Seneca services")
    cli.note(*(f"{row['url']}: {row['reason']}" for row in rows if row["reason"]))
