"""`raceway pipeline …`: compute tables from the journal, once or continuously, and query them with SQL.

Spark takes seconds to start, so only the commands that need it do: run, import, and what writes files. The others read
the tables' logs and files.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from raceway.cli import options, output
from raceway.cli.output import fail, misuse, note, print_json, print_table
from raceway.cli.pipeline_import import captures, import_captures, unimport
from raceway.cli.pipeline_options import Chosen, OnTables, WithSpark, check_tables, choose
from raceway.journal.lock import FolderLock
from raceway.model.progress import PipelineProgress
from raceway.model.text import shortened
from raceway.pipeline.progress import is_running, maybe_read

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from raceway.pipeline.lake import Lake
    from raceway.pipeline.verify import TableCheck

# Default number of rows of a result; --limit changes it.
QUERY_ROWS = 50
STATUS_S = 1.0

pipeline_app = options.Commands(
    "pipeline", "Compute tables from the journal or captured traffic with Spark, and query them."
)
pipeline_app.command("import")(import_captures)
pipeline_app.command()(captures)
pipeline_app.command()(unimport)


# ---- run ------------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def run(
    cli: WithSpark,
    once: Annotated[bool, "--once", "Stop when all rows committed so far are in the tables."] = False,
    accept_loss: Annotated[bool, "--accept-loss", "Skip positions that the journal has lost, and record them."] = False,
    bronze_only: Annotated[
        bool, "--bronze-only", "Update only bronze.messages; a later run computes the other tables."
    ] = False,
    trigger: Annotated[
        float | None, "--trigger SECONDS", "Seconds between two checks for new rows.", {"min": 0.1}
    ] = None,
    max_records: Annotated[int | None, "--max-records ROWS", "Maximum rows per batch.", {"min": 1}] = None,
) -> None:
    """Update the tables, and keep them up to date until Ctrl-C.

    Runs with or without a running bus. A killed run continues where it stopped: every row is in the tables exactly
    once.
    """
    chosen = cli.choose(trigger_s=trigger, max_records=max_records)
    chosen.open_journal().close()
    from raceway.pipeline import registry
    from raceway.pipeline.failures import stop
    from raceway.pipeline.jobs import Job, Order

    with output.progress("starting Spark", None):
        lake = chosen.lake()
    try:
        with _shown(cli) as told:
            wanted = () if bronze_only else registry.DERIVED
            job = Job(lake, Order(chosen.settings, once=once, accept_loss=accept_loss, tables=wanted), told, say=note)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: job.stop())
            final = job.run()
    finally:
        stop(lake.spark)
    if not cli.as_json:
        _print_progress(final)


@contextmanager
def _shown(cli: WithSpark) -> Iterator[Any]:
    """Show progress: a bar on a terminal, otherwise a line or a JSON document per batch."""

    with output.progress("positions", None) as bar:
        seen = 0

        def told(progress: PipelineProgress) -> None:
            nonlocal seen
            _move(bar, progress, progress.state)
            if progress.batches > seen or progress.state in ("stopped", "failed"):
                seen = progress.batches
                if cli.as_json:
                    print_json(_document(progress))
                elif bar.disable and progress.last_batch and progress.state == "running":
                    note(_batch_line(progress))

        yield told


def _move(bar: Bar, progress: PipelineProgress, state: str) -> None:
    done, total = progress.position, progress.committed + 1
    first = progress.first_position
    bar.update(bar.task_ids[0], completed=done - first, total=total - first, description=state)


def _document(progress: PipelineProgress) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(progress)
    return document | {"lag": progress.lag}


def _batch_line(progress: PipelineProgress) -> str:
    batch = progress.last_batch
    assert batch is not None
    return (
        f"batch {batch.number}: positions {batch.first:,} to {batch.last:,}, {batch.rows:,} rows, "
        f"{batch.seconds:.1f} s; {progress.lag:,} behind"
    )


# ---- status ---------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def status(
    cli: options.WithSettings,
    follow: Annotated[bool, "--follow, -f", "Update the display every second until Ctrl-C."] = False,
) -> None:
    """Show the state of the tables: positions, lag, rows, last batch. Does not start Spark."""
    chosen = choose(cli)
    if follow and not cli.as_json:
        _follow(chosen)
        return
    while True:
        found = _maybe_progress(chosen)
        if found is None:
            fail(f"no pipeline has run on {chosen.folders.data}: start one with `raceway pipeline run`")
        if not cli.prints_json(_document(found) | {"running": is_running(found)}):
            _print_progress(found)
        if not follow:
            return
        time.sleep(STATUS_S)


def _maybe_progress(chosen: Chosen) -> PipelineProgress | None:
    """The progress written by the last run, with the current end of the journal."""
    found = maybe_read(chosen.folders.progress)
    if found is not None:
        reader = chosen.open_journal()
        found.committed, found.first_position = reader.committed(), reader.first_position()
        reader.close()
    return found


def _follow(chosen: Chosen) -> None:
    """Show a progress bar until Ctrl-C, while the journal grows."""
    with output.progress("positions", None) as bar:
        while True:
            found = _maybe_progress(chosen)
            if found is not None:
                _move(bar, found, _state(found))
                if bar.disable:
                    note(f"{_state(found)}: position {found.position:,}, {found.lag:,} behind")
            time.sleep(STATUS_S)


def _state(progress: PipelineProgress) -> str:
    if progress.state in ("stopped", "failed"):
        return progress.state
    return progress.state if is_running(progress) else "killed"


def _print_progress(progress: PipelineProgress) -> None:
    facts: list[tuple[str, Any]] = [
        ("state", _state(progress)),
        ("position", progress.position),
        ("lag (positions)", progress.lag),
        ("batches of this run", progress.batches),
        ("rows of this run", progress.rows),
    ]
    if progress.last_batch:
        batch = progress.last_batch
        facts.append(("last batch", f"{batch.rows:,} rows in {batch.seconds:.2f} s"))
    if progress.lost_rows:
        facts.append(("accepted as lost", progress.lost_rows))
    if progress.error:
        facts.append(("error", progress.error))
    print_table("", ["", "pipeline"], facts)
    rows = [(name, table.rows, table.parts) for name, table in progress.tables.items()]
    print_table("Tables", ["table", ">rows", ">files"], rows)


# ---- verify ---------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def verify(
    cli: WithSpark,
    full: Annotated[
        bool, "--full", "Also recompute every table from all of bronze and compare each row (Spark)."
    ] = False,
) -> None:
    """Verify that every position of the journal is in the tables exactly once, and each table against its inputs.

    Ends with status 1 if anything is missing, duplicated or different.
    """
    chosen = cli.choose()
    chosen.open_journal().close()
    check_tables(chosen)
    from raceway.pipeline import verify as verification
    from raceway.pipeline.query import Tables

    lake = chosen.lake() if full else chosen.files()
    with output.progress("positions", verification.journal_total(lake)) as bar:
        verdict = verification.verify(
            lake, Tables(lake), full=full, advance=lambda count: bar.advance(bar.task_ids[0], count)
        )
    if not cli.prints_json(msgspec.to_builtins(verdict) | {"good": verdict.is_good}):
        _print_verdict(verdict)
    if not verdict.is_good:
        raise typer.Exit(output.ExitCode.FAILED)


def _print_verdict(verdict: TableCheck) -> None:
    found = verdict.journal
    facts = [
        ("positions compared", f"{found.compared_from:,} to {found.compared_to:,}"),
        ("rows of the journal", found.rows),
        ("of these in bronze.messages", found.in_bronze),
        ("control rows (not in the tables)", found.control),
        ("rows whose content was deleted", found.deleted),
        ("older rows, deleted from the journal", found.older),
        ("rows of imported captures", found.imported),
        ("missing", _with_examples(found.missing, found.first_missing)),
        ("in the table, not in the journal", _with_examples(found.foreign, found.first_foreign)),
        ("duplicates", _with_examples(found.doubled, found.first_doubled)),
        ("accepted as lost", found.accepted_loss),
        ("not in the tables yet", found.behind),
    ]
    print_table("", ["", "bronze.messages"], facts)
    rows = [
        (table.table, table.rows, table.doubled_keys, table.expected, table.explanation, table.differing)
        for table in verdict.tables
    ]
    columns = ["table", ">rows", ">duplicate keys", ">expected", "that is", ">rows that differ"]
    print_table("Tables", columns, rows)
    print("all good" if verdict.is_good else "errors found: see above")


def _with_examples(count: int, first: list[int]) -> str:
    more = ", …" if count > len(first) else ""
    return f"{count:,}" + (f" ({', '.join(map(str, first))}{more})" if first else "")


# ---- life of tables -------------------------------------------------------------------------------------------------


@pipeline_app.command("tables")
def list_tables(cli: OnTables) -> None:
    """List the tables: rows, bytes, files, version and newest time of each, and what it holds."""
    chosen = cli.choose()
    from raceway.pipeline.keeping import TableFacts, table_facts

    check_tables(chosen)
    columns = {"table": "name", ">rows": "rows", ">bytes": "bytes", ">files": "files", ">version": "version"}
    facts: list[TableFacts] = table_facts(chosen.files())
    cli.show(facts, columns | {"newest": "newest", "": "comment"}, lines=True)


@pipeline_app.command()
def compact(
    cli: WithSpark,
    megabytes: Annotated[int, "--megabytes", "Merge files of one day up to this size.", {"min": 1}] = 32,
) -> None:
    """Merge the small files that live batches leave. Not while a pipeline uses the folder."""
    from raceway.config import MIB

    with _changing_tables(cli.choose()) as lake:
        from raceway.pipeline import keeping

        done = keeping.compact(lake, full_bytes=megabytes * MIB)
    cli.show(done, {"table": "table", ">files before": "old", ">files now": "new", ">rows moved": "rows"})


@pipeline_app.command()
def vacuum(
    cli: OnTables,
    hours: Annotated[int, "--hours", "Keep the files of versions of the last N hours.", {"min": 0}] = 24,
    dry_run: Annotated[bool, "--dry-run", "Only count the files."] = False,
) -> None:
    """Delete files that the tables no longer need. Versions that had them can no longer be read."""
    chosen = cli.choose()
    from raceway.pipeline import keeping

    check_tables(chosen)
    with FolderLock(chosen.folders.root):
        done = keeping.vacuum(chosen.files(), hours, dry_run=dry_run)
    cli.show(done, {"table": "table", ">files deleted": "files"})


@pipeline_app.command()
def retain(
    cli: OnTables,
    days: Annotated[int, "--days", "Number of days to keep, today included.", {"min": 1}],
    table: Annotated[list[str] | None, "--table NAME", "Only this table. May be repeated."] = None,
) -> None:
    """Remove rows of older days (UTC) from all tables. Earlier versions still have them until `vacuum`."""
    chosen = cli.choose()
    from raceway.pipeline import keeping

    check_tables(chosen)
    with FolderLock(chosen.folders.root):
        done = keeping.retain(chosen.files(), days, table or ())
    cli.show(done, {"table": "table", ">files removed": "files", ">rows removed": "rows"})


@pipeline_app.command()
def delete(
    cli: WithSpark,
    where: Annotated[
        str | None, "--where CONDITION", "SQL over columns of bronze.messages and silver.messages: messages to delete."
    ] = None,
    dry_run: Annotated[bool, "--dry-run", "Only count the messages, by topic."] = False,
    yes: options.Yes = False,
) -> None:
    """Delete messages from the tables, the journal and its archive, so that nothing has their content any more.

    The bus must be stopped. Copies are deleted, too: dead letters, refused messages, repeats. Earlier versions of the
    tables cannot be asked for afterwards. An interrupted deletion is completed by the next `raceway pipeline delete`.
    """
    chosen = cli.choose()
    is_waiting = chosen.folders.deleting.exists()
    if where is None and not is_waiting:
        misuse("--where is missing: it says which messages to delete")
    if chosen.settings.journal:
        misuse("messages are deleted in the data folder of the bus, and in its archive from there: without --journal")
    with FolderLock(chosen.folders.data), _changing_tables(chosen, is_deleting=True) as lake:
        from raceway.pipeline import forgetting

        if is_waiting and not dry_run:
            done = forgetting.complete(lake, chosen.config)
            cli.note(f"an interrupted deletion is completed: {done.messages:,} messages")
        if where is None:
            return
        keys = forgetting.select(lake, where)
        if dry_run:
            cli.show(forgetting.by_topic(keys), {"topic": "topic", ">messages": "messages"})
            return
        found = forgetting.collected(keys)
        done = forgetting.Deleted(0, 0, 0)
        if found.num_rows:
            output.confirm(f"Delete the content of {found.num_rows:,} messages for good?", yes=yes)
            forgetting.begin(lake, found)
            done = forgetting.complete(lake, chosen.config)
    cli.tell(
        done._asdict(),
        f"{done.messages:,} messages deleted from the tables, {done.blanked:,} of them blanked in the journal"
        + (f", {done.archived_segments:,} segments of the archive written anew" if done.archived_segments else ""),
    )


@pipeline_app.command()
def migrate(cli: WithSpark) -> None:
    """Bring tables of a former version over, as the next run would do first."""
    with _changing_tables(cli.choose(), as_they_are=True) as lake:
        from raceway.pipeline import migrating

        if not migrating.is_former(lake):
            cli.tell({"rows": 0}, "the tables are of this version")
            return
        rows = migrating.migrate(lake)
    cli.tell({"rows": rows}, f"{rows:,} rows brought over; `raceway pipeline run --once` computes the other tables")


@contextmanager
def _changing_tables(chosen: Chosen, *, as_they_are: bool = False, is_deleting: bool = False) -> Iterator[Lake]:
    """Open the tables with Spark, and hold their lock during the context."""
    from raceway.pipeline.failures import explained_failures, stop

    check_tables(chosen)
    with FolderLock(chosen.folders.root), explained_failures(chosen.folders):
        if not is_deleting:
            chosen.folders.check_deleted()
        lake = chosen.lake()
        try:
            if not as_they_are:
                from raceway.pipeline.migrating import check_version

                check_version(lake, note)
            yield lake
        finally:
            stop(lake.spark)


# ---- query, reset ---------------------------------------------------------------------------------------------------


@pipeline_app.command()
def query(
    cli: OnTables,
    sql: Annotated[str, "SQL, for example: SELECT topic, count(*) FROM bronze.messages GROUP BY 1"],
    limit: Annotated[int, "--limit", "Maximum number of rows; 0 shows all.", {"min": 0}] = QUERY_ROWS,
    at: Annotated[str | None, "--at WHEN", "Tables as they were: a version, or a time (UTC)."] = None,
) -> None:
    """Query the tables with SQL: bronze.messages, silver.exchanges, gold.traces and the others."""
    chosen = cli.choose()
    from raceway.pipeline.query import Tables
    from raceway.pipeline.snapshot import parse_at

    check_tables(chosen)
    result = Tables(chosen.files(), parse_at(at) if at else None).select(sql)
    shown = result.slice(0, limit) if limit and not cli.as_json else result
    columns = {
        (">" if str(field.type).startswith(("int", "uint", "double", "decimal")) else "<") + field.name: partial(
            _cell, name=field.name
        )
        for field in result.schema
    }
    cli.show(shown.to_pylist(maps_as_pydicts="lossy"), columns, lines=True)
    if shown.num_rows < result.num_rows:
        cli.note(f"the first {shown.num_rows:,} of {result.num_rows:,} rows; --limit shows more")


def _cell(row: dict[str, Any], name: str) -> Any:
    value = row[name]
    return shortened(value, 200) if isinstance(value, (str, bytes)) else value


@pipeline_app.command()
def reset(
    cli: OnTables,
    table: Annotated[str, "Name of the table."],
    force: Annotated[bool, "--force", "Reset even if rows are lost that the journal no longer has."] = False,
) -> None:
    """Delete a table, and those computed from it, so that the next run recomputes them."""
    chosen = cli.choose()
    from raceway.pipeline import keeping

    check_tables(chosen)
    with FolderLock(chosen.folders.root):
        keeping.reset_table(chosen.files(), table, force=force)
    cli.tell({"reset": table}, f"{table} is reset; `raceway pipeline run --once` recomputes it")
