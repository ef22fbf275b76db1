"""URLs of a bus."""

from __future__ import annotations

import pytest

from raceway.client import connect
from raceway.errors import ConfigError
from raceway.net.client.address import Address, parse_url
from raceway.wires import schemes

PORTS = {"mb": 3001, "mb+wss": 8000}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mb://127.0.0.1:25000", Address("mb", "127.0.0.1", 25000)),
        ("mb://bus.example", Address("mb", "bus.example", 3001)),
        ("mb+wss://bus.example/path?x=1", Address("mb+wss", "bus.example", 8000, "/path?x=1")),
        ("mb://[::1]:7", Address("mb", "::1", 7)),
    ],
)
def test_url_is_read(url: str, address: Address) -> None:
    assert parse_url(url, PORTS) == address


@pytest.mark.parametrize("url", ["mb://127.0.0.1:25000", "mb+wss://bus.example:8000/path?x=1", "mb://[::1]:7"])
def test_address_is_shown_as_its_url(url: str) -> None:
    assert str(parse_url(url, PORTS)) == url


@pytest.mark.parametrize("url", ["", "127.0.0.1:25000", "http://x", "mb://", "mb://:5", "mb://x:port", "mb://x:99999"])
def test_what_is_no_address_is_refused_and_named(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url, PORTS)
    assert repr(url) in str(caught.value)


def test_every_scheme_has_its_default_port() -> None:
    ports = {scheme: connect(f"{scheme}://bus.example").address.port for scheme in schemes()}
    assert ports == {
        "mb": 3001, "mb+ws": 3000, "mb+tls": 8001, "mb+wss": 8000, "danube": 6650, "danube+tls": 6650, "zbus": 15555,
        "zbus+track": 16666, "seneca": 10101, "seneca+tcp": 10201,
    }  # fmt: skip


def test_unknown_option_is_named() -> None:
    with pytest.raises(ConfigError, match="patience_seconds: is not an option of a client"):
        connect("mb://bus.example", patience_seconds=5)
