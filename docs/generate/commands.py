"""The page of commands, from the command line's own description of itself."""

from __future__ import annotations

from typing import Any

import typer.main

from docs.generate.markdown import cell, page, paragraphs, table
from raceway.cli.app import app
from raceway.cli.output import EXIT_CODE_MEANINGS


def commands_page() -> str:
    return page(
        "Commands",
        "Results go to standard output; errors, notes and progress go to standard error. An error is one line that",
        "begins with `raceway:`. Commands that talk to a running bus take `--url`, or find the bus through a saved",
        "context or its data folder: see [name a bus](../howto/name-a-bus.md).",
        "",
        *table(["exit status", "meaning"], [*_exit_codes(), ("130", "stopped by Ctrl-C")]),
        *_command_lines(typer.main.get_command(app), "raceway"),
    )


def _exit_codes() -> list[tuple[str, str]]:
    return [(str(code.value), meaning) for code, meaning in EXIT_CODE_MEANINGS.items()]


def _command_lines(command: Any, path: str) -> list[str]:
    """A command and everything below it, depth first, in the order of the help page."""
    below = getattr(command, "commands", {})
    lines = _one_command(command, path, bool(below))
    for name, child in below.items():
        lines += _command_lines(child, f"{path} {name}")
    return lines


def _one_command(command: Any, path: str, is_group: bool) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden]
    usage = " ".join([path, *(_argument_usage(p) for p in arguments)])
    usage += " COMMAND" if is_group else " [OPTIONS]" if options else ""
    lines = [f"## {path}", "", f"    {usage}", "", paragraphs(command.help or ""), ""]
    rows = [(f"`{_argument_usage(p)}`", cell(p.help)) for p in arguments]
    rows += [(_option_usage(p), cell(p.help) + _default(p)) for p in options]
    return lines + (table(["", ""], rows) if rows else [])


def _argument_usage(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).strip("[]").upper() + ("..." if parameter.nargs == -1 else "")
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
