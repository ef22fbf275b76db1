"""The record of a wire: what the rest of the product knows about it.

A record loads no listener, client or reader. Fields that need code are dotted names, `package.module:attribute`, which
`load` imports on use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, NamedTuple

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
    `advertised` is the key of the `host:port` that clients are told instead, if the wire has such a setting.
    `protocol` is its name in the AsyncAPI document; a port without is not listed there.
    """

    name: str
    setting: str
    offset: int
    opens: Literal["always", "with TLS", "without TLS"] = "always"
    needs: str = ""
    advertised: str = ""
    scheme: str = ""
    # Class of the client, if it is not that of the wire.
    client: str = ""
    protocol: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.opens == "with TLS"


class Pairing(NamedTuple):
    """How answers in captured traffic are assigned to their requests.

    A request is known by the values of the columns `asked`, an answer names it by those of `answered`, best first.
    `kind` is the kind that answers are captured as. `folds_case`: ids are equal in either letter case. `has_roots`:
    each message names the first of its chain. `lends_topic`: answers have no topic, and get that of their request.
    """

    asked: tuple[str, ...]
    answered: tuple[tuple[str, ...], ...]
    kind: str = "response"
    folds_case: bool = False
    has_roots: bool = False
    lends_topic: bool = False


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A protocol that clients and services speak with the bus.

    name        in rows, settings, principals and on the command line
    settings    its section of the settings, `listen.NAME`; `more_settings` has others, by their keys
    ports       what it listens on
    server      its server side, a `wires.server.WireServer`
    client      class of its clients, a `net.client.client.Client`; empty: it has none
    talk        how commands use its clients, a `cli.talk.Talk`; empty: that class itself
    commands    its own commands: functions, or `cli.options.Commands`
    capture     reader of captured traffic, `(settings, first byte) -> wires.captures.form.Form`; empty: none
    pairing     requests and answers in captured traffic; None: the wire has no requests
    spells      whether the wire can express a topic's name, `(name) -> bool`; empty: every name
    namespaces  whether it can name topics of all namespaces, not only of the default one
    durable     whether its clients can consume from durable subscriptions by name
    own_times   whether the hops of its answered requests have times of the bus's clock alone
    over_lanes  whether a bus of several lanes serves it
    one_lane    keys of settings that only a bus of one lane can have
    adds_keys   whether its payloads also have the keys by which they are routed, which no schema describes
    colours     in the console, light and dark
    """

    name: str
    settings: type[Section]
    more_settings: Mapping[str, type[Section]] = field(default_factory=dict)
    ports: tuple[WirePort, ...]
    server: str
    client: str = ""
    talk: str = ""
    commands: tuple[str, ...] = ()
    capture: str = ""
    pairing: Pairing | None = None
    spells: str = ""
    namespaces: bool = False
    durable: bool = False
    own_times: bool = False
    adds_keys: bool = False
    over_lanes: bool = True
    one_lane: tuple[str, ...] = ()
    colours: tuple[str, str] = ("#64748b", "#a3b0c2")

    def port_of(self, port: WirePort, listen: Listen) -> int | None:
        """Return the number of a port; None if it is not opened."""
        section = listen.of(self.settings)
        if port.needs and not getattr(section, port.needs):
            return None
        if port.opens != "always" and (port.opens == "with TLS") != bool(listen.tls_certificate):
            return None
        number: int = getattr(section, port.setting)
        return listen.port_base + port.offset if listen.port_base else number

    def schemes(self) -> dict[str, Scheme]:
        """Return the URL schemes of its clients."""
        defaults, found = self.settings(), {}
        for port in self.ports if self.client else ():
            scheme = port.scheme or port.name
            name, client = (scheme, port.client) if port.client else (self.name, self.client)
            found[scheme] = Scheme(self, name, client, getattr(defaults, port.setting))
        return found


class Scheme(NamedTuple):
    """A URL scheme. `name` is what `connect(wire=…)` calls its clients, of the class `client`."""

    wire: Wire
    name: str
    client: str
    default_port: int
