from __future__ import annotations

import pytest

from raceway import config
from raceway.net.outgoing.allowed import AllowList, Target, maybe_target


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("127.0.0.1:15555", Target("127.0.0.1", 15555)),
        (" localhost:1 ", Target("localhost", 1)),
        ("[::1]:65535", Target("::1", 65535)),
        ("::1:80", Target("::1", 80)),
        ("bus.example:80", Target("bus.example", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, target: Target) -> None:
    assert maybe_target(address) == target


@pytest.mark.parametrize(
    "address", ["", ":", "host", "host:", ":80", "[]:80", "h:0", "h:65536", "h:-1", "h:8O", "h:٣", "h:" + "9" * 5000]
)
def test_anything_else_is_none(address: str) -> None:
    assert maybe_target(address) is None


@pytest.mark.parametrize("target", [Target("::1", 80), Target("127.0.0.1", 80)])
def test_a_target_is_read_back_from_its_text(target: Target) -> None:
    assert maybe_target(str(target)) == target


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_a_bus_on_loopback_may_connect_to_loopback(address: str) -> None:
    assert AllowList(config.Listen()).maybe_allowed(address) == maybe_target(address)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5:15555", "169.254.169.254:80", "0.0.0.0:80", "bus.example:80", "127.0.0.1.example.org:80",
        "localhost.example:80", "2130706433:80", "0177.0.0.1:80", "127.1:80", "[fe80::1]:80", "u@127.0.0.1:80", "x",
    ],
)  # fmt: skip
def test_and_to_nothing_else_however_it_is_spelled(address: str) -> None:
    assert AllowList(config.Listen()).maybe_allowed(address) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "bus.example"])
def test_a_bus_that_other_machines_reach_connects_nowhere(host: str) -> None:
    allowed = AllowList(config.Listen(host=host, insecure=True))
    assert [allowed.maybe_allowed(address) for address in ("127.0.0.1:1", "[::1]:1", f"{host}:1")] == [None] * 3


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_what_is_listed_is_allowed_as_it_is_spelled(host: str) -> None:
    allowed = AllowList(config.Listen(host=host, insecure=True), ("10.0.0.5:80", "Services.Example", "[fe80::1]:9"))
    for address in ("10.0.0.5:80", "services.example:1", "SERVICES.example:2", "[fe80::1]:9"):
        assert allowed.maybe_allowed(address) is not None, address
    for address in ("10.0.0.5:81", "10.0.0.50:80", "x.services.example:1", "services.example.org:1", "[fe80::1]:90"):
        assert allowed.maybe_allowed(address) is None, address
