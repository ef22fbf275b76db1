"""Certificates that change while the bus runs, and client certificates, on every door that speaks TLS."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from raceway import config
from raceway.client.sync import connect as sync_connect
from raceway.errors import ConfigError
from raceway.net.certificates import tls_context
from tests.rigs.mb_wire import connect
from tests.rigs.server import Door, Server, running_server, wait_until

DOORS: list[Door] = ["tls", "wss", "danube"]


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def make_authority(folder: Path, name: str) -> None:
    openssl(
        folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
        "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        "-keyout", f"{name}.key", "-out", f"{name}.pem",
    )  # fmt: skip


def make_certificate(folder: Path, authority: str, name: str) -> None:
    """`name.pem` with the chain, `name.key`, and both in `name.both`. As RFC 5280 wants it: Python 3.13 checks that."""
    (folder / "extensions").write_text("subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    openssl(
        folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.csr",
    )  # fmt: skip
    openssl(
        folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
        "-CAcreateserial", "-days", "30", "-copy_extensions", "copy", "-extfile", "extensions", "-out", f"{name}.pem",
    )  # fmt: skip
    (folder / f"{name}.both").write_bytes((folder / f"{name}.pem").read_bytes() + (folder / f"{name}.key").read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    make_authority(made, "authority")
    make_authority(made, "clients")
    for authority, name in (("authority", "first"), ("authority", "second"), ("authority", "third")):
        make_certificate(made, authority, name)
    make_certificate(made, "clients", "client")
    make_certificate(made, "authority", "foreigner")
    return made


def install(folder: Path, name: str) -> None:
    """As tools that renew do: each file replaced at once."""
    for kind in ("key", "pem"):
        staged = folder / f"staged.{kind}"
        staged.write_bytes((folder / f"{name}.{kind}").read_bytes())
        staged.rename(folder / f"used.{kind}")


def shown(server: Server, door: Door) -> bytes:
    """The certificate that the door shows, in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if door == "danube":
        context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", server.port(door)), timeout=10)
    with context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True) or b""


def der(folder: Path, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / f"{name}.pem").read_text())


# ---- renewal ---------------------------------------------------------------------------------------------------------


def test_a_renewed_certificate_is_taken_while_the_bus_runs(folder: Path) -> None:
    install(folder, "first")
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "used.pem", RACEWAY_LISTEN__TLS_KEY=folder / "used.key",
        RACEWAY_LISTEN__TLS_RELOAD_S=0.1,
    ) as server:  # fmt: skip
        context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
        with connect(server, "tls", context) as peer:
            assert all(shown(server, door) == der(folder, "first") for door in DOORS)
            install(folder, "second")
            wait_until(lambda: all(shown(server, door) == der(folder, "second") for door in DOORS), what="the second")
            assert peer.settled() == [], "who is connected stays connected"
        (folder / "used.pem").write_text("no certificate")
        wait_until(lambda: "certificate not renewed" in server.stderr, what="a loud word in the log")
        assert all(shown(server, door) == der(folder, "second") for door in DOORS), "the old one stays"
        # A certificate without its key must not leave doors with one of each.
        (folder / "used.pem").write_bytes((folder / "third.pem").read_bytes())
        wait_until(lambda: server.stderr.count("certificate not renewed") >= 2, what="that they do not fit")
        assert all(shown(server, door) == der(folder, "second") for door in DOORS)
        install(folder, "third")
        wait_until(lambda: all(shown(server, door) == der(folder, "third") for door in DOORS), what="the third")


def test_sighup_renews_at_once_and_ends_nothing(folder: Path) -> None:
    install(folder, "first")
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "used.pem", RACEWAY_LISTEN__TLS_KEY=folder / "used.key",
        RACEWAY_LISTEN__TLS_RELOAD_S=0,
    ) as server:  # fmt: skip
        install(folder, "second")
        os.kill(server.pid, signal.SIGHUP)
        wait_until(lambda: all(shown(server, door) == der(folder, "second") for door in DOORS), what="the second")


def test_sighup_does_not_end_a_bus_without_certificates() -> None:
    with running_server() as server:
        os.kill(server.pid, signal.SIGHUP)
        assert server.http("/healthz")[0] == 200
        server.stop()


# ---- client certificates ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["required", "optional"])
def asking(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Server, str]]:
    with running_server(
        RACEWAY_LISTEN__TLS_CERTIFICATE=folder / "first.pem", RACEWAY_LISTEN__TLS_KEY=folder / "first.key",
        RACEWAY_LISTEN__TLS_CLIENT_CA=folder / "clients.pem", RACEWAY_LISTEN__TLS_CLIENT=request.param,
    ) as server:  # fmt: skip
        yield server, request.param


def is_let_in(server: Server, folder: Path, door: Door, name: str) -> bool:
    if door == "danube":
        return _grpc_is_let_in(server, folder, name)
    context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
    if name:
        context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    try:
        with connect(server, door, context) as peer:  # type: ignore[arg-type]  # two of its doors
            return peer.settled() == []
    except TimeoutError:
        raise  # a busy machine is no refusal
    except Exception:
        return False


def _grpc_is_let_in(server: Server, folder: Path, name: str) -> bool:
    own = [(folder / f"{name}.{kind}").read_bytes() if name else None for kind in ("key", "pem")]
    trusted = grpc.ssl_channel_credentials((folder / "authority.pem").read_bytes(), *own)
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.secure_channel(f"127.0.0.1:{server.port('danube')}", trusted, options) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=3)
        except grpc.FutureTimeoutError:
            return False
    return True


@pytest.mark.parametrize("door", DOORS)
def test_who_shows_a_good_certificate_is_let_in_and_who_shows_another_is_not(
    asking: tuple[Server, str], folder: Path, door: Door
) -> None:
    server, wanted = asking
    assert is_let_in(server, folder, door, "client")
    assert not is_let_in(server, folder, door, "foreigner"), "one of another authority"
    assert is_let_in(server, folder, door, "") is (wanted == "optional")


def test_our_own_clients_show_theirs(asking: tuple[Server, str], folder: Path) -> None:
    server, _ = asking
    for url in (f"mb+tls://127.0.0.1:{server.port('tls')}", f"mb+wss://127.0.0.1:{server.port('wss')}"):
        files: dict[str, Any] = {"ca_file": str(folder / "authority.pem"), "cert_file": str(folder / "client.both")}
        with sync_connect(url, **files) as client:
            assert client.publish("hello", b"heard, if by nobody").no_route


def test_authorities_that_are_none_are_named_at_the_start(folder: Path) -> None:
    (folder / "empty.pem").write_text("")
    files: dict[str, Any] = {"tls_certificate": str(folder / "first.pem"), "tls_key": str(folder / "first.key")}
    for bad in ("empty.pem", "missing.pem"):
        with pytest.raises(ConfigError, match="tls_client_ca"):
            tls_context(config.Listen(**files, tls_client_ca=str(folder / bad)))
    with pytest.raises(ConfigError, match="tls_client_ca"):
        config.load(None, flags={"listen.tls_client_ca": "x.pem"}, sections={})
