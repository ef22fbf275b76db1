"""Reading settings, once at start, from everywhere they may stand:

    the default  <  the TOML file  <  the environment (RACEWAY_SECTION__KEY)  <  a flag

`Settings.origins` remembers which it was, so that `raceway config` can show it and errors can name it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from raceway.config.hosts import is_loopback
from raceway.config.sections import Config, Section
from raceway.errors import ConfigError

PREFIX = "RACEWAY_"
FILE_VARIABLE = "RACEWAY_CONFIG"
# Variables of the project's own test and bench runs; not settings of the bus.
NOT_SETTINGS = {FILE_VARIABLE, "RACEWAY_ROUNDS", "RACEWAY_URL"}

# Keys and certificates are given as file names and are none. A header for a collector is mostly a key.
SECRETS = {"listen.zbus.admin_token", "listen.zbus.tracker_token", "security.token_secret", "telemetry.headers"}
HIDDEN = "(hidden)"
# HS256 asks for a key as long as its hash (RFC 7518, 3.2).
SECRET_BYTES = 32


class Settings(msgspec.Struct, frozen=True):
    """The effective configuration, and for each dotted key where its value came from."""

    config: Config
    origins: dict[str, str]


def load(
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Read all sources once. `flags` has dotted keys; entries that are None were not given.

    Raises ConfigError naming the key, and the file, variable or flag at fault.
    """
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    file = file or environment.get(FILE_VARIABLE)
    sources = [_from_file(Path(file))] if file else []
    sources += [_from_environment(environment), _from_flags(flags or {})]
    for source in sources:
        for key, (value, origin) in source.items():
            _check_known(key, origin)
            values[key], origins[key] = value, origin
    config = _convert(values, origins)
    _check_together(config, origins)
    return Settings(config, {key: origins.get(key, "default") for key in describe()})


@cache
def describe() -> Mapping[str, tuple[Any, Any, str]]:
    """Every dotted key with its type, its default and its description: the manual's reference is made from this."""
    return dict(_fields(Config, ""))


def effective(config: Config) -> dict[str, Any]:
    """Dotted key to value, to be shown; of a secret only that there is one."""
    result = {}
    for key in describe():
        value: Any = config
        for part in key.split("."):
            value = getattr(value, part)
        result[key] = HIDDEN if value and key in SECRETS else value
    return result


def _fields(section: type[Section], prefix: str) -> list[tuple[str, tuple[Any, Any, str]]]:
    hints = get_type_hints(section, include_extras=True)
    found: list[tuple[str, tuple[Any, Any, str]]] = []
    for field in msgspec.structs.fields(section):
        kind = hints[field.name]
        if isinstance(kind, type) and issubclass(kind, Section):
            found += _fields(kind, f"{prefix}{field.name}.")
        else:
            found.append((prefix + field.name, (kind, field.default, _description(kind))))
    return found


def _description(kind: Any) -> str:
    notes = [m.description for m in get_args(kind)[1:] if isinstance(m, Meta) and m.description]
    return notes[-1] if notes else ""


def _check_known(key: str, origin: str) -> None:
    known = describe()
    if key not in known and not any(key.startswith(k + ".") for k, (kind, _, _) in known.items() if _is_table(kind)):
        near = [k for k in known if k.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
        hint = f"; did you mean {near[0]}?" if near else "; see `raceway config` for all keys"
        raise ConfigError(key, f"there is no such setting{hint}", origin)


def _is_table(kind: Any) -> bool:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) is dict


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    found: dict[str, tuple[Any, str]] = {}
    _flatten(document, "", str(path), found)
    return found


def _flatten(table: dict[str, Any], prefix: str, origin: str, into: dict[str, tuple[Any, str]]) -> None:
    known = describe()
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in known:
            _flatten(value, key + ".", origin, into)
        else:
            into[key] = (value, origin)


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for name, text in environment.items():
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and "__" in name:
            key = name[len(PREFIX) :].lower().replace("__", ".")
            found[key] = (_parse_text(key, text, name), f"environment {name}")
    return found


def _parse_text(key: str, text: str, origin: str) -> Any:
    """Text becomes what the key wants: TOML syntax for lists and tables, plain text otherwise."""
    known = describe().get(key)
    if known is None:
        return text
    kind = known[0]
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (tuple, dict):
        if get_origin(kind) is tuple and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(key, f"is not a TOML value: {error}", origin) from error
    return text


def _from_flags(flags: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    return {key: (value, "flag") for key, value in flags.items() if value is not None}


def _convert(values: dict[str, Any], origins: dict[str, str]) -> Config:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, leaf = key.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        table[leaf] = value
    for key, (kind, _, _) in describe().items():
        if key in values:
            try:
                msgspec.convert(values[key], kind, strict=False)
            except msgspec.ValidationError as error:
                given = HIDDEN if key in SECRETS else repr(values[key])
                reason = f"{str(error)[0].lower()}{str(error)[1:]}, got {given}"
                raise ConfigError(key, reason, origins[key]) from error
    return msgspec.convert(tree, Config, strict=False)


def _check_together(config: Config, origins: Mapping[str, str]) -> None:
    """Rules that hold between keys."""
    listen = config.listen
    if bool(listen.tls_certificate) != bool(listen.tls_key):
        key = "listen.tls_key" if listen.tls_certificate else "listen.tls_certificate"
        raise ConfigError(key, "certificate and key belong together: set both or neither")
    if listen.tls_client_ca and not listen.tls_certificate:
        raise ConfigError("listen.tls_client_ca", "client certificates need listen.tls_certificate and listen.tls_key")
    if not is_loopback(listen.host) and not (listen.tls_certificate or listen.insecure):
        raise ConfigError(
            "listen.host",
            f"{listen.host} is reachable from other machines: set listen.tls_certificate and listen.tls_key, "
            "or allow plain connections with --insecure",
            origins.get("listen.host", ""),
        )
    if listen.port_base and listen.port_base > 65535 - 9:
        raise ConfigError(
            "listen.port_base", "needs ten ports in a row below 65536", origins.get("listen.port_base", "")
        )
    if "/" in listen.danube.advertised:
        raise ConfigError(
            "listen.danube.advertised", "is host:port, without a scheme", origins.get("listen.danube.advertised", "")
        )
    if config.security.enabled and len(config.security.token_secret.encode()) < SECRET_BYTES:
        reason = f"must have {SECRET_BYTES} bytes or more when security is on"
        raise ConfigError("security.token_secret", reason, origins.get("security.token_secret", ""))
    if listen.mb.deregister_ms <= listen.mb.heartbeat_ms:
        raise ConfigError("listen.mb.deregister_ms", "must be longer than listen.mb.heartbeat_ms")
