"""Finding the bus that a command talks to, and calling its console port.

The first of these names the bus, and `docs/howto/name-a-bus.md` says so: `--url` or `--context` after the command, the
same before it, RACEWAY_URL, RACEWAY_CONTEXT, `--data`, the context in use, the data folder of the settings.

The URL of a bus (`raceway://HOST[:8600]`, `http://…`, `https://…`) is that of its console port, which knows the others;
one of a wire (`mb://…`) is taken as it is. A running bus writes `raceway.json` into its data folder, with its process
id and the URL of each listener.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from raceway import config, wires
from raceway.cli.output import ExitCode, fail, misuse, note
from raceway.cli.saved_buses import maybe_used, saved_bus
from raceway.errors import (
    ConnectionLostError,
    FormatVersionError,
    JournalError,
    NoAnswerError,
    NotConnectedError,
    RemoteError,
)
from raceway.net.client.address import parse_url
from raceway.net.client.failures import NO_BUS, not_connected
from raceway.server.running import Running, maybe_running

if TYPE_CHECKING:
    import http.client

    from raceway.journal.read.reader import Reader

URL_VARIABLE, CONTEXT_VARIABLE = "RACEWAY_URL", "RACEWAY_CONTEXT"
# Schemes of URLs that name a whole bus, with their default ports.
BUS_PORTS = {"raceway": config.Listen().console_port, "http": 80, "https": 443}
# A busy bus may take long to move a subscription or to search; `--timeout` overrides it.
CONSOLE_S = 30.0


def data_folder(data: Path | None) -> Path:
    """The folder given by `--data`, otherwise that of the settings."""
    return data or Path(config.load(sections=wires.sections()).config.journal.folder)


# ---- which bus -------------------------------------------------------------------------------------------------------


class NamedBus(NamedTuple):
    """A bus that was named by its URL. `by` is how: `--url`, a variable or a context."""

    url: str
    by: str
    token: str = ""


def maybe_named(url: str | None, data: Path | None, context: str | None = None) -> NamedBus | None:
    """Return the bus that options, variables or the context in use name; None: that of the data folder.

    Raises ConfigError.
    """
    for given, name in ((url, context), _before_command):
        if given:
            return NamedBus(given, "--url")
        if name:
            return _of_context(name, "--context")
    if variable := os.environ.get(URL_VARIABLE):
        return NamedBus(variable, URL_VARIABLE)
    if variable := os.environ.get(CONTEXT_VARIABLE):
        return _of_context(variable, CONTEXT_VARIABLE)
    used = None if data else maybe_used()
    return None if used is None else NamedBus(used.url, "the context in use", used.token)


# `--url` and `--context` before the command, while it runs.
_before_command: tuple[str, str] = ("", "")


def note_before_command(url: str = "", context: str = "") -> None:
    """Take the options of `raceway --url URL --context NAME COMMAND …`."""
    global _before_command
    _before_command = (url, context)


def _of_context(name: str, source: str) -> NamedBus:
    saved = saved_bus(name, source)
    return NamedBus(saved.url, f"context {name}", saved.token)


def maybe_console(url: str) -> str | None:
    """Return the URL of the console port if this one names a bus; None if it is a wire's. Raises ConfigError."""
    scheme = url.partition("://")[0]
    if scheme not in BUS_PORTS:
        return None
    address = parse_url(url, BUS_PORTS)
    return f"{'https' if scheme == 'https' else 'http'}://{address.authority}"


# ---- its doors -------------------------------------------------------------------------------------------------------


