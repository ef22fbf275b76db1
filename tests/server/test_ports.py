from __future__ import annotations

import socket

import pytest

from raceway.errors import UnavailableError
from raceway.server import ports


def test_the_ports_are_free_and_below_the_ephemeral_range() -> None:
    base = ports.free_port_base()
    assert ports.LOWEST <= base <= ports.HIGHEST - 9 < 32768
    for port in range(base, base + 10):
        socket.create_server(("127.0.0.1", port)).close()


def test_a_row_with_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = iter([11_000, 12_000])
    monkeypatch.setattr("random.randint", lambda *_: next(tried))
    monkeypatch.setattr(ports, "_is_free", lambda port: port != 11_009)
    assert ports.free_port_base() == 12_000


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not ports._is_free(taken.getsockname()[1])


def test_it_says_when_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda _: False)
    with pytest.raises(UnavailableError, match="no 10 free ports"):
        ports.free_port_base()
