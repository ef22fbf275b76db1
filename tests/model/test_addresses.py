from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from raceway.model.addresses import host_port


@pytest.mark.parametrize("host", ["127.0.0.1", "bus.example", "::1", "fe80::2"])
def test_the_host_and_the_port_can_be_told_apart_again(host: str) -> None:
    found = urlsplit(f"mb://{host_port(host, 3001)}")
    assert (found.hostname, found.port) == (host, 3001)
