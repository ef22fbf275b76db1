"""`raceway subscription …`: durable subscriptions, over the console port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import RemoteError
from raceway.model.text import printable

PATH = "/api/subscriptions"
THEN = {"block": "block", "drop": "drop", "dead-letter": "dead_letter"}
SAID = {
    "block": "blocks the subscription",
    "drop": "is dropped, and counted",
    "dead_letter": "is copied to the dead-letter topic",
}
FAILURES = (
    "max_redelivery_count", "ack_timeout_ms", "base_redelivery_delay_ms", "max_redelivery_delay_ms", "backoff",
    "poison", "dead_letter_topic",
)  # fmt: skip

subscription_app = typer.Typer(
    name="subscription",
    help="Durable subscriptions: create, list, set failure policies.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="Topic; of a Danube namespace as /NAMESPACE/TOPIC.")]
Name = Annotated[str, typer.Argument(help="Name of the subscription.")]
Token = Annotated[
    str, typer.Option("--token", metavar="TOKEN", help="Bearer token of the client, or the administrator's token.")
]


@subscription_app.command()
def create(
    topic: Topic,
    name: Name,
    kind: Annotated[
        Literal["shared", "exclusive", "failover", "key_shared"],
        typer.Option("--type", help="How consumers share the messages."),
    ] = "shared",
    start: options.Start = "last",
    create_topic: Annotated[
        bool, typer.Option("--create-topic", help="Create the topic if it does not exist.")
    ] = False,
    in_flight: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum unacknowledged messages per consumer.")
    ] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Create a subscription, which keeps messages for its consumers. An existing one keeps its position."""
    wanted = {"topic": topic, "name": name, "type": kind, "start": start, "create_topic": create_topic}
    wanted |= {} if in_flight is None else {"in_flight": in_flight}
    made = bus.call_console(bus.console_url(url, data), PATH, "POST", token, wanted)
    if as_json:
        output.print_json(made)
    else:
        how = f"created, from {start}" if made["made"] else "exists already; its position is unchanged"
        output.note(f"the subscription {name} of {made['topic']} {how}")


@subscription_app.command("list")
def list_subscriptions(
    topic: Annotated[str | None, typer.Argument(help="Only subscriptions of this topic.")] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """List subscriptions: waiting and unacknowledged messages, and which are blocked."""
    rows = [row for row in _rows(bus.console_url(url, data), token) if topic in (None, row["topic"])]
    if as_json:
        output.print_json(rows)
        return
    cells = [
        (row["topic"], row["name"], row["type"], row["lag"], f"{row['in_flight']:,}/{row['in_flight_limit']:,}",
         row["waiting"], row["dead_letters"], len(row["consumers"]), _state(row))
        for row in rows
    ]  # fmt: skip
    columns = ["topic", "name", "type", "lag", "in flight", "to repeat", "dead letters", "consumers", "state"]
    output.print_table("Subscriptions", columns, cells, columns[3:8])


@subscription_app.command()
def policy(
    topic: Topic,
    name: Name,
    max_redeliveries: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Number of redeliveries of a failed message.")
    ] = None,
    ack_timeout: Annotated[float | None, typer.Option(min=0.001, metavar="S", help="Acknowledgement timeout.")] = None,
    delay: Annotated[float | None, typer.Option(min=0, metavar="S", help="Delay of the first redelivery.")] = None,
    max_delay: Annotated[float | None, typer.Option(min=0, metavar="S", help="Maximum delay of a redelivery.")] = None,
    backoff: Annotated[
        Literal["fixed", "exponential"] | None, typer.Option(help="Whether the delay doubles with each failure.")
    ] = None,
    then: Annotated[
        Literal["block", "drop", "dead-letter"] | None,
        typer.Option(help="Action on a message that failed after all redeliveries."),
    ] = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic for such messages; implies --then dead-letter.")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Maximum unacknowledged messages per consumer; 0: adaptive."),
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the policy, so that the default of the bus applies.")
    ] = False,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show, set or remove the policy for messages that the consumers of a subscription do not acknowledge.

    Options that are not given keep their value. The subscription need not exist yet; its topic must.
    """
    address = bus.console_url(url, data)
    path = f"{PATH}/policy?{urlencode({'topic': topic, 'name': name})}"
    if dead_letter_topic and then is None:
        then = "dead-letter"
    said: dict[str, Any] = {
        "max_redelivery_count": max_redeliveries, "ack_timeout_ms": _ms(ack_timeout), "backoff": backoff,
        "base_redelivery_delay_ms": _ms(delay), "max_redelivery_delay_ms": _ms(max_delay), "in_flight": in_flight,
        "poison": THEN[then] if then else None, "dead_letter_topic": dead_letter_topic,
    }  # fmt: skip
    said = {key: value for key, value in said.items() if value is not None}
    if remove and said:
        output.fail("--remove cannot be combined with other options of the policy", ExitCode.USAGE)
    if remove:
        _removed(bus.call_console(address, path, "DELETE", token), as_json)
        return
    found = _set(address, path, token, said) if said else bus.call_console(address, path, token=token)
    if as_json:
        output.print_json(found)
    else:
        _print_policy(found)


def _set(address: str, path: str, token: str, said: dict[str, Any]) -> Any:
    """Merge the given options with those set earlier; remove the policy if none are left."""
    wanted = _own(address, path, token) | said
    if not wanted.get("in_flight", 1):
        del wanted["in_flight"]
    if not wanted:
        bus.call_console(address, path, "DELETE", token)
        return bus.call_console(address, path, token=token)
    return bus.call_console(address, path, "PUT", token, wanted)


def _own(address: str, path: str, token: str) -> dict[str, Any]:
    """Options set for the subscription itself; empty if it does not exist."""
    try:
        found = bus.call_console(address, path, token=token)
    except RemoteError as error:
        if error.reported != "404":
            raise
        return {}
    own = {key: found[key] for key in FAILURES} if found["is_own"] else {}
    own["in_flight"] = found["in_flight"]
    return {key: value for key, value in own.items() if value is not None}


def _removed(answer: Any, as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    else:
        how = "removed" if answer["removed"] else "is the default of the bus already"
        output.note(f"the policy of subscription {answer['name']} of {answer['topic']} {how}")


def _print_policy(found: dict[str, Any]) -> None:
    letters = f": {found['dead_letter_topic']}" if found["poison"] == "dead_letter" else ""
    in_flight = found["in_flight"] or f"adaptive, up to {found['max_unacked']:,}"
    rows = [
        ("policy", "own" if found["is_own"] else "default of the bus (broker.subscriptions.failure)"),
        ("redeliveries of a failed message", f"{found['max_redelivery_count']:,}"),
        ("acknowledgement timeout", _seconds(found["ack_timeout_ms"])),
        ("redelivery delay", f"{_seconds(found['base_redelivery_delay_ms'])}, {found['backoff']}, "
         f"at most {_seconds(found['max_redelivery_delay_ms'])}"),
        ("then the message", SAID[found["poison"]] + letters),
        ("unacknowledged per consumer", in_flight),
    ]  # fmt: skip
    output.print_table(f"Subscription {printable(found['name'])} of {found['topic']}", ["", ""], rows)


def _state(row: dict[str, Any]) -> str:
    return "" if row["blocked_at"] is None else f"blocked at offset {row['blocked_at']}"


def _rows(address: str, token: str) -> Iterator[dict[str, Any]]:
    after: str | None = ""
    while after is not None:
        page = bus.call_console(address, f"{PATH}/named?after={quote(after)}", token=token)
        yield from page["subscriptions"]
        after = page["after"]


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
