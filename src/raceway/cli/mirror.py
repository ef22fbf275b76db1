"""`raceway mirror`: messages to Apache Kafka, or from it, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated, Literal

from raceway.cli import bus, options, output
from raceway.errors import MirrorError

if TYPE_CHECKING:
    from raceway.kafka.brokers import KafkaCluster
    from raceway.mirror.incoming import IncomingPlan
    from raceway.mirror.outgoing import OutgoingPlan

DEFAULT_NAME = "mirror"


def mirror(
    cli: options.OverConsole,
    topics: Annotated[
        list[str], "--topics PATTERN", "Topics to mirror: names, or patterns such as 'orders.#'; may be repeated."
    ],
    to: Annotated[str, "--to URL", "Write messages to Kafka, at kafka://HOST:PORT[,HOST:PORT…]."] = "",
    source: Annotated[str, "--from URL", "Publish records of Kafka, at kafka://HOST:PORT[,HOST:PORT…]."] = "",
    name: Annotated[
        str,
        "--name NAME",
        "Name of the mirror, which continues where one of that name stopped. Default with --to: mirror. With --from: "
        "required, another one for each bus.",
    ] = "",
    prefix: Annotated[str, "--prefix TEXT", "Beginning of the names of topics where they are written."] = "",
    single: Annotated[str, "--kafka-topic NAME", "With --to: one Kafka topic for the messages of all topics."] = "",
    create: Annotated[bool, "--create", "With --to: create Kafka topics that do not exist."] = False,
    start: Annotated[
        Literal["first", "last"], "--begin", "Where a new mirror begins: with the oldest message, or with the next one."
    ] = "first",
    once: Annotated[bool, "--once", "End when everything up to now is mirrored."] = False,
    accept_loss: Annotated[
        bool, "--accept-loss", "With --to: continue after positions that the journal no longer has."
    ] = False,
    skip_refused: Annotated[bool, "--skip-refused", "With --from: skip records that the bus refuses."] = False,
    kafka_config: options.KafkaConfig = None,
    interval: Annotated[
        float, "--interval SECONDS", "Seconds between two checks for new messages.", {"min": 0.01, "max": 60.0}
    ] = 0.2,
) -> None:
    """Mirror messages to Apache Kafka, or records of Kafka to the bus, until Ctrl-C. Needs the extra `kafka`.

    With --to it reads the journal in the data folder, whether the bus runs or not, and writes a record for each
    message: exactly once for readers with isolation.level=read_committed, whichever process is killed. With --from
    it publishes records over the console port of a running bus, with their place in Kafka as `x-dedup-id`. Prints
    `ready` on standard output when it begins.
    """
    if bool(to) == bool(source):
        output.misuse("give --to URL or --from URL, one of them")
    if to:
        _refuse({"--skip-refused": skip_refused, "--url": cli.url, "--context": cli.context}, "--to")
    else:
        _refuse({"--kafka-topic": single, "--create": create, "--accept-loss": accept_loss}, "--from")
        if not name:
            output.misuse("--from needs --name NAME: it names the consumer group, another one for each bus")
    from raceway.kafka.brokers import KAFKA_S, KafkaCluster, read_properties

    properties = read_properties(kafka_config) if kafka_config else {}
    cluster = KafkaCluster(to or source, properties, cli.timeout or KAFKA_S)
    if to:
        from raceway.mirror.outgoing import OutgoingPlan

        plan = OutgoingPlan(
            patterns=topics, prefix=prefix, single=single, create=create, start=start, once=once,
            accept_loss=accept_loss, interval_s=interval,
        )  # fmt: skip
        _mirror_out(cli, cluster, name or DEFAULT_NAME, plan)
    else:
        from raceway.mirror.incoming import IncomingPlan

        plan_in = IncomingPlan(
            patterns=topics, name=name, prefix=prefix, start=start, once=once, skip_refused=skip_refused,
            interval_s=interval,
        )  # fmt: skip
        # A bus that is away, or another server on its port, is said at once, not after waiting for Kafka.
        cli.ask("/api/doors")
        asyncio.run(_mirror_in(cli, cluster, plan_in))


def _refuse(given: dict[str, object], direction: str) -> None:
    for name, value in given.items():
        if value:
            output.misuse(f"{name} does not go with {direction}")


def _mirror_out(cli: options.OverConsole, cluster: KafkaCluster, name: str, plan: OutgoingPlan) -> None:
    from raceway.journal.arrow import leave_pandas_out
    from raceway.journal.files import Files
    from raceway.journal.identity import maybe_read_identity
    from raceway.mirror.outgoing import OutgoingMirror
    from raceway.mirror.positions import MirrorId

    leave_pandas_out()
    reader = bus.open_journal(cli.folder)
    try:
        identity = maybe_read_identity(Files(), cli.folder)
        if identity is None:
            raise MirrorError(
                f"the file `identity` of {cli.folder} is missing or damaged: start the bus, which mends it"
            )
        work = OutgoingMirror(reader, cluster, MirrorId(identity.source, name), plan, output.note)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: work.stopping.set())
        work.run(lambda: _say_ready(cli, f"mirroring to {cluster.url} from position {work.position}"))
    finally:
        reader.close()
    found = {"messages": work.messages, "position": work.position}
    cli.tell(found, f"mirrored {output.counted(work.messages, 'message')}, up to position {work.position}")


async def _mirror_in(cli: options.OverConsole, cluster: KafkaCluster, plan: IncomingPlan) -> None:
    from raceway.client import connect
    from raceway.mirror.incoming import IncomingMirror

    async with connect(cli.address, wire="http", token=cli.credential) as client:
        work = IncomingMirror(client, cluster, plan, output.note)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, work.stopping.set)
        await work.run(lambda: _say_ready(cli, f"publishing records of {cluster.url}"))
    refused = f"; {work.refused:,} refused" if work.refused else ""
    cli.tell(
        {"messages": work.messages, "refused": work.refused},
        f"published {output.counted(work.messages, 'message')}{refused}",
    )


def _say_ready(cli: options.OverConsole, text: str) -> None:
    if not cli.as_json:
        print("ready", flush=True)
    cli.note(text)
