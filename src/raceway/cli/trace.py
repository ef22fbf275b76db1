"""`raceway trace`: the conversation of a message, across wires."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from raceway.cli import bus, options, output
from raceway.cli.moments import moment_us
from raceway.model.text import printable

if TYPE_CHECKING:
    from rich.tree import Tree

    from raceway.model.traces import Span, Trace

# Default limit of rows: about ten seconds of reading.
USUAL_ROWS = 10_000_000
SEARCH_S = 120.0


def trace(
    cli: options.OverConsole,
    wanted: Annotated[
        str | None, "Correlation id, or id of any message. Default: the newest message of --topic.", {"metavar": "[ID]"}
    ] = None,
    topic: Annotated[str | None, "--topic", "Topic of the message; makes the search faster."] = None,
    since: Annotated[
        str | None, "--since TIME", "Search only rows since this time: 2026-01-31T08:00, or 90m, 12h, 7d for an age."
    ] = None,
    rows: Annotated[int, "--rows N", "Maximum number of journal rows to read.", {"min": 1}] = (USUAL_ROWS),
) -> None:
    """Show the whole conversation that a message belongs to, as a tree with times.

    Reads the files of the data folder, with or without a running bus; asks the bus that --url or a context names.
    """
    since_us = None if since is None else moment_us(since)
    wanted = wanted or _newest(cli, topic)
    if cli.named is not None and cli.maybe_console:
        found = _maybe_asked(cli, wanted, {"rows": rows, "since_us": since_us, "topic": topic})
    else:
        found = maybe_in_files(cli.folder, wanted, topic, since_us, rows)
    if found is None:
        output.fail(
            f"no message has the id {wanted} among the rows that were searched; --rows searches more. "
            "Ids are shown by `raceway sub --headers` and `raceway journal read`"
        )
    if cli.prints_json(found):
        return
    output.console().print(tree_of(found))
    if found.truncated:
        output.note(f"the search ended after {found.searched_rows:,} rows; the conversation may be incomplete")


def _newest(cli: options.OverConsole, topic: str | None) -> str:
    """The id of the newest message of a topic. Ends the command if none is named."""
    from raceway.journal.query.inspect import row_of_topic
    from raceway.journal.read.reader import Reader

    if topic is None:
        output.misuse("name a message: its id, or --topic TOPIC for the newest one of a topic")
    if cli.named is not None and cli.maybe_console:
        found = cli.ask("/api/messages", query={"topic": topic, "limit": 1}, timeout_s=SEARCH_S)["messages"]
        return str(found[0]["message_id"]) if found else output.fail(f"the topic {topic} has no messages")
    reader = Reader(cli.folder)
    try:
        return str(row_of_topic(reader, topic, None)["message_id"])
    finally:
        reader.close()


def maybe_in_files(
    folder: Path, wanted: str, topic: str | None = None, since_us: int | None = None, rows: int = USUAL_ROWS
) -> Trace | None:
    """Find the conversation of this id in the files of a data folder."""
    from raceway.journal.query.inspect import next_offset
    from raceway.journal.query.traces import TraceSearch, maybe_trace
    from raceway.journal.read.reader import Reader

    reader = Reader(folder, bus.maybe_storage(folder))
    known = None if topic is None else (topic, next_offset(reader, topic))
    first, end = reader.first_position(), reader.committed() + 1
    with output.progress("searching", min(rows, 2 * (end - first))) as bar:
        search = TraceSearch(
            read=reader.read, read_topic=reader.read_topic, first=first, end=end, rows=rows,
            progress=lambda count: bar.update(bar.task_ids[0], completed=count),
        )  # fmt: skip
        found = maybe_trace(search, wanted, since_us=since_us, topic=known)
    reader.close()
    return found


def _maybe_asked(cli: options.OverConsole, wanted: str, query: dict[str, Any]) -> Trace | None:
    """Ask a running bus for the conversation of this id."""
    import msgspec

    from raceway.errors import RemoteError
    from raceway.model.traces import Trace

    try:
        answer = cli.ask(f"/api/traces/{quote(wanted, safe='')}", query=query, timeout_s=SEARCH_S)
    except RemoteError as error:
        if error.reported == "404":
            return None
        raise
    return msgspec.convert(answer, Trace)


# ---- the tree -------------------------------------------------------------------------------------------------------


def tree_of(trace: Trace) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    total_ms = (trace.end_us - trace.begin_us) / 1000
    messages, wires = output.counted(trace.messages, "message"), ", ".join(trace.wires)
    head = f"{trace.correlation_id}  {messages} over {wires} in {total_ms:,.1f} ms"
    tree = Tree(Text(printable(head), style="bold"))
    derived = " (derived from the correlation id)" if trace.trace_id_derived else ""
    tree.add(Text(f"trace id {trace.trace_id}{derived}", style="dim"))
    branches: dict[int | None, Tree] = {None: tree}
    for span in trace.spans:
        branch = branches[span.parent].add(Text(printable(_label(span, trace.begin_us))))
        for text, style in _answers(span):
            branch.add(Text(printable(text), style=style))
        branches[span.position] = branch
    return tree


def _label(span: Span, begin_us: int) -> str:
    moment = datetime.fromtimestamp(span.begin_us / 1e6, UTC).strftime("%H:%M:%S.%f")[:-3]
    after = f"+{(span.begin_us - begin_us) / 1000:,.1f} ms"
    error = f"  error {span.error}" if span.error and not span.answered else ""
    who = f"{span.wire}  {span.producer or ''}"
    return f"{span.kind} {span.topic}  {who}  {moment}Z  {after}  {span.message_id or ''}{error}"


def _answers(span: Span) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if span.answered and span.end_us is not None:
        took = f"{(span.end_us - span.begin_us) / 1000:,.1f} ms"
        if span.handed_us is not None:
            waited, worked = span.handed_us - span.begin_us, span.end_us - span.handed_us
            took += f" (handed over after {waited / 1000:,.1f}, answered after {worked / 1000:,.1f})"
        verdict = f"error {span.error}" if span.error else "answer"
        lines.append(
            (f"{verdict}  {span.answer_wire}  {span.responder or ''}  {took}", "red" if span.error else "green")
        )
    elif span.answered is False:
        lines.append(("no answer", "yellow"))
    for further in span.further:
        after = f"{(further.time_us - span.begin_us) / 1000:,.1f} ms"
        lines.append((f"{further.error} answer  {further.wire}  {further.producer or ''}  {after}", "yellow"))
    return lines
