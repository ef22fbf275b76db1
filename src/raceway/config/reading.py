"""Reading settings, once at start. Later sources override earlier ones:

    the default  <  the TOML file  <  the environment (RACEWAY_SECTION__KEY)  <  a flag

`Settings.origins` has the source of each value, for `raceway config` and for error texts.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeAlias, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from raceway.config.hosts import is_loopback
from raceway.config.sections import PORTS_IN_A_ROW, SECRET, Config, OpenSection, Section
from raceway.errors import ConfigError

PREFIX = "RACEWAY_"
FILE_VARIABLE = "RACEWAY_CONFIG"
# Variables that are not settings: those of commands, and of the project's own tests and benchmarks.
OF_TESTS = {"RACEWAY_PICTURES", "RACEWAY_ROUNDS", "RACEWAY_SEED"}
NOT_SETTINGS = {FILE_VARIABLE, "RACEWAY_CONTEXT", "RACEWAY_URL", *OF_TESTS}
# Those that Kubernetes makes for a Service whose name begins with `raceway`.
OF_KUBERNETES = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")

# Old name of a setting to its present one. The old one is still read, with a warning.
RENAMED = {"listen.zbus.admin_token": "security.admin_token"}

HIDDEN = "(hidden)"
# RFC 7518, 3.2: a key for HS256 must have at least the size of the hash, 256 bits.
SECRET_BYTES = 32

# Dotted key to the section of a wire: `{"listen.mb": MbWire}`.
Sections: TypeAlias = Mapping[str, type[Section]]


class Settings(msgspec.Struct, frozen=True):
    """The effective configuration, the source of each dotted key's value, and warnings about the sources."""

    config: Config
    origins: dict[str, str]
    warnings: tuple[str, ...] = ()


class Setting(NamedTuple):
    """A key: its section and name there, its type with bounds, and its default."""

    section: type[Section]
    name: str
    kind: Any
    default: Any

    @property
    def is_secret(self) -> bool:
        return SECRET in get_args(self.kind)


Known: TypeAlias = Mapping[str, Setting]


def load(
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
    *,
    sections: Sections,
) -> Settings:
    """Read all sources. `flags` has dotted keys; None means that a flag was not given. `sections` are those of wires.

    Raises ConfigError with the key, and the file, variable or flag that set it.
    """
    environment = os.environ if environment is None else environment
    known = describe(sections)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    warnings: list[str] = []
    file = file or environment.get(FILE_VARIABLE)
    sources = [_from_file(Path(file), known)] if file else []
    given = {key: (value, "flag") for key, value in (flags or {}).items() if value is not None}
    sources += [_from_environment(environment, known), given]
    warnings.extend(_unread_variables(environment, known))
    for source in sources:
        for key, (value, origin) in _under_present_names(source, warnings).items():
            _check_known(key, origin, known)
            values[key], origins[key] = value, origin
    config = _convert(values, origins, known, sections)
    _check_together(config, origins, sections)
    return Settings(config, {key: origins.get(key, "default") for key in known}, tuple(warnings))


def describe(sections: Sections) -> Known:
    """Map every dotted key to its setting. The manual's reference is generated from this."""
    found = dict(_fields(Config, ""))
    for prefix, section in sections.items():
        found.update(_fields(section, f"{prefix}."))
    # Keys of one top-level section together.
    tops = list(dict.fromkeys(key.partition(".")[0] for key in found))
    return dict(sorted(found.items(), key=lambda pair: tops.index(pair[0].partition(".")[0])))


def effective(config: Config, sections: Sections) -> dict[str, Any]:
    """Map every dotted key to its value, for display; secret values are hidden."""
    result = {}
    for key, setting in describe(sections).items():
        prefix, _, name = key.rpartition(".")
        value = getattr(_section(config, prefix, sections), name)
        result[key] = HIDDEN if value and setting.is_secret else value
    return result


