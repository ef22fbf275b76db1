from __future__ import annotations

import gc
import socket
import ssl
from pathlib import Path

import pytest
import trustme

from raceway import config
from raceway.errors import ConfigError
from raceway.net.certificates import tls_context
from raceway.net.sockets import bind, set_send_buffer
from tests.rigs.doubles import RecordingTransport
from tests.rigs.ports import free_port_base


def test_a_bound_socket_can_be_listened_on() -> None:
    port = free_port_base()
    with bind("127.0.0.1", port) as sock:
        sock.listen()
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
    with bind("127.0.0.1", port) as again:
        assert again.getsockname() == ("127.0.0.1", port), "connections that ended a moment ago do not matter"


def test_a_port_in_use_is_named_with_what_to_do() -> None:
    with bind("127.0.0.1", free_port_base()) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is in use.*--port-base") as caught:
            bind("127.0.0.1", port)
    assert caught.value.key == "listen.port_base"
    del caught
    gc.collect()  # a socket left open would warn here, and warnings are errors


def test_an_address_of_another_machine_cannot_be_bound() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 cannot be opened"):
        bind("192.0.2.1", free_port_base())


@pytest.mark.parametrize("host", ["no such host", "a..b", "x" * 70])
def test_a_host_that_is_no_address_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot be resolved") as caught:
        bind(host, free_port_base())
    assert caught.value.key == "listen.host"
    assert host in str(caught.value)


def test_the_send_buffer_is_set_where_there_is_a_socket() -> None:
    with socket.socket() as sock:
        set_send_buffer(RecordingTransport(socket=sock), 65_536)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65_536, "Linux doubles it"
    set_send_buffer(RecordingTransport(), 65_536)


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    for name in ("one", "two"):
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    (folder / "empty.pem").touch()
    return folder


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    return tls_context(config.Listen(tls_certificate=str(certificate), tls_key=str(key)))


def test_tls_is_1_2_or_newer_without_client_certificates(files: Path) -> None:
    made = context(files / "one.pem", files / "one.key")
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2
    assert made.verify_mode == ssl.CERT_NONE


@pytest.mark.parametrize(
    ("certificate", "key", "named", "reason"),
    [
        ("none.pem", "one.key", "listen.tls_certificate", "none.pem cannot be read"),
        ("one.pem", "none.key", "listen.tls_key", "none.key cannot be read"),
        ("one.pem", "two.key", "listen.tls_certificate", "do not match"),
        ("empty.pem", "one.key", "listen.tls_certificate", "do not match"),
        ("one.key", "one.pem", "listen.tls_certificate", "do not match"),
    ],
)
def test_files_that_cannot_be_used_are_named(files: Path, certificate: str, key: str, named: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        context(files / certificate, files / key)
    assert caught.value.key == named


def test_a_shared_port_is_bound_by_several_and_by_no_other() -> None:
    port = free_port_base()
    with bind("127.0.0.1", port, shared=True) as one, bind("127.0.0.1", port, shared=True) as two:
        one.listen()
        two.listen()
        with pytest.raises(ConfigError, match=f"port {port} on .* is in use"):
            bind("127.0.0.1", port)
