from __future__ import annotations

import pytest

from raceway.errors import MalformedError
from raceway.net.outgoing.allowed import Target
from raceway.wires.seneca.codec.call import Dialect
from raceway.wires.seneca.dial.address import parse_address


@pytest.mark.parametrize(
    ("url", "dialect", "target", "path", "spoken"),
    [
        ("http://127.0.0.1:9000", "auto", Target("127.0.0.1", 9000), b"/act", None),
        ("http://127.0.0.1:9000/", "auto", Target("127.0.0.1", 9000), b"/act", None),
        ("http://localhost/other?x=1", "W", Target("localhost", 80), b"/other?x=1", Dialect.WEB),
        ("https://b.example", "auto", Target("b.example", 443), b"/act", None),
        ("http://[::1]:9000/act#L", "auto", Target("::1", 9000), b"/act", Dialect.LEGACY),
        ("http://[::1]:9000/act#L", "S", Target("::1", 9000), b"/act", Dialect.SEED),
        ("tcp://127.0.0.1:9000", "auto", Target("127.0.0.1", 9000), b"/act", Dialect.TCP),
        ("tcp://127.0.0.1:9000#S", "auto", Target("127.0.0.1", 9000), b"/act", Dialect.SEED_LINE),
    ],
)
def test_an_address_says_where_and_perhaps_how(
    url: str, dialect: str, target: Target, path: bytes, spoken: Dialect | None
) -> None:
    address = parse_address(url, dialect)
    assert (address.target, address.path, address.dialect) == (target, path, spoken)
    assert "#" not in address.url


def test_the_host_header_is_what_was_written() -> None:
    assert parse_address("http://[::1]:9000/act").host == b"[::1]:9000"
    assert parse_address("http://b.example/act").host == b"b.example"


@pytest.mark.parametrize(
    "url",
    [
        "", "x", "127.0.0.1:80", "http://", "http://:80", "tcp://127.0.0.1", "ws://127.0.0.1:1", "http://h:0x1",
        "http://h:99999", "http://[::1", "http://u:p@h/", "http://h/\r\nx: y", "http://h/ü", "http://h/a b",
        "http://h#T", "tcp://h:1#L", "http://h#nonsense",
    ],
)  # fmt: skip
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(MalformedError):
        parse_address(url)
