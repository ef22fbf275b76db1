"""`raceway journal archive` and `raceway journal restore`: how far the archive is, and a data folder from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from raceway import config, wires
from raceway.cli import bus, options, output
from raceway.cli.output import fail, note, print_table
from raceway.errors import ArchiveError
from raceway.server.running import maybe_running

if TYPE_CHECKING:
    from raceway.journal.archive.lease import Lease
    from raceway.journal.archive.restore import RestoredFolder


def archive(cli: options.OnFolder) -> None:
    """Show how far the archive of a journal is, and whether it can be reached. Status 1 if it cannot."""
    from raceway.journal.archive.ledger import maybe_store

    reader = bus.open_journal(cli.folder)
    store = maybe_store(cli.folder, bus.maybe_storage(cli.folder))
    if store is None:
        fail(f"{cli.folder} has no archive: set journal.archive and start the bus")
    segments = reader.segments()
    archived = [segment for segment in segments if segment.path.parent != cli.folder]
    committed = reader.committed()
    found = _standing(cli.folder) | {"committed": committed, "only_there": len(archived)}
    found["behind"] = committed - found["last_position"]
    try:
        found |= _lease_facts(store)
        error = ""
    except ArchiveError as refusal:
        error = str(refusal)
    reader.close()
    running = maybe_running(cli.folder)
    found |= {"url": store.url, "error": error, "pid": running.pid if running else None}
    if not cli.prints_json(found):
        _print_standing(found)
    if error:
        raise typer.Exit(output.ExitCode.FAILED)


def _standing(folder: Path) -> dict[str, Any]:
    """Return what the folder knows of its archive."""
    from raceway.journal.archive.ledger import Ledger
    from raceway.journal.read.index import Index

    ledger = Ledger(folder)
    paths = ledger.paths()
    extents = [Index.maybe_extent(path.with_suffix(".idx").read_bytes()) for path in (paths[:1] + paths[-1:])]
    known = [extent for extent in extents if extent is not None]
    waiting = [path for path in folder.glob("segment-*.parquet") if not ledger.holds(path)]
    return {
        "segments": len(paths),
        "first_position": known[0].first if known else -1,
        "last_position": known[-1].last if known else -1,
        "waiting_segments": len(waiting),
        "waiting_bytes": sum(path.stat().st_size for path in waiting),
    }


def _lease_facts(store: Any) -> dict[str, Any]:
    """Return what the archive itself says. Raises ArchiveError if it cannot be reached."""
    from raceway.journal.archive.lease import maybe_lease

    lease: Lease | None = maybe_lease(store)
    return {} if lease is None else {"reserved": lease.reserved, "epoch": lease.epoch}


def _print_standing(found: dict[str, Any]) -> None:
    has_any = found["segments"] > 0
    there = f"{found['first_position']:,} to {found['last_position']:,}" if has_any else "none yet"
    facts = [
        ("archive", found["url"]),
        ("reachable", "yes" if not found["error"] else f"no: {found['error']}"),
        ("bus", f"process {found['pid']} runs on it" if found["pid"] else "none runs on it"),
        ("archived positions", there),
        ("segments", f"{found['segments']:,}, of which {found['only_there']:,} are only in the archive"),
        ("not archived yet", f"{found['behind']:,} rows"),
        ("waiting", f"{found['waiting_segments']:,} sealed segments, {output.size(found['waiting_bytes'])}"),
    ]
    if "reserved" in found:
        facts.append(("a restored bus begins at", f"{found['reserved']:,}"))
    print_table("", ["", "archive"], facts)


def restore(
    cli: options.WithSettings,
    url: Annotated[str, "URL or folder of the archive."],
    lazy: Annotated[
        bool, "--lazy", "Leave the rows in the archive, where readers find them; journal.archive must stay set."
    ] = False,
    above: Annotated[
        int, "--above POSITION", "A position that the lost bus gave out beyond its reservation.", {"min": -1}
    ] = -1,
) -> None:
    """Restore a data folder from the archive of its journal, for a bus that lost its disk.

    The folder must be empty. Interrupted, it goes on when it is run again. Rows that were not archived are lost; their
    positions and offsets are not given out again.
    """
    from raceway.journal.archive.restore import restore as restore_folder

    loaded = config.load(
        cli.config_file, flags={"journal.folder": cli.data and str(cli.data)}, sections=wires.sections()
    ).config
    folder = Path(loaded.journal.folder)
    with output.progress("restoring", 0) as bar:
        task = bar.task_ids[0]
        found = restore_folder(
            url, folder, loaded.storage, lazy=lazy, above=above,
            begin=lambda size: bar.update(task, total=size), advance=lambda size: bar.advance(task, size),
        )  # fmt: skip
    if not cli.prints_json(msgspec.to_builtins(found)):
        _print_restored(found)


def _print_restored(found: RestoredFolder) -> None:
    brought = f"{found.fetched:,} of {found.segments:,} segments, {output.size(found.bytes)}"
    print(f"{found.folder}: positions {found.first_position:,} to {found.last_position:,} from {found.url}; {brought}")
    for damage in found.damage:
        note(f"{damage.kind}: {damage.file}: {damage.reason}")
    print(f"the bus will continue at position {found.next_position:,}; rows after {found.last_position:,} are lost")
