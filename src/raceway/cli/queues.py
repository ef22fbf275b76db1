"""`raceway queue …`: the queues of a bus.

Creating and listing use the zbus wire; peeking and purging use the console port, because the wire has neither.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.model.text import printable, shortened

queue_app = typer.Typer(
    name="queue", help="Queues: create, list, peek at waiting messages, purge.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="Name of the queue.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Bus, as zbus://HOST:PORT. Default: as for `raceway pub`."),
]


@queue_app.command()
def create(
    name: Name,
    pubsub: Annotated[
        bool, typer.Option("--pubsub", help="Publish/subscribe queue: a copy for each subscriber, nothing stored.")
    ] = False,
    token: Annotated[
        str, typer.Option("--token", metavar="TOKEN", help="Access token that clients of the queue must send.")
    ] = "",
    start: options.Start = "last",
    admin_token: options.AdminToken = "",
    url: Url = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Create a queue. An existing one of the same kind is left unchanged, including its token and position."""
    if pubsub and start != "last":
        output.fail("--start is not possible with --pubsub: such a queue stores nothing", ExitCode.USAGE)

    async def make(client: Any) -> None:
        from raceway.client import PUBSUB, QUEUE

        await client.create_queue(name, PUBSUB if pubsub else QUEUE, token, start=start)

    _ask(url, data, admin_token, make)
    if as_json:
        output.print_json({"queue": name, "pubsub": pubsub, "guarded": bool(token)})
    else:
        output.note(f"the queue {name} is there")


@queue_app.command("list")
def list_queues(
    admin_token: options.AdminToken = "", url: Url = None, data: options.Data = None, as_json: options.Json = False
) -> None:
    """List queues with their waiting messages and consumers."""

    async def ask(client: Any) -> Any:
        return await client.queues()

    rows = sorted(_ask(url, data, admin_token, ask), key=lambda row: (row.name, row.broker))
    if as_json:
        output.print_json(
            [
                {"name": row.name, "pubsub": row.is_pubsub, "mode": row.mode, "waiting": row.unconsumed_msg_count,
                 "consumers": row.consumer_count, "broker": row.broker, "creator": row.creator,
                 "created_ms": row.created_time}
                for row in rows
            ]
        )  # fmt: skip
        return
    cells = [
        (row.name, "publish/subscribe" if row.is_pubsub else "queue", row.unconsumed_msg_count, row.consumer_count,
         output.moment(row.created_time * 1000), row.broker)
        for row in rows
    ]  # fmt: skip
    output.print_table(
        "Queues", ["name", "kind", "waiting", "consumers", "made", "broker"], cells, ["waiting", "consumers"]
    )


@queue_app.command()
def peek(
    name: Name,
    count: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Number of messages, oldest first.")] = 10,
    token: Annotated[
        str, typer.Option("--token", metavar="TOKEN", help="Token of the queue, or the administrator's.")
    ] = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show waiting messages without consuming them."""
    answer = bus.call_console(bus.console_url(url, data), f"{_messages_path(name)}?limit={count}", token=token)
    messages = [row | {"payload": b64decode(row["payload"])} for row in answer["messages"]]
    if as_json:
        for message in messages:
            output.print_json(message)
        return
    cells = [
        (row["offset"], output.moment(row["time_us"]), row["kind"], row["message_id"], shortened(row["payload"]))
        for row in messages
    ]
    output.print_table("", ["offset", "time", "kind", "id", "payload"], cells, ["offset"])
    output.note(f"{answer['waiting']:,} waiting in {name}")


@queue_app.command()
def purge(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    token: Annotated[
        str, typer.Option("--token", metavar="TOKEN", help="Token of the queue, or the administrator's.")
    ] = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Drop all waiting messages of a queue. The journal keeps them; consumers will not get them."""
    address = bus.console_url(url, data)
    if not yes:
        typer.confirm(f"Drop everything that waits in {printable(name)}?", abort=True, err=True)
    purged = bus.call_console(address, _messages_path(name), "DELETE", token)["purged"]
    if as_json:
        output.print_json({"queue": name, "purged": purged})
    else:
        output.note(f"dropped {purged:,} message{'s' if purged != 1 else ''} from {name}")


def _ask(url: str | None, data: Path | None, admin_token: str, call: Callable[[Any], Awaitable[Any]]) -> Any:
    from raceway.client import connect

    address = bus.find_url(url, data, "zbus")
    if not bus.is_zbus(address):
        output.fail(f"{address} is not a zbus URL: use --url zbus://HOST:PORT", ExitCode.USAGE)

    async def run() -> Any:
        async with connect(address, admin_token=admin_token, reconnect=False) as client:
            return await call(client)

    return asyncio.run(run())


def _messages_path(name: str) -> str:
    return f"/api/queues/{quote(name, safe='')}/messages"
