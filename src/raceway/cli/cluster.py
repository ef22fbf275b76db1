"""`raceway cluster …`: make a cluster on Apache Kafka, and see how it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from raceway import config, wires
from raceway.cli import options, output

if TYPE_CHECKING:
    from raceway.cluster.place import ClusterPlace
    from raceway.model.clusters import ClusterStatus

cluster_app = options.Commands(
    "cluster", "A bus of several nodes, with its journal on Apache Kafka: make it, see its status."
)


class OnKafka(options.Printing):
    """Options of commands that talk to Kafka."""

    kafka_config: options.KafkaConfig = None
    config_file: options.ConfigFile = None
    timeout: Annotated[
        float | None, "--timeout SECONDS", "How long to wait for an answer of Kafka. Default: 15.", {"min": 0.001}
    ] = None

    def place(self, url: str) -> ClusterPlace:
        """Return the cluster at a URL, or that of the settings. Raises ConfigError."""
        flags = {"cluster.url": url or None, "cluster.kafka_config": self.kafka_config and str(self.kafka_config)}
        settings = config.load(self.config_file, flags=flags, sections=wires.sections()).config.cluster
        if not settings.url:
            output.misuse("name the cluster: kafka://HOST:PORT,…/NAME, or the setting cluster.url")
        from raceway.cluster.place import ClusterPlace
        from raceway.kafka.brokers import KAFKA_S

        return ClusterPlace(settings, self.timeout or KAFKA_S)


@cluster_app.command()
def init(
    cli: OnKafka,
    url: Annotated[str, "Brokers and the new name: kafka://HOST:PORT,HOST:PORT/NAME."],
    lanes: Annotated[
        int, "--lanes N", "Number of lanes, which cannot be changed later; this release supports 1.", {"min": 1}
    ] = 1,
    replicas: Annotated[int, "--replicas N", "Copies of each message, on as many brokers.", {"min": 1}] = 3,
    if_not_exists: Annotated[bool, "--if-not-exists", "Do nothing if there is a cluster of this name."] = False,
) -> None:
    """Make a cluster: its topics in Kafka, with settings under which nothing acknowledged is lost."""
    place = cli.place(url)
    if if_not_exists and (found := place.maybe_record()) is not None:
        cli.tell({"name": found.name, "lanes": found.lanes, "source": found.source}, f"{found.name} is there already")
        return
    record = place.init(lanes, replicas)
    cli.tell(
        {"name": record.name, "lanes": record.lanes, "source": record.source, "replicas": replicas},
        f"made the cluster {record.name}; start nodes with `raceway serve --cluster {place.url} --advertise HOST`",
    )


@cluster_app.command()
def status(
    cli: OnKafka, url: Annotated[str, "The cluster: kafka://HOST:PORT,…/NAME. Default: the setting cluster.url."] = ""
) -> None:
    """Show who owns a cluster, how far it is, and the health of Kafka; ends with status 1 if something is wrong."""
    from raceway.cluster.status import cluster_status

    found = cluster_status(cli.place(url))
    if not cli.prints_json(found):
        _print(found)
    if not found.is_healthy:
        raise typer.Exit(output.ExitCode.FAILED)


def _print(found: ClusterStatus) -> None:
    lanes = {
        "lane": "lane", "owner": lambda row: row.node or "nobody", "console": "address", ">epoch": "epoch",
        "since": lambda row: output.moment(row.since_us) if row.since_us else "", ">end": "end",
        ">behind snapshot": "behind_snapshot",
    }  # fmt: skip
    output.print_rows(f"Cluster {found.name}: {output.counted(found.nodes, 'node')}", found.lanes, lanes)
    owners = {lane.address for lane in found.lanes}
    nodes = {"console": "address", "host": "host", "role": lambda row: "owner" if row.address in owners else "standby"}
    output.print_rows("Nodes", found.members, nodes)
    output.print_rows("Brokers", found.brokers, {"id": "id", "address": "address"})
    output.print_rows("Topics", found.topics, {"result": "verdict", "topic": "topic", "finding": "text"})
