"""`raceway config`: every setting, its value and its origin."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from raceway import config, wires
from raceway.cli import options, output


def show_config(
    cli: options.Printing,
    section: Annotated[str, "Show only settings that begin with this prefix, for example `journal`."] = "",
    config_file: options.ConfigFile = None,
    check: Annotated[bool, "--check", "Only check that the settings are valid, including TLS files."] = False,
) -> None:
    """Show every setting with its value and its origin: default, file or environment."""
    settings = config.load(config_file, sections=wires.sections())
    for warning in settings.warnings:
        output.note(f"warning: {warning}")
    if check:
        _check(settings.config)
        output.note("the settings are valid")
        return
    values = {
        key: value
        for key, value in config.effective(settings.config, wires.sections()).items()
        if key.startswith(section)
    }
    if not values:
        output.misuse(f"no setting begins with {section!r}; `raceway config` lists all")
    rows = {key: {"value": value, "origin": settings.origins[key]} for key, value in values.items()}
    columns = {
        "key": lambda row: row[0], "value": lambda row: as_toml(row[1]["value"]), "origin": lambda row: row[1]["origin"]
    }  # fmt: skip
    cli.show(rows.items(), columns, document=rows)


def _check(settings: config.Config) -> None:
    from raceway.cli import certificates

    if settings.listen.tls_certificate:
        certificates.check(settings.listen.tls_certificate, settings.listen.tls_key)


def as_toml(value: Any) -> str:
    """Format a value as TOML."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    # A JSON string is a TOML string except for surrogate pairs and DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
