"""The application: all commands, and the mapping of errors to one line and an exit status."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from raceway import __version__
from raceway.cli import options, output
from raceway.cli.bench import bench
from raceway.cli.completion import answer_shells, completion
from raceway.cli.configuration import show_config
from raceway.cli.demo import demo
from raceway.cli.doctor import doctor
from raceway.cli.journal import journal_app
from raceway.cli.lag import lag
from raceway.cli.load import load as generate_load
from raceway.cli.messages import pub, request, sub, topics
from raceway.cli.peers import peer_app
from raceway.cli.pipeline import pipeline_app
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

app = options.Commands(
    "raceway",
    "A durable message bus: run it, send and receive messages, read what it stored.",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

of_wires = [load(name) for wire in WIRES for name in wire.commands]
of_topics = [pub, sub, request, topics, trace, replay, lag]
groups = [topic_app, subscription_app, peer_app, schema_app, rejected_app, journal_app, pipeline_app]
for command in [up, serve, *of_wires, *of_topics, *groups]:
    if isinstance(command, options.Commands):
        app.add_typer(command)
    else:
        app.command()(command)
app.command("config")(show_config)
app.command()(doctor)
app.command()(demo)
app.command("load")(generate_load)
app.command()(completion)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"raceway {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `raceway` itself; `--version` is handled before any command."""


@app.command()
def version(cli: options.Printing) -> None:
    """Print the versions of Raceway and Python."""
    import platform

    if not cli.prints_json({"raceway": __version__, "python": platform.python_version()}):
        print(f"raceway {__version__} (Python {platform.python_version()})")


def main() -> None:
    """Run the command line. A RacewayError ends in one line and its exit status, anything else in a traceback."""
    answer_shells()
    try:
        app(prog_name="raceway")
    except RacewayError as error:
        output.complain(str(error))
        sys.exit(output.exit_code_of(error))
