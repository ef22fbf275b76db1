"""`raceway pipeline …`: the journal into tables, once or for as long as the bus runs, and SQL over them.

Spark takes seconds to start and is started only where it is needed: running, importing, and whatever touches Delta
tables. Everything else reads files.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raceway.cli import options, output
from raceway.cli.output import ExitCode, fail, note, print_json, print_table
from raceway.cli.pipeline_import import captures, import_captures, unimport
from raceway.cli.pipeline_options import Chosen, Conf, Form, Master, Memory, TablesFolder, check_tables, choose
from raceway.errors import JournalError

if TYPE_CHECKING:
    from raceway.pipeline.progress import Progress
    from raceway.pipeline.verify import Verdict

# A result is for looking at; whoever wants more says so.
QUERY_ROWS = 50
STATUS_S = 1.0
CHECKPOINT, NOTES = "checkpoint", "notes"

pipeline_app = typer.Typer(
    name="pipeline",
    help="Turn the journal, or captured traffic, into tables with Spark, and ask the tables.",
    no_args_is_help=True,
)
pipeline_app.command("import")(import_captures)
pipeline_app.command()(captures)
pipeline_app.command()(unimport)


# ---- run ------------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def run(
    data: options.Data = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything committed so far is in the tables.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on behind positions that are gone from the journal, and note them."),
    ] = False,
    bronze_only: Annotated[
        bool, typer.Option("--bronze-only", help="Leave the other tables for a later run, which then computes them.")
    ] = False,
    master: Master = None,
    memory: Memory = None,
    form: Form = None,
    tables: TablesFolder = None,
    trigger: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How often to look for new rows.", min=0.1)
    ] = None,
    max_records: Annotated[int | None, typer.Option(metavar="ROWS", help="Rows of one batch.", min=1)] = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Bring the tables up to date, and keep them so until Ctrl-C.

    Runs beside a bus or without one. A run that was killed goes on where it was: every row is in the tables once.
    """
    chosen = choose(
        data, config_file, master=master, memory=memory, form=form, tables=tables, trigger_s=trigger,
        max_records=max_records, conf=conf,
    )  # fmt: skip
    _check_journal(chosen)
    from raceway.pipeline import registry
    from raceway.pipeline.jobs import Job, Order
    from raceway.pipeline.opening import open_lake

    with _starting():
        lake = open_lake(chosen.folders, chosen.settings, chosen.extra)
    try:
        with _shown(as_json) as told:
            wanted = () if bronze_only else registry.DERIVED
            job = Job(lake, Order(chosen.settings, once=once, accept_loss=accept_loss, tables=wanted), told)
            _stop_on_signals(job.stopping.set)
            final = job.run()
    finally:
        lake.spark.stop()
    if not as_json:
        _print_progress(final)


def _check_journal(chosen: Chosen) -> None:
    from raceway.journal.reader import Reader

    try:
        Reader(chosen.folders.data).close()
    except JournalError as error:
        fail(f"{error}: name the folder of a journal with --data DIR")


