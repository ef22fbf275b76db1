"""The page of settings, from the sections of `raceway.config`."""

from __future__ import annotations

import ast
import inspect
import json
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta

from docs.generate.markdown import cell, page, table
from raceway import config, wires
from raceway.cli.bus import CONTEXT_VARIABLE, URL_VARIABLE
from raceway.cli.configuration import as_toml
from raceway.config import reading


def settings_page() -> str:
    sections: dict[str, list[tuple[str, ...]]] = {}
    values = config.effective(config.Config(), wires.sections())
    for key, setting in reading.describe(wires.sections()).items():
        description = cell(descriptions(setting.section)[setting.name])
        row = (f"`{setting.name}`", _allowed(setting.kind), f"`{as_toml(values[key])}`", description)
        sections.setdefault(key.rpartition(".")[0], []).append(row)
    lines = [
        "A value comes from its default, then the TOML file (`--config` or `RACEWAY_CONFIG`), then the environment,",
        "then a flag; the later one wins. `raceway config` shows every value with its origin; with `--check` it only",
        "says whether they can be used. A setting that does not exist is refused by name.",
        "",
        "The key `listen.mb.heartbeat_ms` is written `heartbeat_ms` under `[listen.mb]` in the file, and",
        "`RACEWAY_LISTEN__MB__HEARTBEAT_MS` in the environment. Lists and tables are written in TOML there too, lists",
        "also with commas. Sizes are bytes; `_ms` and `_s` are milliseconds and seconds.",
        "",
        "Two variables are no settings:",
        "",
        *table(
            ["variable", ""],
            [
                (f"`{reading.FILE_VARIABLE}`", "The TOML file, where no `--config` names one."),
                (f"`{URL_VARIABLE}`", "The bus that commands talk to, where no `--url` names one."),
                (f"`{CONTEXT_VARIABLE}`", "The same, by the name of a saved context."),
            ],
        ),
    ]
    for section, rows in sections.items():
        lines += [f"## [{section}]", "", *table(["key", "value", "default", ""], rows)]
    return page("Settings", *lines)


@cache
def descriptions(section: type[config.Section]) -> dict[str, str]:
    """Map each field of a section to the string under it in the source."""
    (defined,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


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
