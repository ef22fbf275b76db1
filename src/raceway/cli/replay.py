"""`raceway replay`: move the cursor of a durable subscription or queue."""

from __future__ import annotations

from typing import Annotated

import typer

from raceway.cli import bus, options, output

Topic = Annotated[str, typer.Argument(help="Topic; of a Danube namespace as /NAMESPACE/TOPIC.")]
Name = Annotated[
    str | None,
    typer.Argument(metavar="[SUBSCRIPTION]", help="Danube subscription of the topic. Default: its zbus queue."),
]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="PLACE", help="`first`, `end`, or an offset; for partitions one each, separated by commas."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token", metavar="TOKEN", help="Bearer token of the client, or the queue's or administrator's token."
    ),
]


def replay(
    topic: Topic,
    subscription: Name = None,
    begin: From = "first",
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Deliver messages of a topic again: move its subscription or queue to another position."""
    wanted = {"topic": topic, "subscription": subscription, "from": begin}
    found = bus.call_console(bus.console_url(url, data), "/api/replay", "POST", token, wanted)
    if as_json:
        output.print_json(found)
    else:
        what = "the queue" if subscription is None else f"subscription {subscription}"
        typer.echo(f"{what} of {topic} continues from {found['from']}")
        for gap in found.get("gaps", ()):
            output.note(
                f"offsets {gap['from']} to {gap['next'] - 1} of {gap['topic']} are lost and will not be delivered"
            )
