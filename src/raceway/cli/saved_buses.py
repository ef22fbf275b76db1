"""The file of saved contexts, `raceway/contexts.json` in the user's configuration folder."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from raceway.errors import ConfigError

FILE = "contexts.json"


class SavedBus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named bus. An empty token means none."""

    url: str
    token: str = ""


class SavedBuses(msgspec.Struct, frozen=True):
    """Contents of the file. `used` is the name of the one in use, empty if there is none."""

    used: str = ""
    contexts: dict[str, SavedBus] = {}


def contexts_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "raceway" / FILE


def saved_buses() -> SavedBuses:
    """Read the file; empty if there is none. Raises ConfigError."""
    file = contexts_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=SavedBuses)
    except FileNotFoundError:
        return SavedBuses()
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError("context", f"{file} cannot be read, mend or remove it: {error}") from error


def saved_bus(name: str, source: str) -> SavedBus:
    """Return a context by its name; `source` says who named it. Raises ConfigError."""
    known = saved_buses().contexts
    if name not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise ConfigError("context", f"{name!r} is not saved; there are: {listed}", source)
    return known[name]


def maybe_used() -> SavedBus | None:
    """Return the context in use, if any. Raises ConfigError."""
    saved = saved_buses()
    return saved.contexts.get(saved.used)


def write_buses(saved: SavedBuses) -> None:
    """Replace the file. It is readable by its owner alone, because it may hold tokens."""
    file = contexts_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    staged = file.with_suffix(".new")
    # Removed first: the mode of an existing file would stay as it is.
    staged.unlink(missing_ok=True)
    with open(staged, "wb", opener=lambda path, flags: os.open(path, flags | os.O_EXCL, 0o600)) as stream:
        stream.write(msgspec.json.format(msgspec.json.encode(saved)) + b"\n")
    staged.rename(file)
