"""Brokers by URL and properties; what goes wrong with them in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import trustme
from confluent_kafka import KafkaError

from raceway.errors import BrokersError, ConfigError, UnreachableError
from raceway.kafka.brokers import KafkaCluster, parse_brokers, read_properties
from tests.rigs.kafka import AUTHORITY, USERS
from tools.kafka import Kafka


@pytest.mark.parametrize(
    ("url", "brokers"),
    [
        ("kafka://one:1,two:2", "one:1,two:2"),
        ("kafka://one,[::1]:7", "one:9092,[::1]:7"),
    ],
)
def test_brokers_of_a_url(url: str, brokers: str) -> None:
    assert parse_brokers(url) == brokers


@pytest.mark.parametrize(
    "url", ["http://one:1", "one:1", "kafka://", "kafka://one:x", "kafka://one:1/name", "kafka://a,"]
)
def test_urls_that_name_no_brokers(url: str) -> None:
    with pytest.raises(ConfigError, match="url"):
        parse_brokers(url)


def test_properties_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\n\nsecurity.protocol = SSL\nsasl.password=a=b\n")
    assert read_properties(file) == {"security.protocol": "SSL", "sasl.password": "a=b"}


@pytest.mark.parametrize(
    ("text", "said"), [("acks=1", "acks is set by Raceway itself"), ("nothing", "'nothing' is not of the form")]
)
def test_properties_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_properties(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_properties(tmp_path / "nosuch")


def test_a_property_that_librdkafka_does_not_have() -> None:
    with pytest.raises(ConfigError, match=r"--kafka-config.*no\.such"):
        KafkaCluster("kafka://127.0.0.1:1", {"no.such": "1"}, 1).producer()


def test_an_answer_that_does_not_come() -> None:
    brokers = KafkaCluster("kafka://127.0.0.1:1", {}, 1)
    with pytest.raises(UnreachableError, match="no answer in 1 s"), brokers.failures_in_words("wait"):
        raise TimeoutError


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(BrokersError, match=r"pip install 'raceway\[kafka\]'"):
        KafkaCluster("kafka://127.0.0.1:1", {}, 1)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (KafkaError._TRANSPORT, UnreachableError, "cannot be reached"),
        (KafkaError.NOT_ENOUGH_REPLICAS, UnreachableError, "cannot be reached"),
        (KafkaError._FENCED, BrokersError, "another process has taken over"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokersError, "no permission to write at kafka://127.0.0.1:1"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, BrokersError, "does not have the topic"),
        (KafkaError.INVALID_TXN_STATE, BrokersError, "INVALID_TXN_STATE"),
    ],
)
def test_errors_in_our_words(code: int, kind: type[Exception], said: str) -> None:
    found = KafkaCluster("kafka://127.0.0.1:1", {}, 1).translated(KafkaError(code), "write")
    assert isinstance(found, kind)
    assert said in str(found)


def secure(kafka: Kafka, certificates: Path, user: str, **changes: str) -> KafkaCluster:
    properties = {
        "security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": user,
        "sasl.password": USERS[user], "ssl.ca.location": str(certificates / AUTHORITY),
    }  # fmt: skip
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return KafkaCluster(f"kafka://{kafka.secure_bootstrap}", properties | changed, 5)


def test_tls_and_a_password_are_passed_on(kafka: Kafka, certificates: Path) -> None:
    assert len(secure(kafka, certificates, "administrator").metadata().brokers or ()) == 1


def test_a_wrong_password_is_not_an_absent_broker(kafka: Kafka, certificates: Path) -> None:
    with pytest.raises(BrokersError, match="refuses the connection"):
        secure(kafka, certificates, "reader", sasl_password="wrong").metadata()


def test_a_certificate_that_nobody_vouches_for(kafka: Kafka, certificates: Path, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    with pytest.raises(BrokersError, match=r"refuses the connection.*certificate verify failed"):
        secure(kafka, certificates, "reader", ssl_ca_location=str(tmp_path / "other.pem")).metadata()
