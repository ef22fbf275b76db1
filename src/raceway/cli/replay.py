"""`raceway replay`: move the cursor of a durable subscription or queue."""

from __future__ import annotations

from typing import Annotated

import typer

from raceway.cli import options, output


def replay(
    cli: options.OverConsole,
    topic: Annotated[str, typer.Argument(help="Topic; of a Danube namespace as /NAMESPACE/TOPIC.")],
    subscription: Annotated[
        str | None,
        typer.Argument(metavar="[SUBSCRIPTION]", help="Danube subscription of the topic. Default: its zbus queue."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="`first`, `end`, or an offset; for partitions one each, separated by commas.",
        ),
    ] = "first",
) -> None:
    """Deliver messages of a topic again: move its subscription or queue to another position."""
    found = cli.ask("/api/replay", "POST", {"topic": topic, "subscription": subscription, "from": begin})
    if cli.as_json:
        output.print_json(found)
        return
    what = "the queue" if subscription is None else f"subscription {subscription}"
    typer.echo(f"{what} of {topic} continues from {found['from']}")
    for gap in found.get("gaps", ()):
        output.note(f"offsets {gap['from']} to {gap['next'] - 1} of {gap['topic']} are lost and will not be delivered")
