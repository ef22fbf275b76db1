"""`raceway pipeline import`, `captures` and `unimport`: add captured traffic to the tables, and remove it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from raceway.cli.output import note, progress
from raceway.cli.pipeline_options import Chosen, OnTables, WithSpark, check_tables
from raceway.journal.lock import FolderLock
from raceway.wires import WIRES

if TYPE_CHECKING:
    from raceway.pipeline.imports.imported import KnownCapture
    from raceway.pipeline.imports.importing import Imported
    from raceway.pipeline.lake import Lake

READABLE = click.Choice([wire.name for wire in WIRES if wire.capture])


def import_captures(
    cli: WithSpark,
    paths: Annotated[
        list[str],
        "Files of captured traffic, folders, glob patterns with `*` and `**`, or URLs; .gz and .zst are unpacked.",
        {"metavar": "PATH…"},
    ],
    wire: Annotated[str, "--wire", "Wire of the captured traffic.", {"click_type": READABLE}],
) -> None:
    """Parse and check captured traffic: valid messages go to bronze.messages, others to bronze.rejected.

    A file is identified by its content: importing it again is a no-op. `unimport` removes it.
    """
    chosen = cli.choose()
    from raceway.pipeline.imports.importing import import_files
    from raceway.pipeline.imports.sources import capture_sources

    files = capture_sources(paths, chosen.config.storage)
    chosen.folders.root.mkdir(parents=True, exist_ok=True)
    with _changing(chosen) as lake, progress("files", len(files)) as bar:
        done = []
        for imported in import_files(lake, wire, files, chosen.config):
            done.append(imported)
            bar.advance(bar.task_ids[0])
    for each in done:
        if each.wire != wire:
            note(f"{each.path} is in the tables as {each.wire}: remove it with `raceway pipeline unimport` first")
    columns = {"file": _near, ">messages": "messages", ">rejected": "rejected", "": "state", "wire": "wire"}
    cli.show(done, columns, lines=True)


def captures(cli: OnTables) -> None:
    """List the imported captures with their ids, the SHA-256 of each file."""
    chosen = cli.choose()
    from raceway.pipeline.imports.imported import known_captures

    check_tables(chosen)
    known = known_captures(chosen.files())
    columns = {"wire": "wire", "file": _near, ">messages": "messages", ">rejected": "rejected"}
    cli.show(known, {"id": lambda each: each.sha256[:16], **columns}, lines=True)


def _near(capture: Imported | KnownCapture) -> str:
    """The path of a capture as the user would write it: relative to the working directory if it lies there."""
    if "://" in capture.path:
        return capture.path
    path, here = Path(capture.path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def unimport(
    cli: WithSpark,
    names: Annotated[list[str], "Imported files, folders, or ids from `captures`.", {"metavar": "CAPTURE…"}],
) -> None:
    """Remove captures from the tables, for example to import them again as another wire.

    Every table with rows of them is recomputed. The files themselves are not changed.
    """
    chosen = cli.choose()
    from raceway.pipeline.imports.imported import named_captures, remove_capture

    check_tables(chosen)
    with _changing(chosen) as lake:
        found = named_captures(lake, names)
        for each in found:
            remove_capture(lake, each.sha256)
    for each in found:
        text = f"{each.sha256[:16]} {_near(each)}: {each.messages:,} messages and {each.rejected:,} rejected removed"
        cli.tell(each._asdict(), text)


@contextmanager
def _changing(chosen: Chosen) -> Iterator[Lake]:
    """Hold the lock of the tables during the context; update the derived tables at its end."""
    from raceway.pipeline.failures import explained_failures, stop
    from raceway.pipeline.migrating import check_version
    from raceway.pipeline.refreshing import refresh

    with FolderLock(chosen.folders.root), explained_failures(chosen.folders):
        chosen.folders.check_deleted()
        lake = chosen.lake()
        try:
            lake.mend()
            lake.folders.sweep()
            check_version(lake, note)
            lake.evolve()
            yield lake
            note("updating the tables")
            refresh(lake)
        finally:
            stop(lake.spark)
