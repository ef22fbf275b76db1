from __future__ import annotations

import pytest

from raceway.config import Listen, is_loopback, names_us, plain_host


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False),
        ("127.0.0.1.example.org", False), ("example.org", False), ("", False),
    ],
)  # fmt: skip
def test_loopback_is_parsed_and_not_compared_by_its_start(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("//localhost:8600", True), ("http://[::1]:8600", True), ("//bus.example.org:8600", True),
        ("//BUS.example.org", True), ("//other.example.org", False), ("//[::1", False), ("", False), ("null", False),
    ],
)  # fmt: skip
def test_an_address_names_this_bus_by_loopback_or_by_one_of_its_names(address: str, expected: bool) -> None:
    assert names_us(address, ["Bus.example.org"]) == expected


def test_ports_without_tls_stay_on_loopback_unless_allowed() -> None:
    assert plain_host(Listen(host="0.0.0.0")) == "127.0.0.1"
    assert plain_host(Listen(host="0.0.0.0", insecure=True)) == "0.0.0.0"
    assert plain_host(Listen(host="::1")) == "::1"
