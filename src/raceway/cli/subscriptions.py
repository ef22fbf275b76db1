"""`raceway subscription …`: durable subscriptions of topics. All of it goes through the console port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

import typer

from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import RemoteError

PATH = "/api/subscriptions"
THEN = {"block": "block", "drop": "drop", "dead-letter": "dead_letter"}
SAID = {
    "block": "stays, and what is behind it waits",
    "drop": "is dropped, and counted",
    "dead_letter": "is copied to a topic of dead letters",
}
FAILURES = (
    "max_redelivery_count", "ack_timeout_ms", "base_redelivery_delay_ms", "max_redelivery_delay_ms", "backoff",
    "poison", "dead_letter_topic",
)  # fmt: skip

subscription_app = typer.Typer(
    name="subscription",
    help="Durable subscriptions of topics: make one, list them, say what becomes of messages that fail.",
    no_args_is_help=True,
)

Topic = Annotated[str, typer.Argument(help="The topic; of a Danube namespace as /NAMESPACE/TOPIC.")]
Name = Annotated[str, typer.Argument(help="The subscription.")]
Token = Annotated[str, typer.Option("--token", metavar="TOKEN", help="Says who you are, or is the bus's own token.")]


@subscription_app.command()
def create(
    topic: Topic,
    name: Name,
    kind: Annotated[
        Literal["shared", "exclusive", "failover", "key_shared"], typer.Option("--type", help="How consumers share it.")
    ] = "shared",
    start: options.Start = "last",
    create_topic: Annotated[bool, typer.Option("--create-topic", help="Make the topic if there is none.")] = False,
    in_flight: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Messages that one consumer has at once.")
    ] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Make a subscription, which keeps messages for its consumers from now on. One that exists stays where it is."""
    wanted = {"topic": topic, "name": name, "type": kind, "start": start, "create_topic": create_topic}
    wanted |= {} if in_flight is None else {"in_flight": in_flight}
    made = bus.call_console(bus.console_url(url, data), PATH, "POST", token, wanted)
    if as_json:
        output.print_json(made)
    else:
        how = f"is there, from {start}" if made["made"] else "was there already, and stays where it is"
        output.note(f"the subscription {name} of {made['topic']} {how}")


@subscription_app.command("list")
def list_subscriptions(
    topic: Annotated[str | None, typer.Argument(help="Only those of this topic.")] = None,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """List subscriptions: what waits in each, what is in flight, and which are blocked."""
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
        int | None, typer.Option(min=0, metavar="N", help="How often a message that failed comes again.")
    ] = None,
    ack_timeout: Annotated[float | None, typer.Option(min=0.001, metavar="S", help="Time to acknowledge one.")] = None,
    delay: Annotated[float | None, typer.Option(min=0, metavar="S", help="The pause before it comes again.")] = None,
    max_delay: Annotated[float | None, typer.Option(min=0, metavar="S", help="The longest such pause.")] = None,
    backoff: Annotated[
        Literal["fixed", "exponential"] | None, typer.Option(help="Whether pauses double with each failure.")
    ] = None,
    then: Annotated[
        Literal["block", "drop", "dead-letter"] | None,
        typer.Option(help="What becomes of a message that failed too often."),
    ] = None,
    dead_letter_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where it is copied to; means --then dead-letter.")
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Messages that one consumer has at once; 0: as it acknowledges."),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take it back: the bus's settings hold again.")] = False,
    token: Token = "",
    url: options.ConsoleUrl = None,
    data: options.Data = None,
    as_json: options.Json = False,
) -> None:
    """Show, set or remove what becomes of messages that a subscription's consumers do not acknowledge.

    Options that are left out stay as they are. The subscription may still be to come; its topic must be there.
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
        output.fail("--remove takes everything back, so nothing can be set beside it", ExitCode.USAGE)
    if remove:
        _removed(bus.call_console(address, path, "DELETE", token), as_json)
        return
    found = _set(address, path, token, said) if said else bus.call_console(address, path, token=token)
    if as_json:
        output.print_json(found)
    else:
        _print_policy(found)


def _set(address: str, path: str, token: str, said: dict[str, Any]) -> Any:
    """What is said, beside what was set before. Without anything left, what was set is taken back."""
    wanted = _own(address, path, token) | said
    if not wanted.get("in_flight", 1):
        del wanted["in_flight"]
    if not wanted:
        bus.call_console(address, path, "DELETE", token)
        return bus.call_console(address, path, token=token)
    return bus.call_console(address, path, "PUT", token, wanted)


def _own(address: str, path: str, token: str) -> dict[str, Any]:
    """What is set for the subscription itself; nothing for one that is still to come."""
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
        how = "is taken back" if answer["removed"] else "was that of the bus already"
        output.note(f"the policy of subscription {answer['name']} of {answer['topic']} {how}")


def _print_policy(found: dict[str, Any]) -> None:
    letters = f": {found['dead_letter_topic']}" if found["poison"] == "dead_letter" else ""
    in_flight = found["in_flight"] or f"as it acknowledges, up to {found['max_unacked']:,}"
    rows = [
        ("policy", "its own" if found["is_own"] else "that of the bus (broker.subscriptions.failure)"),
        ("a message that failed comes again", f"{found['max_redelivery_count']:,} times"),
        ("time to acknowledge", _seconds(found["ack_timeout_ms"])),
        ("pause before it comes again", f"{_seconds(found['base_redelivery_delay_ms'])}, {found['backoff']}, "
         f"at most {_seconds(found['max_redelivery_delay_ms'])}"),
        ("then it", SAID[found["poison"]] + letters),
        ("in flight to one consumer", in_flight),
    ]  # fmt: skip
    output.print_table(f"Subscription {output.printable(found['name'])} of {found['topic']}", ["", ""], rows)


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
