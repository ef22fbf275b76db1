from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from raceway.model.addresses import host_port, network_of


@pytest.mark.parametrize("host", ["127.0.0.1", "bus.example", "::1", "fe80::2"])
def test_the_host_and_the_port_can_be_told_apart_again(host: str) -> None:
    found = urlsplit(f"mb://{host_port(host, 3001)}")
    assert (found.hostname, found.port) == (host, 3001)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("a:b", "a:b"),
        ("unknown", "unknown"),
    ],
)
def test_one_machine_is_counted_as_one(host: str, network: str) -> None:
    assert network_of(host) == network
