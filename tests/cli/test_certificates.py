from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from raceway.cli import certificates
from raceway.errors import ConfigError


def issue(folder: Path, name: str, not_after: datetime | None = None) -> tuple[str, str]:
    """A certificate and its key, as two files."""
    issued = trustme.CA().issue_cert("localhost", not_after=not_after)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return str(certificate), str(key)


def test_a_good_pair_tells_when_it_ends(tmp_path: Path) -> None:
    end = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    assert certificates.check(*issue(tmp_path, "good", end)) == end


def test_an_expired_certificate_is_refused_by_name(tmp_path: Path) -> None:
    certificate, key = issue(tmp_path, "old", datetime(2020, 1, 1))
    with pytest.raises(ConfigError, match=r"old\.pem: certificate has expired"):
        certificates.check(certificate, key)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    certificate, _ = issue(tmp_path, "one")
    _, key = issue(tmp_path, "two")
    with pytest.raises(ConfigError, match=r"one\.pem and .*two\.key are not a pair"):
        certificates.check(certificate, key)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    certificate, key = issue(tmp_path, "one")
    with pytest.raises(ConfigError, match=r"none\.pem cannot be read: No such file"):
        certificates.check(str(tmp_path / "none.pem"), key)
    with pytest.raises(ConfigError, match=r"none\.key cannot be read: No such file"):
        certificates.check(certificate, str(tmp_path / "none.key"))


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    _, key = issue(tmp_path, "one")
    (tmp_path / "text.pem").write_text("hello")
    with pytest.raises(ConfigError, match=r"text\.pem"):
        certificates.check(str(tmp_path / "text.pem"), key)
