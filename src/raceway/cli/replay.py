"""`raceway replay`: let a durable subscription, or a queue, go on from another place of its topic."""

from __future__ import annotations

from typing import Annotated

import typer

from raceway.cli import bus, options, output

Topic = Annotated[str, typer.Argument(help="The topic; of a Danube namespace as /NAMESPACE/TOPIC.")]
Name = Annotated[
    str | None, typer.Argument(metavar="[SUBSCRIPTION]", help="Its Danube subscription. Without: its zbus queue.")
]
From = Annotated[
    str,
    typer.Option("--from", metavar="PLACE", help="`first`, `end`, or an offset; for partitions one each, by commas."),
]
Token = Annotated[
    str, typer.Option("--token", metavar="TOKEN", help="Says who you are; or the bus's or queue's token.")
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
    """Deliver a topic's messages again: its subscription or queue goes on from another place."""
    wanted = {"topic": topic, "subscription": subscription, "from": begin}
    found = bus.call_console(bus.console_url(url, data), "/api/replay", "POST", token, wanted)
    if as_json:
        output.print_json(found)
    else:
        what = "the queue" if subscription is None else f"subscription {subscription}"
        typer.echo(f"{what} of {topic} goes on from {found['from']}")
        for gap in found.get("gaps", ()):
            output.note(f"offsets {gap['from']} to {gap['next'] - 1} of {gap['topic']} are lost and will not come")
