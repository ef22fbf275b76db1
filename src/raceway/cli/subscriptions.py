"""`raceway subscription …` and `raceway replay`: durable subscriptions, over the console port."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from raceway.cli import options, output
from raceway.errors import RemoteError
from raceway.model.text import printable

PATH = "/api/subscriptions"
SAID = {
    "block": "blocks the subscription",
    "drop": "is dropped, and counted",
    "dead_letter": "is copied to the dead-letter topic",
}
FAILURES = (
    "max_redelivery_count", "ack_timeout_ms", "base_redelivery_delay_ms", "max_redelivery_delay_ms", "backoff",
    "poison", "dead_letter_topic",
)  # fmt: skip

subscription_app = options.Commands(
    "subscription", "Durable subscriptions: list, describe, create, delete, move, set failure policies."
)

SubscriptionArgument = Annotated[str, "Name of the subscription."]


@subscription_app.command()
def create(
    cli: options.OverConsole,
    topic: options.TopicArgument,
    name: SubscriptionArgument,
    kind: Annotated[
        Literal["shared", "exclusive", "failover", "key_shared"], "--type", "How consumers share the messages."
    ] = "shared",
    start: options.StartOption = "last",
    create_topic: Annotated[bool, "--create-topic", "Create the topic if it does not exist."] = False,
    in_flight: Annotated[
        int | None, "--in-flight N", "Maximum unacknowledged messages per consumer.", {"min": 1}
    ] = None,
) -> None:
    """Create a subscription, which keeps messages for its consumers. An existing one keeps its place."""
    wanted = {"topic": topic, "name": name, "type": kind, "start": start, "create_topic": create_topic}
    made = cli.ask(PATH, "POST", wanted | ({} if in_flight is None else {"in_flight": in_flight}))
    how = f"is created, from {start}" if made["made"] else "exists already; its place is unchanged"
    cli.tell(made, f"the subscription {name} of {made['topic']} {how}")


@subscription_app.command("list")
def list_subscriptions(
    cli: options.OverConsole,
    topic: Annotated[str | None, "Only subscriptions of this topic."] = None,
) -> None:
    """List subscriptions: waiting and unacknowledged messages, and which are blocked."""
    every = cli.list_all(f"{PATH}/named", "subscriptions")
    columns = {
        "topic": "topic", "name": "name", "type": "type", ">lag": "lag",
        ">in flight": lambda row: f"{row['in_flight']:,}/{row['in_flight_limit']:,}", ">to repeat": "waiting",
        ">dead letters": "dead_letters", ">consumers": lambda row: len(row["active"]),
        "state": lambda row: "" if row["blocked_at"] is None else f"blocked at offset {row['blocked_at']}",
    }  # fmt: skip
    cli.show([row for row in every if topic in (None, row["topic"])], columns, "Subscriptions")


@subscription_app.command()
def describe(cli: options.OverConsole, topic: options.TopicArgument, name: SubscriptionArgument) -> None:
    """Describe a subscription: its next offset, lag, consumers, and how it delivers."""
    found = cli.ask(f"{PATH}/one", query={"topic": topic, "name": name})
    if cli.prints_json(found):
        return
    for part in found["parts"]:
        title = f"Subscription {printable(part['name'])} of {printable(part['topic'])}"
        output.print_table(title, ["", ""], _facts(part))
    _print_policy(found["policy"])


def _facts(part: dict[str, Any]) -> list[tuple[str, Any]]:
    blocked = part["blocked_at"]
    return [
        ("type", part["type"]),
        ("next offset", part["cursor"]),
        ("lag", part["lag"]),
        ("in flight", f"{part['in_flight']:,} of {part['in_flight_limit']:,}"),
        ("to repeat", part["waiting"]),
        ("delivered, redelivered", f"{part['delivered']:,}, {part['redelivered']:,}"),
        ("dropped, dead letters", f"{part['dropped']:,}, {part['dead_letters']:,}"),
        ("consumers", ", ".join(_present(part)) or "none"),
        ("state", "delivers" if blocked is None else f"blocked at offset {blocked} {part['blocked_by']}".strip()),
    ]


def _present(part: dict[str, Any]) -> list[str]:
    """Names of consumers, and which of them receive nothing: because they are gone, or wait for another to go."""
    return [name if name in part["active"] else f"{name} (inactive)" for name in part["consumers"]]


@subscription_app.command()
def delete(
    cli: options.OverConsole, topic: options.TopicArgument, name: SubscriptionArgument, yes: options.Yes = False
) -> None:
    """Delete a subscription that has no live consumers, with its place in the topic. Messages stay in the journal."""
    output.confirm(f"Delete the subscription {name} of {topic} with its place in the topic?", yes=yes)
    done = cli.ask(PATH, "DELETE", query={"topic": topic, "name": name})
    cli.tell(done, f"the subscription {name} of {done['topic']} is deleted")


@subscription_app.command()
def seek(
    cli: options.OverConsole,
    topic: options.TopicArgument,
    name: SubscriptionArgument,
    to: Annotated[str, "Place: first, last, an offset (of partitions one each, separated by commas), or a time."],
) -> None:
    """Move a subscription to another place in its topic: back to deliver messages again, forward to skip some."""
    _move(cli, topic, name, to)


def replay(
    cli: options.OverConsole,
    topic: options.TopicArgument,
    subscription: Annotated[
        str | None, "Danube subscription of the topic. Default: its zbus queue.", {"metavar": "[SUBSCRIPTION]"}
    ] = None,
    begin: Annotated[
        str, "--from PLACE", "`first`, `end`, a time, or an offset; for partitions one each, separated by commas."
    ] = "first",
) -> None:
    """Deliver messages of a topic again: move its subscription or queue to another place in it."""
    _move(cli, topic, subscription, begin)


def _move(cli: options.OverConsole, topic: str, subscription: str | None, begin: str) -> None:
    found = cli.ask("/api/replay", "POST", {"topic": topic, "subscription": subscription, "from": begin})
    if cli.prints_json(found):
        return
    what = "the queue" if subscription is None else f"subscription {subscription}"
    typer.echo(f"{what} of {topic} continues from {found['from']}")
    for gap in found.get("gaps", ()):
        output.note(f"offsets {gap['from']} to {gap['next'] - 1} of {gap['topic']} are lost and will not be delivered")


class FailureOptions(options.OptionRecord):
    """The options of a failure policy."""

    max_redeliveries: Annotated[
        int | None, "--max-redeliveries N", "Number of redeliveries of a failed message.", {"min": 0}
    ] = None
    ack_timeout: Annotated[float | None, "--ack-timeout S", "Acknowledgement timeout.", {"min": 0.001}] = None
    delay: Annotated[float | None, "--delay S", "Delay of the first redelivery.", {"min": 0}] = None
    max_delay: Annotated[float | None, "--max-delay S", "Maximum delay of a redelivery.", {"min": 0}] = None
    backoff: Annotated[
        Literal["fixed", "exponential"] | None, "--backoff", "Whether the delay doubles with each failure."
    ] = None
    then: Annotated[
        Literal["block", "drop", "dead-letter"] | None,
        "--then",
        "Action on a message that failed after all redeliveries.",
    ] = None
    dead_letter_topic: Annotated[
        str | None, "--dead-letter-topic TOPIC", "Topic for such messages; implies --then dead-letter."
    ] = None
    in_flight: Annotated[
        int | None, "--in-flight N", "Maximum unacknowledged messages per consumer; 0: adaptive.", {"min": 0}
    ] = None
    remove: Annotated[bool, "--remove", "Remove the policy, so that the default of the bus applies."] = False

    def document(self) -> dict[str, Any]:
        """The options that were given, as the console port names them."""
        then = self.then or ("dead-letter" if self.dead_letter_topic else None)
        said = {
            "max_redelivery_count": self.max_redeliveries, "ack_timeout_ms": _ms(self.ack_timeout),
            "backoff": self.backoff, "base_redelivery_delay_ms": _ms(self.delay),
            "max_redelivery_delay_ms": _ms(self.max_delay), "in_flight": self.in_flight,
            "poison": then and then.replace("-", "_"), "dead_letter_topic": self.dead_letter_topic,
        }  # fmt: skip
        return {key: value for key, value in said.items() if value is not None}


@subscription_app.command()
def policy(
    topic: options.TopicArgument, name: SubscriptionArgument, failures: FailureOptions, cli: options.OverConsole
) -> None:
    """Show, set or remove the policy for messages that the consumers of a subscription do not acknowledge.

    Options that are not given keep their value. The subscription need not exist yet; its topic must.
    """
    said, query = failures.document(), {"topic": topic, "name": name}
    if failures.remove and said:
        output.misuse("--remove cannot be combined with other options of the policy")
    if failures.remove:
        answer = _call(cli, query, "DELETE")
        how = "removed" if answer["removed"] else "is the default of the bus already"
        cli.tell(answer, f"the policy of subscription {answer['name']} of {answer['topic']} {how}")
        return
    found = _set(cli, query, said) if said else _call(cli, query)
    if not cli.prints_json(found):
        _print_policy(found)


def _call(cli: options.OverConsole, query: dict[str, str], method: str = "GET", document: Any = None) -> Any:
    return cli.ask(f"{PATH}/policy", method, document, query=query)


def _set(cli: options.OverConsole, query: dict[str, str], said: dict[str, Any]) -> Any:
    """Merge the given options with those set earlier; remove the policy if none are left."""
    wanted = _own(cli, query) | said
    if not wanted.get("in_flight", 1):
        del wanted["in_flight"]
    if not wanted:
        _call(cli, query, "DELETE")
        return _call(cli, query)
    return _call(cli, query, "PUT", wanted)


def _own(cli: options.OverConsole, query: dict[str, str]) -> dict[str, Any]:
    """Options set for the subscription itself; empty if it does not exist."""
    try:
        found = _call(cli, query)
    except RemoteError as error:
        if error.reported != "404":
            raise
        return {}
    own = {key: found[key] for key in FAILURES} if found["is_own"] else {}
    own["in_flight"] = found["in_flight"]
    return {key: value for key, value in own.items() if value is not None}


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
    output.print_table(
        f"Failure policy of {printable(found['name'])}, a subscription of {found['topic']}", ["", ""], rows
    )


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:g} s"