def _stop_on_signals(stop: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


@contextmanager
def _starting() -> Iterator[None]:
    """Spark's start is the longest silence there is."""
    with output.progress("starting Spark", None):
        yield


@contextmanager
def _shown(as_json: bool) -> Iterator[Any]:
    """A bar on a terminal; elsewhere a line per batch, or a document."""

    with output.progress("positions", None) as bar:
        seen = 0

        def told(progress: Progress) -> None:
            nonlocal seen
            bar.update(
                bar.task_ids[0], completed=progress.position - progress.first_position,
                total=progress.committed + 1 - progress.first_position, description=progress.state,
            )  # fmt: skip
            if progress.batches > seen or progress.state in ("stopped", "failed"):
                seen = progress.batches
                if as_json:
                    print_json(_document(progress))
                elif bar.disable and progress.last_batch and progress.state == "running":
                    note(_batch_line(progress))

        yield told


def _document(progress: Progress) -> dict[str, Any]:
    import msgspec

    document: dict[str, Any] = msgspec.to_builtins(progress)
    return document | {"lag": progress.lag}


def _batch_line(progress: Progress) -> str:
    batch = progress.last_batch
    assert batch is not None
    return (
        f"batch {batch.number}: positions {batch.first:,} to {batch.last:,}, {batch.rows:,} rows, "
        f"{batch.seconds:.1f} s; {progress.lag:,} behind"
    )


# ---- status ---------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def status(
    data: options.Data = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show it again each second until Ctrl-C.")] = False,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Show how far the tables are: positions, lag, rows, the last batch. Starts no Spark."""
    chosen = choose(data, config_file)
    if follow and not as_json:
        _follow(chosen)
        return
    while True:
        found = _maybe_progress(chosen)
        if found is None:
            fail(f"no pipeline has run on {chosen.folders.data}: start one with `raceway pipeline run`")
        if as_json:
            from raceway.pipeline.progress import is_running

            print_json(_document(found) | {"running": is_running(found)})
        else:
            _print_progress(found)
        if not follow:
            return
        time.sleep(STATUS_S)


def _maybe_progress(chosen: Chosen) -> Progress | None:
    """What the last run wrote, with the journal as it is now."""
    from raceway.journal.reader import Reader
    from raceway.pipeline.progress import maybe_read

    found = maybe_read(chosen.folders.progress)
    if found is not None:
        reader = Reader(chosen.folders.data)
        found.committed, found.first_position = reader.committed(), reader.first_position()
        reader.close()
    return found


def _follow(chosen: Chosen) -> None:
    """A bar that follows the tables while the journal grows."""
    with output.progress("positions", None) as bar:
        while True:
            found = _maybe_progress(chosen)
            if found is not None:
                bar.update(
                    bar.task_ids[0], completed=found.position - found.first_position,
                    total=found.committed + 1 - found.first_position, description=_state(found),
                )  # fmt: skip
                if bar.disable:
                    note(f"{_state(found)}: position {found.position:,}, {found.lag:,} behind")
            time.sleep(STATUS_S)


def _state(progress: Progress) -> str:
    from raceway.pipeline.progress import is_running

    if progress.state in ("stopped", "failed"):
        return progress.state
    return progress.state if is_running(progress) else "killed"


def _print_progress(progress: Progress) -> None:
    facts: list[tuple[str, Any]] = [
        ("state", _state(progress)),
        ("position", progress.position),
        ("behind the journal", progress.lag),
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
    print_table("Tables", ["table", "rows", "parts"], rows, ["rows", "parts"])


# ---- verify ---------------------------------------------------------------------------------------------------------


@pipeline_app.command()
def verify(
    data: options.Data = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Also compute every table anew from all of bronze and compare each row (Spark)."),
    ] = False,
    master: Master = None,
    memory: Memory = None,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Check that every position of the journal is in the tables exactly once, and each table against its inputs.

    Ends with status 1 if anything is missing, doubled or different.
    """
    chosen = choose(data, config_file, master=master, memory=memory, form=form, tables=tables, conf=conf)
    _check_journal(chosen)
    from raceway.pipeline import verify as verification
    from raceway.pipeline.opening import open_files, open_lake
    from raceway.pipeline.query import open_tables

    lake = (open_lake if full else open_files)(chosen.folders, chosen.settings, chosen.extra)
    with output.progress("positions", verification.journal_total(lake)) as bar:
        verdict = verification.verify(
            lake, open_tables(lake), full=full, advance=lambda count: bar.advance(bar.task_ids[0], count)
        )
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(verdict) | {"good": verdict.is_good})
    else:
        _print_verdict(verdict)
    if not verdict.is_good:
        raise typer.Exit(ExitCode.FAILED)


def _print_verdict(verdict: Verdict) -> None:
    found = verdict.journal
    facts = [
        ("positions compared", f"{found.compared_from:,} to {found.compared_to:,}"),
        ("rows of the journal", found.rows),
        ("of them in bronze.messages", found.in_bronze),
        ("control rows, which stay out", found.control),
        ("older rows, gone from the journal", found.older),
        ("rows of imported captures", found.imported),
        ("missing", _with_examples(found.missing, found.first_missing)),
        ("in the table, not in the journal", _with_examples(found.foreign, found.first_foreign)),
        ("more than once", _with_examples(found.doubled, found.first_doubled)),
        ("accepted as lost", found.accepted_loss),
        ("not taken in yet", found.behind),
    ]
    print_table("", ["", "bronze.messages"], facts)
    rows = [
        (table.table, table.rows, table.doubled_keys, table.expected, table.explanation, table.differing)
        for table in verdict.tables
    ]
    columns = ["table", "rows", "doubled keys", "expected", "that is", "rows that differ"]
    print_table("Tables", columns, rows, ["rows", "doubled keys", "expected", "rows that differ"])
    print("all good" if verdict.is_good else "NOT GOOD: see above")


def _with_examples(count: int, first: list[int]) -> str:
    more = ", …" if count > len(first) else ""
    return f"{count:,}" + (f" ({', '.join(map(str, first))}{more})" if first else "")


# ---- compact, query, reset ------------------------------------------------------------------------------------------


@pipeline_app.command()
def compact(
    data: options.Data = None,
    rows: Annotated[int, typer.Option(help="Merge neighbouring parts up to so many rows.", min=1)] = 1_000_000,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Merge the small files that live batches leave. Not while a pipeline runs on the folder."""
    chosen = choose(data, config_file, form=form, tables=tables, conf=conf)
    from raceway.journal.lock import FolderLock
    from raceway.pipeline import compaction
    from raceway.pipeline.opening import open_files

    lake = open_files(chosen.folders, chosen.settings, chosen.extra)
    check_tables(chosen)
    lock = FolderLock(chosen.folders.root)
    try:
        compaction.finish(lake)
        done = compaction.compact(lake, rows)
    finally:
        lock.release()
    if as_json:
        print_json([each._asdict() for each in done])
    else:
        print_table(
            "", ["table", "parts before", "parts now", "rows moved"], done, ["parts before", "parts now", "rows moved"]
        )


@pipeline_app.command()
def query(
    sql: Annotated[str, typer.Argument(help="For instance: SELECT topic, count(*) FROM bronze.messages GROUP BY 1")],
    data: options.Data = None,
    limit: Annotated[int, typer.Option(help="At most so many rows; 0 shows all.", min=0)] = QUERY_ROWS,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
    as_json: options.Json = False,
) -> None:
    """Ask the tables in SQL: bronze.messages, silver.exchanges, gold.traces and the others."""
    chosen = choose(data, config_file, form=form, tables=tables, conf=conf)
    from raceway.pipeline.opening import open_files
    from raceway.pipeline.query import open_tables

    check_tables(chosen)
    result = open_tables(open_files(chosen.folders, chosen.settings, chosen.extra)).select(sql)
    shown = result.slice(0, limit) if limit and not as_json else result
    if as_json:
        for row in shown.to_pylist(maps_as_pydicts="lossy"):
            print_json(row)
        return
    cells = [[_cell(value) for value in row.values()] for row in shown.to_pylist(maps_as_pydicts="lossy")]
    numbers = [
        field.name for field in result.schema if str(field.type).startswith(("int", "uint", "double", "decimal"))
    ]
    print_table("", result.column_names, cells, numbers)
    if shown.num_rows < result.num_rows:
        note(f"the first {shown.num_rows:,} of {result.num_rows:,} rows; --limit shows more")


def _cell(value: Any) -> Any:
    return output.shortened(value, 200) if isinstance(value, (str, bytes)) else value


@pipeline_app.command()
def reset(
    table: Annotated[str, typer.Argument(help="A table, `checkpoint` or `notes`.")],
    data: options.Data = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where rows would be lost that the journal no longer has.")
    ] = False,
    form: Form = None,
    tables: TablesFolder = None,
    conf: Conf = None,
    config_file: options.ConfigFile = None,
) -> None:
    """Forget a table: the next run computes it anew. `checkpoint` forgets only where Spark was; the tables know.
    `notes` removes what was noted of parts of tables and cannot be read any more, and forgets the tables concerned."""
    chosen = choose(data, config_file, form=form, tables=tables, conf=conf)
    from raceway.journal.lock import FolderLock
    from raceway.pipeline import resetting
    from raceway.pipeline.notes import remove_damaged
    from raceway.pipeline.opening import open_files

    check_tables(chosen)
    lock = FolderLock(chosen.folders.root)
    try:
        if table == CHECKPOINT:
            resetting.reset_checkpoint(chosen.folders)
        elif table == NOTES:
            damaged = remove_damaged(chosen.folders.notes)
            anew = resetting.reset_notes(open_files(chosen.folders, chosen.settings, chosen.extra), damaged)
            note(f"{len(damaged)} damaged notes were removed; forgotten: {', '.join(anew) or 'no table'}")
        else:
            resetting.reset_table(open_files(chosen.folders, chosen.settings, chosen.extra), table, force=force)
    finally:
        lock.release()
    note(f"{table} is reset; `raceway pipeline run --once` brings it up to date")
