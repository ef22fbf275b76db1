"""`raceway rejected …`: messages that were refused or could not be delivered, and redriving them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import RemoteError
from raceway.model.text import printable

PATH = "/api/rejected"
PAGE = 500

rejected_app = typer.Typer(
    name="rejected",
    help="Refused and undeliverable messages: list, show, publish again.",
    no_args_is_help=True,
)

Token = Annotated[
    str, typer.Option("--token", metavar="TOKEN", help="Bearer token of the client, or the administrator's token.")
]
Source = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only this kind: `rejected` (by a schema), `undeliverable` or `dead_letter`."),
]
Topic = Annotated[str | None, typer.Option(help="Only messages for this topic.")]


@rejected_app.command("list")
def list_rejected(
    source: Source = None,
    topic: Topic = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, metavar="N", help="Number of messages, newest first.")] = 50,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="POSITION", help="Only messages older than this position.")
    ] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """List rejected messages, newest first."""
    page = _page(bus.console_url(url, data), token, source=source, topic=topic, limit=limit, after=after)
    if as_json:
        for row in page["rejected"]:
            output.print_json(row)
        return
    cells = [
        (row["position"], output.moment(row["time_us"], "milliseconds"), row.get("topic"), row["wire"],
         row.get("code", row["source"]), row.get("reason"), _went(row))
        for row in page["rejected"]
    ]  # fmt: skip
    columns = ["position", "time", "topic", "wire", "why", "reason", "redriven"]
    output.print_table("", columns, cells, ["position"])
    if page["after"] is not None:
        output.note(f"there may be older messages: --after {page['after']}")


@rejected_app.command()
def show(
    position: Annotated[int, typer.Argument(min=0, help="Position of the message, as shown by `list`.")],
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show one rejected message: the reason, its state, and its payload."""
    row = bus.call_console(bus.console_url(url, data), f"{PATH}/{position}", token=token)
    if as_json:
        output.print_json(row)
        return
    message = row.pop("message")
    facts = [(name, value) for name, value in row.items() if value not in (None, "") and name != "time_us"]
    output.print_table("", ["", "rejected"], [("time", output.moment(row["time_us"], "milliseconds")), *facts])
    typer.echo(printable(message.get("payload") or message.get("payload_base64", "")))


@rejected_app.command()
def redrive(
    positions: Annotated[list[int] | None, typer.Argument(help="Positions of messages, as shown by `list`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All messages of --topic that were not redriven yet.")] = False,
    topic: Topic = None,
    to: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Publish on this topic instead of the original one.")
    ] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Publish rejected messages again, unchanged. They are checked against the topic's current schema.

    Ends with status 1 if any was refused again.
    """
    if bool(positions) == every or (every and topic is None):
        output.fail("name positions, or use --all with --topic NAME", ExitCode.USAGE)
    address = bus.console_url(url, data)
    chosen = positions or _open_positions(address, token, topic)
    results = []
    with output.progress("redriving", len(chosen)) as bar:
        for position in chosen:
            results.append(_redriven(address, position, to, token))
            bar.advance(bar.task_ids[0])
    _tell(results, as_json)


def _redriven(address: str, position: int, to: str | None, token: str) -> dict[str, Any]:
    document = None if to is None else {"topic": to}
    try:
        answer = bus.call_console(address, f"{PATH}/{position}/redrive", "POST", token, document)
    except RemoteError as error:
        return {"position": position, "error": error.text}
    return dict(answer)


def _tell(results: list[dict[str, Any]], as_json: bool) -> None:
    refused = [result for result in results if "error" in result]
    for result in results:
        if as_json:
            output.print_json(result)
        elif "error" in result:
            output.complain(f"{result['position']}: {result['error']}")
    if not as_json:
        output.note(f"{len(results) - len(refused):,} published again, {len(refused):,} refused")
    if refused:
        raise typer.Exit(ExitCode.FAILED)


def _open_positions(address: str, token: str, topic: str | None) -> list[int]:
    """Positions of messages that were not redriven, oldest first."""
    found: list[int] = []
    after: int | None = None
    while True:
        page = _page(address, token, source=None, topic=topic, limit=PAGE, after=after)
        found += [row["position"] for row in page["rejected"] if row["redriven"] is None]
        after = page["after"]
        if after is None:
            return found[::-1]


def _page(address: str, token: str, **query: Any) -> Any:
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    return bus.call_console(address, f"{PATH}?{asked}", token=token)


def _went(row: dict[str, Any]) -> str:
    went = row["redriven"]
    return "" if went is None else f"{went['topic']} {went['offset']}"
