"""The record of a wire: what the rest of the product knows about it.

A record loads no listener, client or reader. Fields that need code are dotted names, `package.module:attribute`, which
`load` imports on use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from raceway.config import Listen, Section


def load(dotted: str) -> Any:
    """Import what a dotted name stands for."""
    module, _, attribute = dotted.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, kw_only=True)
class WirePort:
    """A listening port of a wire.

    `name` is the name of the port, and the URL scheme of its clients unless `scheme` is another. `setting` is the key
    of the port's number in the settings of the wire, `offset` its distance from `listen.port_base`. `opens` tells when
    it opens: always, with a certificate, or without one; and only if the setting `needs` is set, if there is one.
    `protocol` is its name in the AsyncAPI document; a port without is not listed there.
    """

    name: str
    setting: str
    offset: int
    opens: Literal["always", "with TLS", "without TLS"] = "always"
    needs: str = ""
    scheme: str = ""
    # Class of the client, if it is not that of the wire.
    client: str = ""
    protocol: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.opens == "with TLS"


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A protocol that clients and services speak with the bus.

    name        in rows, settings, principals and on the command line
    settings    its section of the settings, `listen.NAME`; `more_settings` has others, by their keys
    ports       what it listens on
    server      its server side, a `wires.server.WireServer`
    client      class of its clients, a `net.client.client.Client`
    """

    name: str
    settings: type[Section]
    more_settings: Mapping[str, type[Section]] = field(default_factory=dict)
    ports: tuple[WirePort, ...]
    server: str
    client: str

    def port_of(self, port: WirePort, listen: Listen) -> int | None:
        """Return the number of a port; None if it is not opened."""
        section = listen.of(self.settings)
        if port.needs and not getattr(section, port.needs):
            return None
        if port.opens != "always" and (port.opens == "with TLS") != bool(listen.tls_certificate):
            return None
        number: int = getattr(section, port.setting)
        return listen.port_base + port.offset if listen.port_base else number

    def default_port(self, port: WirePort) -> int:
        number: int = getattr(self.settings(), port.setting)
        return number