def find_url(
    url: str | None,
    data: Path | None,
    door: str = "",
    *,
    context: str | None = None,
    token: str = "",
    timeout_s: float = CONSOLE_S,
) -> str:
    """Return the URL to connect to: that of a wire as it is, otherwise that of this door of the bus.

    `door` is a wire or one of its ports, by default the first wire. Ends the command if there is none.
    """
    door, named = door or wires.WIRES[0].name, maybe_named(url, data, context)
    if named is None:
        folder = data_folder(data)
        return _door_of(_urls_of(folder), door, f"the data folder {folder}", is_encrypted=False)
    console = maybe_console(named.url)
    if console is None:
        return named.url
    doors = _ask_doors(console, token or named.token, timeout_s)
    return _door_of(doors, door, console, is_encrypted=console.startswith("https:"))


def console_url(url: str | None, data: Path | None, *, context: str | None = None) -> str:
    """Return the URL of the console port. A wire's URL in a variable or context does not count; after `--url` it ends
    the command, as does a missing bus."""
    named = maybe_named(url, data, context)
    console = None if named is None else maybe_console(named.url)
    if console is not None:
        return console
    if named is not None and named.by == "--url":
        misuse(
            f"{named.url} names one wire; this command needs the bus, by its console port: --url raceway://HOST:PORT"
        )
    folder = data_folder(data)
    return console_of(_running(folder), folder)


def console_of(running: Running, folder: Path) -> str:
    """Return the URL of the console of the bus on this folder. Of several lanes it is the first's, which is told."""
    if running.consoles:
        note(
            f"the bus has {len(running.consoles)} lanes, and this is of lane 0 alone; "
            f"--data {folder / 'lane-1'} names another"
        )
    return running.urls["console"]


def _urls_of(folder: Path) -> dict[str, str]:
    """Return the URLs of the bus that runs on a data folder. Ends the command if none does."""
    return _running(folder).urls


def _running(folder: Path) -> Running:
    """Return the bus that runs on a data folder. Ends the command if none does."""
    running = maybe_running(folder)
    if running is None:
        fail(_missing(folder), ExitCode.UNREACHABLE)
    return running


def has_lanes(folder: Path) -> bool:
    """Return whether a bus of several lanes runs on a data folder."""
    running = maybe_running(folder)
    return running is not None and bool(running.consoles)


def _missing(folder: Path) -> str:
    return (
        f"no bus runs on the data folder {folder}: start one with `raceway serve --data {folder}`, "
        "or name one with --url raceway://HOST:PORT or --data"
    )


def _ask_doors(console: str, token: str, timeout_s: float) -> dict[str, str]:
    try:
        found: dict[str, str] = call_console(console, "/api/doors", token=token, timeout_s=timeout_s)["doors"]
    except RemoteError as error:
        if error.reported != "404":
            raise
        fail(f"the bus at {console} is of an older version and does not list its ports: give the URL of a wire, --url")
    return found


def _door_of(doors: Mapping[str, str], wanted: str, place: str, *, is_encrypted: bool) -> str:
    """Return the URL of a wire's first open port, or of a port; with `is_encrypted` rather one that is encrypted."""
    ports = [port for wire in wires.WIRES if wire.name == wanted for port in wire.ports if not port.client]
    ports.sort(key=lambda port: is_encrypted and not port.is_encrypted)
    found = [doors[name] for name in [port.name for port in ports] or [wanted] if name in doors]
    if not found:
        fail(
            f"the bus of {place} has no port for {wanted}; it has ports for {', '.join(sorted(doors))}",
            ExitCode.UNREACHABLE,
        )
    return found[0]


# ---- calls -----------------------------------------------------------------------------------------------------------


def call_console(
    url: str,
    path: str,
    method: str = "GET",
    token: str = "",
    document: Any = None,
    *,
    query: Mapping[str, Any] | None = None,
    timeout_s: float = CONSOLE_S,
) -> Any:
    """Call the console port at `url` and return the decoded JSON. Values of `query` that are None are left out.

    Raises RemoteError, ConnectionLostError.
    """
    if asked := urlencode({name: value for name, value in (query or {}).items() if value is not None}):
        path = f"{path}?{asked}"
    status, body = _call(url, path, method, token, document, timeout_s)
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise NotConnectedError(url, f"{NO_BUS} ({error})") from error
    if status >= 400 and isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise RemoteError(str(status), str(answer["error"].get("message")))
    return answer


