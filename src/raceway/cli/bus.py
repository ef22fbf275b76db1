"""Finding the bus that a command talks to: `--url`, otherwise RACEWAY_URL, otherwise the bus that uses the data folder.

A running bus writes `raceway.json` into its data folder, with its process id and the URL of each listener.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import msgspec

from raceway import config, wires
from raceway.cli.output import ExitCode, fail, misuse
from raceway.errors import ConnectionLostError, FormatVersionError, JournalError, RemoteError
from raceway.server.running import maybe_running

if TYPE_CHECKING:
    from raceway.journal.read.reader import Reader

URL_VARIABLE = "RACEWAY_URL"
CONSOLE_S = 5.0


def data_folder(data: Path | None) -> Path:
    """The folder given by `--data`, otherwise that of the settings."""
    return data or Path(config.load(sections=wires.sections()).config.journal.folder)


def find_url(url: str | None, data: Path | None, port: str = "") -> str:
    """The URL to connect to: on the data folder, that of this port, or else of the first wire's first port. Ends the
    command if there is none."""
    port = port or wires.WIRES[0].ports[0].name
    if wanted := url or os.environ.get(URL_VARIABLE):
        return wanted
    folder = data_folder(data)
    running = maybe_running(folder)
    if running is None or port not in running.urls:
        fail(
            f"no bus runs on the data folder {folder}: start one with `raceway serve --data {folder}`, "
            "or name one with --url or --data",
            ExitCode.UNREACHABLE,
        )
    return running.urls[port]


def console_url(url: str | None, data: Path | None) -> str:
    """URL of the console port: `url`, otherwise that of the bus that uses the data folder. Ends the command if neither
    exists."""
    if url is None:
        folder = data_folder(data)
        running = maybe_running(folder)
        if running is None:
            fail(f"no bus runs on the data folder {folder}: name one with --url or --data", ExitCode.UNREACHABLE)
        return running.urls["console"]
    if not url.startswith("http://"):
        misuse("this command needs the console port: --url http://HOST:PORT")
    return url.rstrip("/")


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
        raise ConnectionLostError(url + path, str(error)) from error
    if status >= 400 and isinstance(answer, dict) and isinstance(answer.get("error"), dict):
        raise RemoteError(str(status), str(answer["error"].get("message")))
    return answer


def list_all(url: str, path: str, name: str, token: str = "", **query: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows called `name` of all pages of a list. Raises RemoteError, ConnectionLostError."""
    after: str | None = ""
    while after is not None:
        page = call_console(url, path, token=token, query={**query, "after": after})
        yield from page.get(name, ())
        after = page.get("after")


def read_metrics(url: str) -> dict[str, float]:
    """Metrics of the bus that have no labels. Raises ConnectionLostError."""
    lines = _call(url, "/metrics")[1].decode().splitlines()
    pairs = [line.split() for line in lines if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in pairs}


def blocked_subscriptions(url: str, token: str = "") -> Iterator[str]:
    """Yield one sentence per blocked subscription of the bus with this console port.

    Raises ConnectionLostError, RemoteError.
    """
    for row in list_all(url, "/api/subscriptions/named", "subscriptions", token):
        topic, name, offset = row["topic"], row["name"], row["blocked_at"]
        if offset is not None:
            why = f" ({row['blocked_by']})" if row["blocked_by"] else ""
            yield (
                f"subscription {name} of {topic} is blocked by the message at offset {offset}, which failed too "
                f"often{why}: `raceway replay {topic} {name} --from {offset + 1}` skips it, "
                f"`raceway subscription policy {topic} {name} --then drop` drops it, or `--dead-letter-topic TOPIC` "
                "copies it"
            )


def open_journal(folder: Path) -> Reader:
    """Open the journal in the folder. Ends the command if there is none."""
    from raceway.journal.read.reader import Reader

    try:
        return Reader(folder)
    except FormatVersionError:
        raise
    except JournalError as error:
        fail(f"{error}: name the folder of a journal with --data DIR")


def _call(
    url: str, path: str, method: str = "GET", token: str = "", document: Any = None, timeout_s: float = CONSOLE_S
) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        body = None if document is None else msgspec.json.encode(document)
        connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ConnectionLostError(url + path, str(error)) from error
    finally:
        connection.close()
