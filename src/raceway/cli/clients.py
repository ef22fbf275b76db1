"""What `pub`, `sub`, `request` and `topics` share: the choice of a wire or of the console port, and their arguments."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from raceway import wires
from raceway.cli import bus, options, output
from raceway.cli.talk import is_http
from raceway.errors import RemoteError

# The console port, in place of a wire.
HTTP = "http"
# Longest wait for a connection; `--timeout` may be less.
CONNECT_S = 5.0

WireTopic = Annotated[str, "Topic; over zbus a queue, over Seneca a pattern."]
PayloadArgument = Annotated[str | None, "Payload. Default, or `-`: standard input."]
PayloadFile = Annotated[Path | None, "--file FILE", "Read the payload from a file."]
PayloadVersion = Annotated[
    str | None, "--payload-version X.Y.Z", "Version of the payload's format. Default over MB: 1.0.0."
]


def _warn_of_version(value: str | None) -> str | None:
    if value:
        output.note("--version is now called --payload-version")
    return value


OldVersion = Annotated[str | None, typer.Option("--version", hidden=True, callback=_warn_of_version)]


class ClientOptions(options.OverWire):
    """Options of a client of a wire, or of the console port."""

    wire: Annotated[
        str | None,
        "--wire NAME",
        "Wire to use: mb, danube, zbus, seneca, or http (the console port). Default: that of --url; if it names a bus, "
        "http for `pub` and `sub`, mb for others.",
    ] = None
    ca_file: Annotated[str | None, "--ca-file FILE", "PEM file of trusted certificates, instead of the system's."] = (
        None
    )
    cert_file: Annotated[str | None, "--cert-file FILE", "PEM file with the client's certificate and private key."] = (
        None
    )

    def place(self, usual: str) -> str:
        """Return the URL to use, of a wire or of the console port; `usual` is the wire if none is named."""
        named = self.named
        if named is not None and bus.maybe_console(named.url) is None:
            scheme = wires.schemes().get(named.url.partition("://")[0])
            if self.wire is not None and (scheme is None or scheme.wire.name != self.wire):
                output.misuse(f"{named.url} is not of the wire {self.wire}: name the bus, --url raceway://HOST:PORT")
            return named.url
        wire, known = self.wire or usual, [each.name for each in wires.WIRES]
        if self.wire is None and wire == HTTP and named is None and bus.has_lanes(self.folder):
            wire = wires.WIRES[0].name  # a console has the topics of its lane alone
        if wire == HTTP:
            return bus.console_url(self.url, self.data, context=self.context)
        if wire not in known:
            output.misuse(f"--wire {wire} is unknown: there are {', '.join(known)} and {HTTP}")
        return self.address(wire)

    def connect(self, address: str, *, reconnect: bool = False) -> Any:
        from raceway.client import connect

        return connect(
            address, ca_file=self.ca_file, cert_file=self.cert_file, token=self.credential, reconnect=reconnect,
            patience_s=self.wait_s, connect_s=min(self.wait_s, CONNECT_S),
        )  # fmt: skip


class TimedClient(ClientOptions, options.TimedWire):
    """Options of a client with `--timeout`, for commands that end with an answer."""


@contextlib.contextmanager
def refusals(url: str) -> Iterator[None]:
    """End the command with status 1 if the console port at `url` refuses: no service has answered."""
    try:
        yield
    except RemoteError as error:
        if not is_http(url):
            raise
        advice = {
            "forbidden": "; --token TOKEN shows one, and --wire chooses another wire",
            "unauthenticated": "; --token TOKEN shows one",
        }
        output.fail(f"{error.reported}: {error.text}{advice.get(error.reported, '')}")


def read_messages(payload: str | None, file: Path | None, lines: bool) -> Iterator[bytes]:
    """Yield the messages that the arguments of a command name. Ends the command if a file cannot be read."""
    if payload is not None and payload != "-":
        if file is not None:
            output.misuse("give the payload on the command line or with --file, not both")
        content = payload.encode("utf-8", "surrogateescape")
    elif file is not None:
        try:
            content = file.read_bytes()
        except OSError as error:
            output.misuse(f"--file {file}: {error.strerror}")
    else:
        content = sys.stdin.buffer.read()
    if lines:
        yield from content.splitlines()
    else:
        yield content
