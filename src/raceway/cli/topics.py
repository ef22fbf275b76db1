"""`raceway topic …`: topics of a running bus, over the console port."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from raceway.cli import options, output
from raceway.model.text import printable

PATH = "/api/topics"

topic_app = options.Commands("topic", "Topics: list, describe, create, delete.")


@topic_app.command("list")
def list_topics(
    cli: options.OverConsole,
    contains: Annotated[str, "--contains TEXT", "Only topics whose name contains this text."] = "",
) -> None:
    """List topics: stored offsets, rate, and the backlog of the slowest subscription or queue."""
    found = cli.list_all(PATH, "topics", contains=contains)
    columns = {
        "topic": "topic", ">first": "first", ">next": "next", ">rate/s": "rate", ">backlog": "backlog",
        ">subscriptions": "subscriptions",
    }  # fmt: skip
    cli.show(found, columns, "Topics")


@topic_app.command()
def describe(cli: options.OverConsole, topic: options.TopicArgument) -> None:
    """Describe a topic: offsets, schema, subscriptions, queue, and who is connected to it."""
    found = cli.ask(f"{PATH}/{quote(topic)}")
    if cli.prints_json(found):
        return
    facts: list[tuple[str, Any]] = [
        ("stored offsets", f"{found['first']:,} to {found['next'] - 1:,}" if found["next"] else "none"),
        ("messages a second", found["rate"]),
        ("backlog", found["backlog"]),
        ("schema", f"{found['subject']} ({found['policy']})" if found["subject"] else "none"),
    ]
    if found["partitions"]:
        facts.append(("partitions", ", ".join(found["partitions"])))
    if found["queue"]:
        facts.append(("queue", f"{found['queue']['waiting']:,} waiting, {found['queue']['consumers']:,} consumers"))
    output.print_table(f"Topic {printable(found['topic'])}", ["", ""], facts)
    if found["subscriptions"]:
        columns = {
            "subscription": "name",
            "type": "type",
            ">lag": "lag",
            ">consumers": lambda row: len(row["active"]),
        }
        output.print_rows("Subscriptions", found["subscriptions"], columns)
    if found["consumers"]:
        columns = {"peer": lambda row: row["name"] or row["id"], "wire": "wire", "role": "role"}
        output.print_rows("Connected", found["consumers"], columns)


@topic_app.command()
def create(
    cli: options.OverConsole,
    topic: options.TopicArgument,
    partitions: Annotated[int | None, "--partitions N", "Number of partitions. Default: none.", {"min": 1}] = None,
    subject: Annotated[str | None, "--subject SUBJECT", "Registered schema of its messages."] = None,
    unreliable: Annotated[
        bool, "--unreliable", "Danube subscriptions of it keep nothing for absent consumers; the journal does."
    ] = False,
) -> None:
    """Create a topic. Publishing creates one, too, without partitions and schema."""
    wanted = {"topic": topic, "reliable": not unreliable, "partitions": partitions, "subject": subject}
    made = cli.ask(PATH, "POST", wanted)
    parts = f" with {len(made['partitions'])} partitions" if made["partitions"] else ""
    cli.tell(made, f"the topic {made['topic']} is created{parts}")


@topic_app.command()
def delete(cli: options.OverConsole, topic: options.TopicArgument, yes: options.Yes = False) -> None:
    """Delete a topic with its partitions and subscriptions. Its messages stay in the journal."""
    output.confirm(f"Delete the topic {topic} with all its subscriptions?", yes=yes)
    cli.tell(cli.ask(PATH, "DELETE", query={"topic": topic}), f"the topic {topic} is deleted")
