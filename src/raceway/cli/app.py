"""The application: all commands, and the mapping of errors to one line and an exit status."""

from __future__ import annotations

import sys
from typing import Annotated, Any, TextIO, cast

import typer

from raceway import __version__
from raceway.cli import bus, options, output, words
from raceway.cli.archive import archive, restore
from raceway.cli.bench import bench
from raceway.cli.cluster import cluster_app
from raceway.cli.completion import answers_shells, completion
from raceway.cli.configuration import show_config
from raceway.cli.contexts import context_app
from raceway.cli.demo import demo
from raceway.cli.doctor import doctor
from raceway.cli.journal import journal_app
from raceway.cli.lag import lag
from raceway.cli.load import load as generate_load
from raceway.cli.messages import request, sub, topics
from raceway.cli.mirror import mirror
from raceway.cli.peers import peer_app
from raceway.cli.pipeline import pipeline_app
from raceway.cli.publishing import pub
from raceway.cli.rejected import rejected_app
from raceway.cli.schemas import schema_app
from raceway.cli.serve import serve, up
from raceway.cli.subscriptions import replay, subscription_app
from raceway.cli.topics import topic_app
from raceway.cli.trace import trace
from raceway.errors import RacewayError
from raceway.wires import WIRES
from raceway.wires.wire import load

EPILOG = "Exit status: " + "; ".join(f"{code.value} {text}" for code, text in output.EXIT_CODE_MEANINGS.items()) + "."

SUMMARY = "A durable message bus: run it, send and receive messages, read what it stored."
FINDING = (
    "Commands find the running bus by the first of these: --url or --context after the command; the same before it; "
    "RACEWAY_URL; RACEWAY_CONTEXT; --data; the context in use (`raceway context use`); the data folder of the settings."
)
SET_UP = "Set-up"
HELP_OF_URL = "The bus that the command talks to, as raceway://HOST[:8600]."
HELP_OF_CONTEXT = "The same, by the name of a saved context."

app = options.Commands(
    "raceway",
    SUMMARY,
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (archive, restore):
    journal_app.command()(command)
NAMES = {show_config: "config", generate_load: "load"}
# What help lists together, under its heading.
PANELS: dict[str, list[Any]] = {
    "Run a bus": [up, serve, cluster_app, demo],
    "Messages": [pub, sub, request, topics, trace],
    "Look after a bus": [topic_app, subscription_app, peer_app, schema_app, rejected_app, lag, replay, generate_load],
    "Stored messages": [journal_app, pipeline_app, mirror],
    "Single wires": [load(name) for wire in WIRES for name in wire.commands],
    SET_UP: [show_config, doctor, context_app, completion],
}
for panel, commands in PANELS.items():
    for command in commands:
        if isinstance(command, options.Commands):
            app.add_typer(command, rich_help_panel=panel)
        else:
            app.command(NAMES.get(command), rich_help_panel=panel)(command)
app.command(rich_help_panel=SET_UP, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"raceway {__version__}")
        raise typer.Exit


@app.callback(help=f"{SUMMARY}\n\n{FINDING}")
def root(
    context_of_run: typer.Context,
    url: Annotated[str, typer.Option("--url", metavar="URL", help=HELP_OF_URL)] = "",
    context: Annotated[str, typer.Option("--context", metavar="NAME", help=HELP_OF_CONTEXT)] = "",
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Pass on the options before the command, for as long as it runs."""
    bus.note_before_command(url, context)
    context_of_run.call_on_close(bus.note_before_command)


@app.command(rich_help_panel=SET_UP)
def version(cli: options.Printing) -> None:
    """Print the versions of Raceway and Python."""
    import platform

    if not cli.prints_json({"raceway": __version__, "python": platform.python_version()}):
        print(f"raceway {__version__} (Python {platform.python_version()})")


# The first lines of all commands and groups are on the first help page, too.
first_page = "\n".join([FINDING, *app.first_lines()])
app.info.epilog = f"{EPILOG}\n\n{words.explain(first_page)}"


def main() -> None:
    """Run the command line. A RacewayError ends in one line and its exit status, anything else in a traceback."""
    sys.stdout = cast(TextIO, output.StandardOutput(sys.stdout))
    # A script of a shell asks about any command.
    called = app if answers_shells() else app.narrowed(sys.argv[1:])
    try:
        called(prog_name="raceway")
    except RacewayError as error:
        output.complain(output.text_of(error))
        sys.exit(output.exit_code_of(error))
    finally:
        output.flush_last()
