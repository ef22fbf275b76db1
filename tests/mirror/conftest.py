"""One broker for all tests of mirrors, with a port for passwords over TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.rigs.kafka import AUTHORITY, USERS, running_kafka
from tests.rigs.tools import FETCH_S
from tools.kafka import Kafka, Secured


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.may_skip("Maven Central cannot be reached from everywhere"))
            item.add_marker(pytest.mark.timeout(FETCH_S + 300))


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the broker's certificate, and that of the authority that clients trust."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / AUTHORITY))
    issued = authority.issue_cert("127.0.0.1")
    # Kafka reads keys of PKCS #8 only.
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "broker.pem").write_bytes(pem + b"".join(each.bytes() for each in issued.cert_chain_pems))
    return folder


@pytest.fixture(scope="session")
def kafka(certificates: Path) -> Iterator[Kafka]:
    with running_kafka(1, Secured(certificates / "broker.pem", USERS)) as kafka:
        yield kafka
