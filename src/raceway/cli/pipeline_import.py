"""`raceway pipeline import`, `captures` and `unimport`: add captured traffic to the tables, and remove it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raceway.cli import options
from raceway.cli.output import note, print_json, print_table, progress
from raceway.cli.pipeline_options import Chosen, Conf, Form, Master, Memory, TablesFolder, check_tables, choose

if TYPE_CHECKING:
    from raceway.pipeline.lake import Lake

_COUNTS = ["messages", "rejected"]


def import_captures(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="Files of captured traffic, folders, or glob patterns with `*` and `**`."),
    ],
    wire: Annotated[Literal["mb", "zbus", "seneca", "danube"], typer.Option(help="Wire of the captured traffic.")],
    data: options.Data = None,
    master: Master = None,
    memory: Memory = None,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Parse and check captured traffic: valid messages go to bronze.messages, others to bronze.rejected.

    A file is identified by its content: importing it again is a no-op. `unimport` removes it.
    """
    chosen = choose(data, config_file, master=master, memory=memory, form=form, tables=tables, conf=conf)
    from raceway.pipeline.imports.importing import import_file
    from raceway.wires.captures.capture import capture_files

    files = capture_files(paths)
    chosen.folders.root.mkdir(parents=True, exist_ok=True)
    with _changing(chosen) as lake, progress("files", len(files)) as bar:
        done = []
        for file in files:
            done.append(import_file(lake, wire, file, chosen.config))
            bar.advance(bar.task_ids[0])
    for each in done:
        if each.wire != wire:
            note(f"{each.path} is in the tables as {each.wire}: remove it with `raceway pipeline unimport` first")
    if as_json:
        for each in done:
            print_json(each._asdict())
        return
    print_table("", ["file", *_COUNTS, "", "wire"], done, _COUNTS)


def captures(
    data: options.Data = None,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """List the imported captures with their ids, the SHA-256 of each file."""
    chosen = choose(data, config_file, form=form, tables=tables, conf=conf)
    from raceway.pipeline.imports.imported import known_captures
    from raceway.pipeline.opening import open_files

    check_tables(chosen)
    known = known_captures(open_files(chosen.folders, chosen.settings, chosen.extra))
    if as_json:
        for each in known:
            print_json(each._asdict())
        return
    rows = [(each.sha256[:16], each.wire, each.path, each.messages, each.rejected) for each in known]
    print_table("", ["id", "wire", "file", *_COUNTS], rows, _COUNTS)


def unimport(
    names: Annotated[
        list[str],
        typer.Argument(metavar="CAPTURE…", help="Imported files, folders, or ids from `captures`."),
    ],
    data: options.Data = None,
    master: Master = None,
    memory: Memory = None,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Remove captures from the tables, for example to import them again as another wire.

    Every table with rows of them is recomputed. The files themselves are not changed.
    """
    chosen = choose(data, config_file, master=master, memory=memory, form=form, tables=tables, conf=conf)
    from raceway.pipeline.imports.imported import named_captures, remove_capture

    check_tables(chosen)
    with _changing(chosen) as lake:
        found = named_captures(lake, names)
        for each in found:
            remove_capture(lake, each.sha256)
    for each in found:
        if as_json:
            print_json(each._asdict())
        else:
            note(f"{each.sha256[:16]} {each.path}: {each.messages:,} messages and {each.rejected:,} rejected removed")


@contextmanager
def _changing(chosen: Chosen) -> Iterator[Lake]:
    """Hold the lock of the tables during the context; update the derived tables at its end."""
    from raceway.journal.lock import FolderLock
    from raceway.pipeline import compaction
    from raceway.pipeline.opening import keep_format, open_lake
    from raceway.pipeline.recompute import refresh

    lock = FolderLock(chosen.folders.root)
    try:
        lake = open_lake(chosen.folders, chosen.settings, chosen.extra)
        try:
            keep_format(chosen.folders, chosen.settings.format)
            compaction.finish(lake)
            lake.sweep()
            yield lake
            note("updating the tables")
            refresh(lake)
        finally:
            lake.spark.stop()
    finally:
        lock.release()