def _section(config: Config, prefix: str, sections: Sections) -> Section:
    if prefix in sections:
        return _above(config, prefix).of(sections[prefix])
    found: Section = config
    for part in prefix.split("."):
        found = getattr(found, part)
    return found


def _above(config: Config, prefix: str) -> OpenSection:
    """Return the section below which a wire's section is."""
    return config.listen if prefix.startswith("listen.") else config


def _fields(section: type[Section], prefix: str) -> Iterator[tuple[str, Setting]]:
    hints = get_type_hints(section, include_extras=True)
    for field in msgspec.structs.fields(section):
        kind = hints[field.name]
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from _fields(kind, f"{prefix}{field.name}.")
        elif not (field.name == "wires" and issubclass(section, OpenSection)):
            yield prefix + field.name, Setting(section, field.name, kind, field.default)


def _under_present_names(source: dict[str, tuple[Any, str]], warnings: list[str]) -> dict[str, tuple[Any, str]]:
    """Rename the settings of one source. If it has both names, the present one counts."""
    renamed = {}
    for old, new in RENAMED.items():
        if old in source:
            renamed[new] = source[old]
            warnings.append(f"{old} is now called {new} ({source[old][1]})")
    return renamed | {key: value for key, value in source.items() if key not in RENAMED}


def _check_known(key: str, origin: str, known: Known) -> None:
    if key in known:
        return
    tables = [f"{name}." for name, setting in known.items() if _plain(setting.kind) is dict]
    if not key.startswith(tuple(tables)):
        near = [k for k in known if k.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
        hint = f"; did you mean {near[0]}?" if near else "; see `raceway config` for all keys"
        raise ConfigError(key, f"unknown setting{hint}", origin)


def _plain(kind: Any) -> Any:
    """Return the container type (tuple, dict) of a setting, if any, without its bounds."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind)


def _from_file(path: Path, known: Known) -> dict[str, tuple[Any, str]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not TOML: {error}") from error
    found: dict[str, tuple[Any, str]] = {}
    _flatten(document, "", str(path), found, known)
    return found


def _flatten(table: dict[str, Any], prefix: str, origin: str, into: dict[str, tuple[Any, str]], known: Known) -> None:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and key not in known:
            _flatten(value, key + ".", origin, into, known)
        else:
            into[key] = (value, origin)


def _from_environment(environment: Mapping[str, str], known: Known) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for name, text in environment.items():
        if name.startswith(PREFIX) and name not in NOT_SETTINGS and "__" in name:
            key = name[len(PREFIX) :].lower().replace("__", ".")
            found[key] = (_parse_text(key, text, name, known), f"environment {name}")
    return found


def _unread_variables(environment: Mapping[str, str], known: Known) -> Iterator[str]:
    """Yield a warning for each variable that looks like a setting, but has no section."""
    for name, text in environment.items():
        rest = name.removeprefix(PREFIX)
        if rest == name or name in NOT_SETTINGS or "__" in name:
            continue
        if OF_KUBERNETES.fullmatch(rest) or text.startswith(("tcp://", "udp://")):
            continue
        near = [key for key in known if key.rpartition(".")[2] == rest.lower()]
        meant = (
            f"did you mean {PREFIX}{near[0].upper().replace('.', '__')}?"
            if len(near) == 1
            else f"use {PREFIX}SECTION__KEY"
        )
        yield f"{name} is not a setting and is ignored; {meant}"


def _parse_text(key: str, text: str, origin: str, known: Known) -> Any:
    """Parse the text of a variable: TOML syntax for lists and tables, plain text otherwise. Raises ConfigError."""
    setting = known.get(RENAMED.get(key, key))
    container = _plain(setting.kind) if setting else None
    if container in (tuple, dict):
        # A list without brackets: quoting TOML in a shell or a compose file is awkward.
        if container is tuple and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(key, f"is not a TOML value: {error}", origin) from error
    return text


def _convert(values: dict[str, Any], origins: dict[str, str], known: Known, sections: Sections) -> Config:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, leaf = key.split(".")
        _table(tree, path)[leaf] = value
    # Each value by itself first: an error of the whole tree would not name the source of the value.
    for key, setting in known.items():
        if key in values:
            try:
                msgspec.convert(values[key], setting.kind, strict=False)
            except msgspec.ValidationError as error:
                given = HIDDEN if setting.is_secret else repr(values[key])
                reason = f"{str(error)[0].lower()}{str(error)[1:]}, got {given}"
                raise ConfigError(key, reason, origins[key]) from error
    below: dict[bool, list[Section]] = {False: [], True: []}
    for prefix, kind in sections.items():
        *path, leaf = prefix.split(".")
        if table := _table(tree, path).pop(leaf, None):
            below[prefix.startswith("listen.")].append(msgspec.convert(table, kind, strict=False))
    config = msgspec.convert(tree, Config, strict=False)
    listen = msgspec.structs.replace(config.listen, wires=tuple(below[True]))
    return msgspec.structs.replace(config, listen=listen, wires=tuple(below[False]))


def _table(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return the table of a dotted path, created if it does not exist."""
    for part in path:
        tree = tree.setdefault(part, {})
    return tree


def _check_together(config: Config, origins: Mapping[str, str], sections: Sections) -> None:
    """Check the rules between keys. Raises ConfigError."""

    def refuse(key: str, reason: str) -> NoReturn:
        raise ConfigError(key, reason, origins.get(key, ""))

    listen = config.listen
    if bool(listen.tls_certificate) != bool(listen.tls_key):
        key = "listen.tls_key" if listen.tls_certificate else "listen.tls_certificate"
        refuse(key, "set both listen.tls_certificate and listen.tls_key, or neither")
    if listen.tls_client_ca and not listen.tls_certificate:
        refuse("listen.tls_client_ca", "requires listen.tls_certificate and listen.tls_key")
    if not is_loopback(listen.host) and not (listen.tls_certificate or listen.insecure):
        reason = f"{listen.host} is reachable from other machines: set listen.tls_certificate and listen.tls_key, "
        refuse("listen.host", reason + "or allow plain connections with --insecure")
    if listen.port_base > (highest := 65536 - PORTS_IN_A_ROW):
        refuse("listen.port_base", f"must be at most {highest}: {PORTS_IN_A_ROW} ports in a row are used")
    if config.security.enabled and len(config.security.token_secret.encode()) < SECRET_BYTES:
        refuse("security.token_secret", f"must have {SECRET_BYTES} bytes or more when security is on")
    storage = config.storage
    if bool(storage.access_key) != bool(storage.secret_key):
        key = "storage.secret_key" if storage.access_key else "storage.access_key"
        refuse(key, "set both storage.access_key and storage.secret_key, or neither")
    if storage.endpoint and not storage.endpoint.startswith(("http://", "https://")):
        refuse("storage.endpoint", "must begin with http:// or https://")
    journal = config.journal
    if journal.archive and journal.durability == "memory":
        refuse("journal.archive", "needs a journal on disk: journal.durability must not be memory")
    if journal.archive and not journal.seal:
        refuse("journal.archive", "archives sealed segments: journal.seal must be true")
    if "@" in urlsplit(journal.archive).netloc:
        refuse("journal.archive", "must not contain keys: set them in [storage], or in the AWS variables")
    if config.cluster.url:
        reason = "does not go with cluster.url: blocks are in Kafka, which keeps them"
        if journal.durability == "memory":
            refuse("journal.durability", reason)
        if journal.archive:
            refuse("journal.archive", reason)
        if journal.retention.hold_s:
            refuse("journal.retention.hold_s", reason)
    for prefix, kind in sections.items():
        if fault := _above(config, prefix).of(kind).maybe_fault():
            refuse(f"{prefix}.{fault[0]}", fault[1])
