"""`raceway rejected …`: messages that were refused or could not be delivered, and redriving them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from raceway.cli import options, output
from raceway.errors import RemoteError
from raceway.model.text import printable

PATH = "/api/rejected"
PAGE = 500

rejected_app = options.Commands("rejected", "Refused and undeliverable messages: list, show, publish again.")

TopicFilter = Annotated[str | None, "--topic", "Only messages for this topic."]


@rejected_app.command("list")
def list_rejected(
    cli: options.OverConsole,
    source: Annotated[
        str | None, "--source NAME", "Only this kind: `rejected` (by a schema), `undeliverable` or `dead_letter`."
    ] = None,
    topic: TopicFilter = None,
    limit: Annotated[int, "--limit N", "Number of messages, newest first.", {"min": 1, "max": PAGE}] = 50,
    after: Annotated[int | None, "--after POSITION", "Only messages older than this position.", {"min": 0}] = None,
) -> None:
    """List rejected messages, newest first."""
    page = cli.ask(PATH, query={"source": source, "topic": topic, "limit": limit, "after": after})
    columns = {
        ">position": "position", "time": _time, "topic": lambda row: row.get("topic"), "wire": "wire",
        "why": lambda row: row.get("code", row["source"]), "reason": lambda row: row.get("reason"), "redriven": _went,
    }  # fmt: skip
    cli.show(page["rejected"], columns, "Rejected messages", lines=True)
    if page["after"] is not None:
        cli.note(f"there may be older messages: --after {page['after']}")


@rejected_app.command()
def show(
    cli: options.OverConsole,
    position: Annotated[int, "Position of the message, as shown by `list`.", {"min": 0}],
) -> None:
    """Show one rejected message: the reason, its state, and its payload."""
    row = cli.ask(f"{PATH}/{position}")
    if cli.prints_json(row):
        return
    message = row.pop("message")
    facts = [(name, value) for name, value in row.items() if value not in (None, "") and name != "time_us"]
    output.print_table("", ["", "rejected"], [("time", _time(row)), *facts])
    typer.echo(printable(message.get("payload") or message.get("payload_base64", "")))


@rejected_app.command()
def redrive(
    cli: options.OverConsole,
    positions: Annotated[list[int] | None, "Positions of messages, as shown by `list`."] = None,
    every: Annotated[bool, "--all", "All messages of --topic that were not redriven yet."] = False,
    topic: TopicFilter = None,
    to: Annotated[str | None, "--to TOPIC", "Publish on this topic instead of the original one."] = None,
) -> None:
    """Publish rejected messages again, unchanged. They are checked against the topic's current schema.

    Ends with status 1 if any was refused again.
    """
    if bool(positions) == every or (every and topic is None):
        output.misuse("name positions, or use --all with --topic NAME")
    chosen = positions or _open_positions(cli, topic)
    results = []
    with output.progress("redriving", len(chosen)) as bar:
        for position in chosen:
            results.append(_redriven(cli, position, to))
            bar.advance(bar.task_ids[0])
    _tell(cli, results)


def _redriven(cli: options.OverConsole, position: int, to: str | None) -> dict[str, Any]:
    try:
        return dict(cli.ask(f"{PATH}/{position}/redrive", "POST", None if to is None else {"topic": to}))
    except RemoteError as error:
        return {"position": position, "error": error.text}


def _tell(cli: options.OverConsole, results: list[dict[str, Any]]) -> None:
    refused = [result for result in results if "error" in result]
    for result in results:
        cli.tell(result, *([f"raceway: {result['position']}: {result['error']}"] if "error" in result else []))
    cli.note(f"{len(results) - len(refused):,} published again, {len(refused):,} refused")
    if refused:
        raise typer.Exit(output.ExitCode.FAILED)


def _open_positions(cli: options.OverConsole, topic: str | None) -> list[int]:
    """Positions of messages that were not redriven, oldest first."""
    found: list[int] = []
    after: int | None = None
    while True:
        page = cli.ask(PATH, query={"topic": topic, "limit": PAGE, "after": after})
        found += [row["position"] for row in page["rejected"] if row["redriven"] is None]
        after = page["after"]
        if after is None:
            return found[::-1]


def _time(row: dict[str, Any]) -> str:
    return output.moment(row["time_us"], "milliseconds")


def _went(row: dict[str, Any]) -> str:
    went = row["redriven"]
    return "" if went is None else f"{went['topic']} {went['offset']}"
