"""Commands over zbus, `raceway queue …` for the queues of a bus, and `raceway track`.

Creating and listing use this wire, the other commands of queues the console port, because the wire has none of them.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar
from urllib.parse import quote

from raceway.cli import options, output, serve
from raceway.cli.talk import Sending, Show, ShownMessage, Talk, Wanted
from raceway.model.text import shortened


class ZbusTalk(Talk):
    options: ClassVar[tuple[str, ...]] = ("--subject",)
    missing: ClassVar[Mapping[str, str]] = {"topics": "zbus has queues, not topics: see `raceway queue list`"}

    def publishing(self, given: Sending) -> dict[str, Any]:
        return {"confirm": given.confirm, "topic": given.subject}

    async def receive(self, client: Any, wanted: Wanted, show: Show) -> int:
        """Print messages one by one, requesting each only when the previous one was printed."""
        if len(wanted.topics) > 1:
            output.misuse("over zbus `sub` takes exactly one queue")
        queue, came = wanted.topics[0], 0
        with suppress(TimeoutError):
            async with asyncio.timeout(wanted.limit_s), await client.consume(queue, wanted.subjects) as consumer:
                output.note(f"listening to {queue}")
                while wanted.count is None or came < wanted.count:
                    delivery = await anext(consumer)
                    show(ShownMessage(topic=delivery.queue, payload=delivery.payload, id=delivery.id))
                    came += 1
        return came


def track(
    tracker: serve.Listening,
    port: Annotated[int | None, "--port N", "Port to listen on. Default: 16666."] = None,
) -> None:
    """Run a zbus tracker without a bus, until SIGTERM or Ctrl-C.

    Brokers report to it; clients ask it for brokers and their queues. It stores nothing on disk. Prints `ready` on
    standard output when its port is open; logs go to standard error.
    """
    flags = {
        "listen.zbus.tracker": True,
        "listen.zbus.tracker_port": port,
        # --port takes precedence over listen.port_base in the settings.
        "listen.port_base": None if port is None else 0,
        "journal.durability": "memory",
    }
    serve.run(tracker.load(flags), only="tracker")


queue_app = options.Commands("queue", "Queues: create, list, peek at waiting messages, purge, delete.")

QueueArgument = Annotated[str, "Name of the queue."]


@queue_app.command()
def create(
    cli: options.TimedWire,
    name: QueueArgument,
    pubsub: Annotated[bool, "--pubsub", "Publish/subscribe queue: a copy for each subscriber, nothing stored."] = False,
    queue_token: Annotated[
        str | None, "--queue-token TOKEN", "Access token that clients of the queue must send."
    ] = None,
    start: options.StartOption = "last",
) -> None:
    """Create a queue. An existing one of the same kind is left unchanged, including its token and its place."""
    if pubsub and start != "last":
        output.misuse("--start is not possible with --pubsub: such a queue stores nothing")
    if cli.token and queue_token is None:
        # Next to --admin-token, --token was the queue's. Alone it may be meant so: no queue is left open by mistake.
        if not cli.admin_token:
            output.misuse(
                "--token is the administrator's: add --queue-token TOKEN, or --queue-token '' for a queue without one"
            )
        output.note("the token of the queue is now called --queue-token")
        queue_token = cli.token

    async def make(client: Any) -> None:
        from raceway.client import PUBSUB, QUEUE

        await client.create_queue(name, PUBSUB if pubsub else QUEUE, queue_token or "", start=start)

    _ask(cli, make)
    cli.tell({"queue": name, "pubsub": pubsub, "guarded": bool(queue_token)}, f"the queue {name} is there")


@queue_app.command("list")
def list_queues(cli: options.TimedWire) -> None:
    """List queues with their waiting messages and consumers."""

    async def ask(client: Any) -> Any:
        return await client.queues()

    found = [
        {"name": row.name, "pubsub": row.is_pubsub, "mode": row.mode, "waiting": row.unconsumed_msg_count,
         "consumers": row.consumer_count, "broker": row.broker, "creator": row.creator,
         "created_ms": row.created_time}
        for row in sorted(_ask(cli, ask), key=lambda row: (row.name, row.broker))
    ]  # fmt: skip
    columns = {
        "name": "name", "kind": lambda row: "publish/subscribe" if row["pubsub"] else "queue", ">waiting": "waiting",
        ">consumers": "consumers", "made": lambda row: output.moment(row["created_ms"] * 1000), "broker": "broker",
    }  # fmt: skip
    cli.show(found, columns, "Queues")


@queue_app.command()
def peek(
    cli: options.OverConsole,
    name: QueueArgument,
    count: Annotated[int, "--count N", "Number of messages, oldest first.", {"min": 1, "max": 100}] = 10,
) -> None:
    """Show waiting messages without consuming them."""
    answer = cli.ask(_messages_path(name), query={"limit": count})
    columns = {
        ">offset": "offset", "time": lambda row: output.moment(row["time_us"]), "kind": "kind", "id": "message_id",
        "payload": lambda row: shortened(row["payload"]),
    }  # fmt: skip
    cli.show([row | {"payload": b64decode(row["payload"])} for row in answer["messages"]], columns, lines=True)
    cli.note(f"{answer['waiting']:,} waiting in {name}")


@queue_app.command()
def purge(cli: options.OverConsole, name: QueueArgument, yes: options.Yes = False) -> None:
    """Drop all waiting messages of a queue. The journal keeps them; consumers will not get them."""
    output.confirm(f"Drop everything that waits in {name}?", yes=yes)
    purged = cli.ask(_messages_path(name), "DELETE")["purged"]
    text = f"dropped {purged:,} message{'s' if purged != 1 else ''} from {name}"
    cli.tell({"queue": name, "purged": purged}, text)


@queue_app.command()
def delete(cli: options.OverConsole, name: QueueArgument, yes: options.Yes = False) -> None:
    """Delete a queue that has no consumers, with its place in the topic. Its messages stay in the journal."""
    output.confirm(f"Delete the queue {name}?", yes=yes)
    cli.tell(cli.ask("/api/queues", "DELETE", query={"name": name}), f"the queue {name} is deleted")


def _ask(cli: options.TimedWire, call: Callable[[Any], Awaitable[Any]]) -> Any:
    from raceway.client import connect

    address = cli.address("zbus")
    if not address.startswith(("zbus://", "zbus+")):
        output.misuse(f"{address} is not a zbus URL: use --url zbus://HOST:PORT")

    async def run() -> Any:
        async with connect(address, admin_token=cli.credential, reconnect=False) as client:
            return await call(client)

    return cli.run(address, run())


def _messages_path(name: str) -> str:
    return f"/api/queues/{quote(name, safe='')}/messages"
