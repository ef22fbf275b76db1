"""`raceway doctor`: check whether a bus can run here, and whether a running one is healthy.

Read-only: nothing is created, repaired or locked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import typer

from raceway import config, wires
from raceway.cli import bus, options, output
from raceway.cli.output import ExitCode
from raceway.errors import ConfigError, ConnectionLostError, RacewayError, RemoteError
from raceway.server.running import Running, maybe_running

CheckVerdict = Literal["ok", "warning", "bad"]

# Each connection uses a file descriptor; below this limit a busy bus runs out of them first.
ENOUGH_FILES = 4096
SOON = timedelta(days=14)
# Holder of a port whose process this user may not see.
ANOTHER_USER = "another user's process"

# Metrics of a running bus that are reported if they are not 0.
TELLING: dict[str, tuple[CheckVerdict, str]] = {
    "raceway_journal_quarantined_rows": ("bad", "rows failed their checksum and are skipped"),
    "raceway_journal_missing_rows": ("bad", "rows are lost"),
    "raceway_journal_repairs": ("warning", "flipped bits were repaired; check the disk"),
    "raceway_journal_refusals": ("warning", "times the journal refused writes"),
    "raceway_slow_peers_closed_total": ("warning", "connections were closed because the peer stopped reading"),
    "raceway_unspelled_messages_total": (
        "warning",
        "messages were not delivered: the subscriber's wire cannot represent the topic name",
    ),
}


class Finding(NamedTuple):
    verdict: CheckVerdict
    subject: str
    text: str


class ExamineOptions(options.WithSettings, options.OverConsole):
    """Where the bus to check is: its folder, or its address."""


def doctor(cli: ExamineOptions) -> None:
    """Check the machine, the settings, the data folder, the journal, the ports and the certificate.

    If a bus runs on the folder, its own ports are checked, otherwise those of the settings. A bus that is named, by
    --url, --context, a variable or the context in use, is checked over the network instead. Ends with status 1 if a
    check fails; warnings leave it at 0.
    """
    wait_s = cli.timeout or bus.CONSOLE_S
    named = cli.named
    # As for all commands: the URL of a wire does not name a bus, unless it is given by --url, which is refused.
    if named is None or (named.by != "--url" and bus.maybe_console(named.url) is None):
        findings = list(examine(cli.data, cli.config_file, cli.credential, wait_s))
    else:
        findings = list(examine_remote(cli.address, cli.credential, wait_s))
    cli.show(findings, {"result": "verdict", "what": "subject", "finding": "text"})
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


def examine_remote(url: str, token: str = "", wait_s: float = bus.CONSOLE_S) -> Iterator[Finding]:
    """Check the bus with this console port, and whether each port that it names accepts connections."""
    yield from _machine()
    yield from _health(url, token, wait_s)
    try:
        answer = bus.call_console(url, "/asyncapi.json", token=token, timeout_s=wait_s)
    except ConnectionLostError:
        return  # told by _health
    except RacewayError as error:
        yield Finding("warning", "ports", f"not checked: {error}; name a token with --token")
        return
    yield from (_reachable(name, server["host"], wait_s) for name, server in answer["servers"].items())


def examine(
    data: Path | None, config_file: Path | None, token: str = "", wait_s: float = bus.CONSOLE_S
) -> Iterator[Finding]:
    """Check the bus of this data folder, whether it runs or not, and what it needs to run."""
    from raceway.journal.lanes import lane_folder, maybe_lanes

    yield from _machine()
    try:
        settings = config.load(config_file, flags={"journal.folder": data and str(data)}, sections=wires.sections())
    except ConfigError as error:
        yield Finding("bad", "settings", str(error))
        return
    changed = [key for key, origin in settings.origins.items() if origin != "default"]
    yield Finding("ok", "settings", f"{len(changed)} differ from their default" if changed else "all are defaults")
    yield from (Finding("warning", "settings", warning) for warning in settings.warnings)
    folder = Path(settings.config.journal.folder)
    running = maybe_running(folder)
    yield from _folder(folder, settings.config.journal)
    yield from _bus(folder, running, token, wait_s)
    lanes = maybe_lanes(folder)
    for part in [folder] if lanes is None else [lane_folder(folder, number) for number in range(lanes)]:
        yield from _journal(part)
    yield from _archive(folder, settings.config, wait_s)
    yield from _cluster(settings.config.cluster, wait_s)
    yield from _wanted_ports(settings.config.listen) if running is None else _open_ports(running)
    yield from _certificate(settings.config.listen)


def _machine() -> Iterator[Finding]:
    import resource

    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok" if sys.version_info >= (3, 11) else "bad", "python", f"{version} at {sys.executable}")
    for module in ("uvloop", "pyarrow"):
        try:
            yield Finding("ok", module, str(__import__(module).__version__))
        except ImportError as error:
            yield Finding("bad", module, f"cannot be imported: {error}; install Raceway again")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    advice = "" if files >= ENOUGH_FILES else f"; raise it to {ENOUGH_FILES} or more (`ulimit -n`, LimitNOFILE=)"
    yield Finding("warning" if advice else "ok", "open files", f"limit {files:,}{advice}")


def _folder(folder: Path, settings: config.JournalSettings) -> Iterator[Finding]:
    from raceway.journal.files import Files

    if settings.durability == "memory":
        yield Finding(
            "warning",
            "data folder",
            "journal.durability is `memory`: nothing is written to disk, and a stop loses all messages",
        )
        return
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not folder.exists():
        yield Finding("ok", "data folder", f"{folder} does not exist yet; the first start creates it")
    elif folder.stat().st_mode & 0o077:
        mode = f"{folder.stat().st_mode & 0o777:o}"
        yield Finding("warning", "data folder", f"{folder} has mode {mode}: others may read it; chmod 700 {folder}")
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding("bad", "data folder", f"{place} is not writable for this user")
    free, size = Files().space(place)
    text = f"{output.size(free)} of {output.size(size)} free at {place}"
    if free < min(settings.reserve_bytes, size // 20):
        yield Finding("bad", "disk space", f"{text}: publishes are refused (journal.reserve_bytes)")
    elif 1 - free / size >= settings.warn_used:
        yield Finding("warning", "disk space", f"{text}: nearly full (journal.warn_used)")
    elif free < 2 * settings.block_bytes:
        yield Finding("bad", "disk space", f"{text}: less than two blocks of the journal")
    elif free < 4 * settings.segment_bytes:
        yield Finding("warning", "disk space", f"{text}: less than four segments of the journal")
    else:
        yield Finding("ok", "disk space", text)


def _bus(folder: Path, running: Running | None, token: str, wait_s: float) -> Iterator[Finding]:
    from raceway.journal.lock import NAME, maybe_holder

    holder = maybe_holder(folder) or maybe_holder(folder / NAME)
    if running is None:
        held = f"process {holder} holds {folder}, but there is no raceway.json of a bus" if holder else ""
        yield Finding("warning" if held else "ok", "bus", held or f"none runs on {folder}")
        return
    yield Finding("ok", "bus", f"process {running.pid} runs on {folder}, with its console at {running.urls['console']}")
    for console in running.consoles or (running.urls["console"],):
        yield from _health(console, token, wait_s)


def _health(url: str, token: str, wait_s: float) -> Iterator[Finding]:
    """Check what the bus with this console port says of itself."""
    try:
        answer = bus.call_console(url, "/readyz", token=token, timeout_s=wait_s)
        text = f"{answer['status']} {answer['reason']}".strip()
        yield Finding("ok" if answer["status"] == "ok" else "bad", "readiness", text)
        for warning in answer.get("warnings", ()):
            yield Finding("warning", "readiness", warning)
        yield from _figures(bus.read_metrics(url, wait_s))
        yield from (
            Finding("bad", "subscription", sentence) for sentence in bus.blocked_subscriptions(url, token, wait_s)
        )
    except ConnectionLostError as error:
        yield Finding("bad", "readiness", str(error))
    except RemoteError as error:
        yield Finding("warning", "subscription", f"not checked: {error}; name a token with --token")


def _figures(metrics: dict[str, float]) -> Iterator[Finding]:
    """Report metrics of the running bus that need attention."""
    for name, (verdict, meaning) in TELLING.items():
        if count := int(metrics.get(name, 0)):
            yield Finding(verdict, "since start", f"{count:,} {meaning}")


def _journal(folder: Path) -> Iterator[Finding]:
    from raceway.journal.query.inspect import survey

    if not any((folder / name).exists() for name in ("identity", "committed")) and not any(folder.glob("segment-*")):
        yield Finding("ok", "journal", "empty")
        return
    try:
        found = survey(folder)
    except RacewayError as error:
        yield Finding("bad", "journal", str(error))
        return
    rows, topics = output.counted(found.rows, "row"), output.counted(found.topic_count, "topic")
    text = f"{rows} of {topics} in {output.counted(len(found.segments), 'segment')}"
    yield Finding("ok", "journal", f"{text}, {output.size(found.bytes)}; `raceway journal verify` reads it all")
    moved = found.snapshots[0].sections.get("moved_cursors", 0) if found.snapshots else 0
    if moved:
        text = (
            f"retention moved {moved} cursors forward: their subscriptions missed rows that were deleted (see the log)"
        )
        yield Finding("bad", "journal", text)
    for damage in found.damage:
        lost = damage.kind in ("quarantined", "missing")
        where = f"{damage.file}: {damage.kind}" + (
            f" rows {damage.first} to {damage.last}" if damage.first >= 0 else ""
        )
        yield Finding("bad" if lost else "warning", "journal", f"{where}, {damage.reason}" if damage.reason else where)


def _archive(folder: Path, settings: config.Config, wait_s: float) -> Iterator[Finding]:
    """Check whether the archive of the journal can be reached, and what waits for it."""
    from raceway.journal.archive.ledger import Ledger, maybe_location
    from raceway.journal.archive.store import Store

    try:
        location = maybe_location(folder)
    except RacewayError as error:
        yield Finding("bad", "archive", str(error))
        return
    url = settings.journal.archive or (location.url if location else "")
    if not url:
        return
    ledger = Ledger(folder)
    waiting = [path for path in folder.glob("segment-*.parquet") if not ledger.holds(path)]
    size = output.size(sum(path.stat().st_size for path in waiting))
    text = f"{len(ledger.paths()):,} segments, {len(waiting):,} sealed ones ({size}) wait for it"
    try:
        store = Store(url, settings.storage, wait_s)
        store.sizes()
    except RacewayError as error:
        yield Finding("bad", "archive", f"{error}; {text}, and retention keeps them here")
        return
    if not settings.journal.archive:
        advice = f"rows are in {store.url}, but journal.archive is not set: nothing more is copied there"
        yield Finding("warning", "archive", advice)
    yield Finding("ok", "archive", f"{store.url}: {text}")


def _cluster(settings: config.ClusterSettings, wait_s: float) -> Iterator[Finding]:
    """Check the Kafka topics of the cluster, and who owns it."""
    if not settings.url:
        return
    try:
        from raceway.cluster.place import ClusterPlace
        from raceway.cluster.status import cluster_status

        found = cluster_status(ClusterPlace(settings, wait_s))
    except RacewayError as error:
        yield Finding("bad", "cluster", str(error))
        return
    yield from (Finding(topic.verdict, f"topic {topic.topic}", topic.text) for topic in found.topics)
    for lane in found.lanes:
        nodes = output.counted(found.nodes, "node")
        text = f"{lane.node} ({lane.address}) owns it since epoch {lane.epoch}" if lane.node else "nobody owns it"
        alone = "; with one node nobody takes over: start another" if found.nodes == 1 else ""
        verdict: CheckVerdict = "warning" if alone or not lane.node else "ok"
        yield Finding(verdict, "cluster", f"{found.name}: {text}, {nodes}{alone}")


def _wanted_ports(listen: config.Listen) -> Iterator[Finding]:
    """Check that the ports of the settings are free for a bus to start on."""
    from raceway.server.doors import ports

    for door, port in ports(listen).items():
        holder = _maybe_holder(port)
        if holder is None:
            yield Finding("ok", f"port {port}", f"free for {door}")
        else:
            advice = "stop it, or choose other ports with --port-base"
            yield Finding("bad", f"port {port}", f"wanted for {door}, held by {holder}; {advice}")


def _open_ports(running: Running) -> Iterator[Finding]:
    """Check that the running bus holds the ports that it has opened, also those of its lanes."""
    import psutil

    own = [f"process {each.pid} " for each in (running, *psutil.Process(running.pid).children())]
    for door, url in running.urls.items():
        port = urlsplit(url).port
        assert port is not None
        holder = _maybe_holder(port)
        if holder is not None and holder.startswith((*own, ANOTHER_USER)):
            yield Finding("ok", f"port {port}", f"{door}, held by the bus")
        else:
            yield Finding("bad", f"port {port}", f"{door} of the bus, but held by {holder or 'no process'}")


def _reachable(door: str, address: str, wait_s: float) -> Finding:
    """Check that a port accepts a connection from here."""
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), wait_s).close()
    except OSError as error:
        return Finding("bad", f"port {port}", f"{door} at {address} does not accept connections: {error}")
    return Finding("ok", f"port {port}", f"{door} at {address} accepts connections")


def _maybe_holder(port: int) -> str | None:
    """The process that listens on a TCP port of this machine, if any."""
    import psutil

    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
            if not connection.pid:
                return ANOTHER_USER
            return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return None


def _certificate(listen: config.Listen) -> Iterator[Finding]:
    from raceway.cli import certificates

    if not listen.tls_certificate:
        return
    try:
        end = certificates.check(listen.tls_certificate, listen.tls_key)
    except ConfigError as error:
        yield Finding("bad", "certificate", str(error))
        return
    soon = end - datetime.now(UTC) < SOON
    yield Finding("warning" if soon else "ok", "certificate", f"{listen.tls_certificate} is valid until {end:%Y-%m-%d}")
