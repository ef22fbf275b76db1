"""`raceway pipeline import`: captured traffic into the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from raceway.cli import options
from raceway.cli.output import note, print_json, print_table, progress
from raceway.cli.pipeline_options import Conf, Form, Master, Memory, TablesFolder, choose


def import_captures(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Files of captured traffic, folders of them, or patterns with `*` and `**`."
        ),
    ],
    wire: Annotated[Literal["mb", "zbus", "seneca", "danube"], typer.Option(help="The protocol they hold.")],
    data: options.Data = None,
    master: Master = None,
    memory: Memory = None,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Split, parse and check captured traffic: good messages to bronze.messages, bad ones to bronze.rejected.

    A file is known by its content: importing it again changes nothing.
    """
    chosen = choose(data, config_file, master=master, memory=memory, form=form, tables=tables, conf=conf)
    from raceway.journal.lock import FolderLock
    from raceway.pipeline.imports.capture import capture_files
    from raceway.pipeline.imports.importing import import_file
    from raceway.pipeline.opening import open_lake
    from raceway.pipeline.recompute import refresh

    files = capture_files(paths)
    chosen.folders.root.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(chosen.folders.root)
    try:
        lake = open_lake(chosen.folders, chosen.settings, chosen.extra)
        lake.sweep()
        with progress("files", len(files)) as bar:
            done = []
            for file in files:
                done.append(import_file(lake, wire, file, chosen.config))
                bar.advance(bar.task_ids[0])
        if any(each.state == "imported" for each in done):
            note("bringing the tables up to date")
        refresh(lake)
        lake.spark.stop()
    finally:
        lock.release()
    if as_json:
        for each in done:
            print_json(each._asdict())
        return
    print_table("", ["file", "messages", "rejected", ""], done, ["messages", "rejected"])
