"""Writes the pages under docs/reference from the code itself, so that the two agree. `make docs` runs it; a test
compares the pages with what this would write."""

from __future__ import annotations

import json
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import typer.main
from msgspec import Meta

from docs.conversions import conversions_page
from raceway import config, errors
from raceway.cli.app import app
from raceway.cli.configuration import as_toml
from raceway.cli.output import EXIT_CODE_MEANINGS
from raceway.codec.mb_encode import MB_CODES
from raceway.codec.seneca_failure import SENECA_CODES

FOLDER = Path(__file__).parent / "reference"
MADE = "<!-- Made by `make docs` from the code; edit the code instead. -->\n"


def pages() -> dict[str, str]:
    """File name under docs/reference to text."""
    return {
        "cli.md": cli_page(),
        "config.md": config_page(),
        "errors.md": errors_page(),
        "conversions.md": conversions_page(MADE),
    }


# ---- commands -------------------------------------------------------------------------------------------------------


def cli_page() -> str:
    lines = [
        MADE,
        "# Commands",
        "",
        "Results go to standard output; errors, notes and progress go to standard error. An error is one line that",
        "begins with `raceway:`. Commands that talk to a running bus take `--url`, or find the bus through its data",
        "folder.",
        "",
        "| exit status | meaning |",
        "|---|---|",
        *(f"| {code.value} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()),
        "| 130 | stopped by Ctrl-C |",
        "",
    ]
    lines += _command_lines(typer.main.get_command(app), "raceway")
    return "\n".join(lines).rstrip() + "\n"


def _command_lines(command: Any, path: str) -> list[str]:
    """A command and everything below it, depth first, in the order of the help page."""
    below = getattr(command, "commands", {})
    lines = [] if path == "raceway" else _one_command(command, path, bool(below))
    for name, child in below.items():
        lines += _command_lines(child, f"{path} {name}")
    return lines


def _one_command(command: Any, path: str, is_group: bool) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    usage = " ".join([path, *(_argument_usage(p) for p in arguments)])
    usage += " COMMAND" if is_group else " [OPTIONS]" if options else ""
    lines = [f"## {path}", "", f"    {usage}", "", _paragraphs(command.help or ""), ""]
    if arguments or options:
        lines += ["| | |", "|---|---|"]
        lines += [f"| `{_argument_usage(p)}` | {_cell(p.help)} |" for p in arguments]
        lines += [f"| {_option_usage(p)} | {_cell(p.help)}{_default(p)} |" for p in options]
        lines.append("")
    return lines


def _argument_usage(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _option_usage(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.is_flag:
        return names
    choices = getattr(parameter.type, "choices", None)
    value = "\\|".join(map(str, choices)) if choices else parameter.metavar or str(parameter.type.name).upper()
    return f"{names} {value}"


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or parameter.is_flag or callable(value) or value == "":
        return ""
    return f" Default: {value}."


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).replace("\f", "")


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


# ---- settings -------------------------------------------------------------------------------------------------------


def config_page() -> str:
    lines = [
        MADE,
        "# Settings",
        "",
        "A value comes from its default, then the TOML file (`--config` or `RACEWAY_CONFIG`), then the environment,",
        "then a flag; the later one wins. `raceway config` shows every value with its origin; with `--check` it only",
        "says whether they can be used. A setting that does not exist is refused by name.",
        "",
        "The key `listen.mb.heartbeat_ms` is written `heartbeat_ms` under `[listen.mb]` in the file, and",
        "`RACEWAY_LISTEN__MB__HEARTBEAT_MS` in the environment. Lists and tables are written in TOML there too, lists",
        "also with commas. Sizes are bytes; `_ms` and `_s` are milliseconds and seconds.",
        "",
    ]
    sections: dict[str, list[str]] = {}
    for key, (kind, _, description) in config.describe().items():
        section, _, name = key.rpartition(".")
        default = as_toml(config.effective(config.Config())[key])
        row = f"| `{name}` | {_allowed(kind)} | `{default}` | {_cell(description)} |"
        sections.setdefault(section, []).append(row)
    for section, rows in sections.items():
        lines += [f"## [{section}]", "", "| key | value | default | |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _allowed(kind: Any) -> str:
    """What may stand there, in words: `number, 1 or more`."""
    bounds: list[str] = []
    while get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        for note in (note for note in notes if isinstance(note, Meta)):
            bounds += [f"{note.ge} or more"] if note.ge is not None else []
            bounds += [f"over {note.gt}"] if note.gt is not None else []
            bounds += [f"{note.le} at most"] if note.le is not None else []
    return ", ".join([_kind_name(kind), *bounds])


def _kind_name(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in inside)
    if origin in (Union, UnionType):
        return " or ".join(_allowed(part) for part in inside)
    if origin is tuple:
        return f"list of {_allowed(inside[0])}"
    if origin is dict:
        return f"table of {_allowed(inside[1])}"
    if issubclass(kind, msgspec.Struct):
        return f"tables of {', '.join(f'`{field.name}`' for field in msgspec.structs.fields(kind))}"
    return {bool: "true or false", int: "whole number", float: "number", str: "text"}[kind]


# ---- errors ---------------------------------------------------------------------------------------------------------


def errors_page() -> str:
    lines = [
        MADE,
        "# Errors",
        "",
        "Every error that Raceway raises on purpose is a class of `raceway.errors`, under `PeerError` (the peer asked",
        "for what cannot be had) or `LocalError` (we, our disk, our settings). `code` is stable; `retriable` says that",
        "the same call may succeed later without anybody changing anything. On the wire an error has the wire's own",
        "name; what has none is `INTERNAL_ERROR` on MB and `act_execute` on Seneca.",
        "",
        "| code | class | whose doing | retriable | on MB | on Seneca | |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in _error_classes(errors.RacewayError):
        side = "peer" if issubclass(kind, errors.PeerError) else "ours"
        retriable = "yes" if kind.retriable else ""
        wires = " | ".join(f"`{codes[kind.code]}`" if kind.code in codes else "" for codes in (MB_CODES, SENECA_CODES))
        lines.append(f"| `{kind.code}` | `{kind.__name__}` | {side} | {retriable} | {wires} | {_cell(kind.__doc__)} |")
    return "\n".join(lines).rstrip() + "\n"


def _error_classes(root: type[errors.RacewayError]) -> list[type[errors.RacewayError]]:
    """The classes of the tree in its order, without the three that only group others."""
    own = [root] if root not in (errors.RacewayError, errors.PeerError, errors.LocalError) else []
    below = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return own + [kind for child in below for kind in _error_classes(child)]


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, "utf-8")