def list_all(
    url: str, path: str, name: str, token: str = "", timeout_s: float = CONSOLE_S, **query: Any
) -> Iterator[dict[str, Any]]:
    """Yield the rows called `name` of all pages of a list. Raises RemoteError, ConnectionLostError."""
    after: str | None = ""
    while after is not None:
        page = call_console(url, path, token=token, query={**query, "after": after}, timeout_s=timeout_s)
        yield from page.get(name, ())
        after = page.get("after")


def read_metrics(url: str, timeout_s: float = CONSOLE_S) -> dict[str, float]:
    """Metrics of the bus that have no labels. Raises ConnectionLostError."""
    lines = _call(url, "/metrics", timeout_s=timeout_s)[1].decode().splitlines()
    pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in pairs}


def blocked_subscriptions(url: str, token: str = "", timeout_s: float = CONSOLE_S) -> Iterator[str]:
    """Yield one sentence per blocked subscription of the bus with this console port.

    Raises ConnectionLostError, RemoteError.
    """
    for row in list_all(url, "/api/subscriptions/named", "subscriptions", token, timeout_s):
        topic, name, offset = row["topic"], row["name"], row["blocked_at"]
        if offset is not None:
            why = f" ({row['blocked_by']})" if row["blocked_by"] else ""
            yield (
                f"subscription {name} of {topic} is blocked by the message at offset {offset}, which failed too "
                f"often{why}: `raceway replay {topic} {name} --from {offset + 1}` skips it, "
                f"`raceway subscription policy {topic} {name} --then drop` drops it, or `--dead-letter-topic TOPIC` "
                "copies it"
            )


def maybe_storage(folder: Path) -> config.StorageSettings | None:
    """Return the settings of the object store, if the journal in the folder has an archive."""
    from raceway.journal.read.catalogue import ARCHIVE

    return config.load(sections=wires.sections()).config.storage if (folder / ARCHIVE).is_dir() else None


def open_journal(folder: Path) -> Reader:
    """Open the journal in the folder. Ends the command if there is none."""
    from raceway.journal.read.reader import Reader

    try:
        return Reader(folder, maybe_storage(folder))
    except FormatVersionError:
        raise
    except JournalError as error:
        fail(f"{error}: name the folder of a journal with --data DIR")


def _open_console(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection to the console port, which is made by the first request."""
    import http.client

    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.netloc, timeout=timeout_s)


@contextmanager
def _failures_in_words(url: str, timeout_s: float) -> Iterator[None]:
    """Turn failures of a connection into errors that say what to do. Raises ConnectionLostError."""
    import http.client

    try:
        yield
    except TimeoutError as error:
        raise too_late(url, timeout_s) from error
    except http.client.RemoteDisconnected as error:
        raise ConnectionLostError(url, f"closed without an answer; {NO_BUS} if this always happens") from error
    except (ConnectionResetError, BrokenPipeError) as error:
        raise ConnectionLostError(url, error.strerror or str(error)) from error
    except OSError as error:
        raise not_connected(url, error) from error
    except http.client.HTTPException as error:
        raise NotConnectedError(url, NO_BUS) from error


def too_late(url: str, timeout_s: float) -> NoAnswerError:
    """Return the error for an answer that has not come in time."""
    return NoAnswerError(url, f"{timeout_s:g} s have passed; the bus may still carry it out, --timeout waits longer")


def _call(
    url: str, path: str, method: str = "GET", token: str = "", document: Any = None, timeout_s: float = CONSOLE_S
) -> tuple[int, bytes]:
    with _failures_in_words(url, timeout_s), contextlib.closing(_open_console(url, timeout_s)) as connection:
        body = None if document is None else msgspec.json.encode(document)
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read()
