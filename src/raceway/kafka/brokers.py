"""The brokers that mirrors and clusters talk to: `kafka://HOST:PORT,HOST:PORT`, and a file of properties.

Properties are passed on to librdkafka, so TLS and SASL are what it has. Those that promises depend on are ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from raceway.errors import BrokersError, ConfigError, RacewayError, UnreachableError
from raceway.model.addresses import host_port
from raceway.net.client.address import parse_url

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

C = TypeVar("C")

SCHEMES = {"kafka": 9092}
# Longest wait for an answer of a broker, unless a command has another `--timeout`.
KAFKA_S = 15.0
# Properties that a file must not set: with others, records could be lost or come twice.
OWN = (
    "bootstrap.servers", "metadata.broker.list", "transactional.id", "enable.idempotence", "acks",
    "request.required.acks", "isolation.level", "enable.auto.commit", "enable.auto.offset.store",
    "enable.partition.eof", "group.id", "auto.offset.reset",
)  # fmt: skip
# The largest message of librdkafka; brokers and topics have their own limits.
MAX_RECORD_BYTES = 1_000_000_000
# Codes after which the brokers may answer again, without any change.
PASSING = frozenset({
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE", "_RESOLVE", "_WAIT_COORD",
    "_DESTROY", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "CONCURRENT_TRANSACTIONS",
    "KAFKA_STORAGE_ERROR", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "UNKNOWN_PRODUCER_ID",
    "_MAX_POLL_EXCEEDED",
    "INVALID_PRODUCER_ID_MAPPING",  # forgotten after a week without a transaction
})  # fmt: skip
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
LOGIN = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "UNSUPPORTED_SASL_MECHANISM"})
UNKNOWN_TOPIC = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE"})
NOT_PERMITTED = "_AUTHORIZATION_FAILED"

_silent = logging.getLogger("raceway.kafka.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def check_installed() -> None:
    """Raise BrokersError if the extra `kafka` is missing."""
    if find_spec("confluent_kafka") is None:
        raise BrokersError("the client of Kafka is missing: pip install 'raceway[kafka]'")


def parse_brokers(url: str) -> str:
    """Return the brokers of `kafka://HOST[:PORT],…` as Kafka's client wants them. Raises ConfigError."""
    scheme, found, rest = url.partition("://")
    addresses = [parse_url(f"{scheme}{found}{place}", SCHEMES) for place in rest.split(",")]
    if any(address.path != "/" for address in addresses):
        raise ConfigError("url", f"{url!r} must have the form kafka://HOST:PORT,HOST:PORT, without a path")
    return ",".join(host_port(address.host, address.port) for address in addresses)


def read_properties(file: Path) -> dict[str, str]:
    """Read a file of properties, one `name=value` a line. Raises ConfigError."""
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--kafka-config", f"{file} cannot be read: {error}") from error
    properties = {}
    for line in filter(None, map(str.strip, lines)):
        name, found, value = (part.strip() for part in line.partition("="))
        if line.startswith("#"):
            continue
        if not found:
            raise ConfigError("--kafka-config", f"{file}: {line!r} is not of the form name=value")
        if name in OWN:
            raise ConfigError("--kafka-config", f"{file}: {name} is set by Raceway itself, remove it")
        properties[name] = value
    return properties


class KafkaCluster:
    """Brokers at a `kafka://` URL. `timeout_s` limits every wait for them."""

    def __init__(self, url: str, properties: Mapping[str, str], timeout_s: float) -> None:
        check_installed()
        self.url, self.timeout_s, self._properties = url, timeout_s, properties
        self._common: dict[str, Any] = {**properties, "bootstrap.servers": parse_brokers(url)}
        # The last reason why a broker could not be used: calls that time out do not tell it.
        self._trouble: KafkaError | None = None

    def within(self, timeout_s: float) -> KafkaCluster:
        """Return the same brokers with another limit of every wait."""
        return KafkaCluster(self.url, self._properties, timeout_s)

    def producer(self, **own: Any) -> Producer:
        """Return a producer with these properties, their dots as underscores, unless the user's file has others.

        Raises ConfigError.
        """
        from confluent_kafka import Producer

        return self._made(Producer, own)

    def consumer(self, **own: Any) -> Consumer:
        """Return a consumer, as `producer` does. Raises ConfigError."""
        from confluent_kafka import Consumer

        return self._made(Consumer, own)

    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return self._made(AdminClient, {})

    def metadata(self) -> ClusterMetadata:
        """Return the topics and the id of the cluster. Raises UnreachableError, BrokersError."""
        from confluent_kafka import KafkaException

        self._trouble, admin = None, self.admin()
        with self.failures_in_words("describe the cluster"):
            try:
                return admin.list_topics(timeout=self.timeout_s)
            except KafkaException:
                admin.poll(0)  # brings the reason, which the exception does not have
                raise

    def _made(self, kind: Callable[..., C], own: Mapping[str, Any]) -> C:
        from confluent_kafka import KafkaException

        properties = {name.replace("_", "."): value for name, value in own.items()}
        try:
            return kind({**properties, **self._common, "error_cb": self._noted}, logger=_silent)
        except KafkaException as error:
            raise ConfigError("--kafka-config", error.args[0].str()) from error

    def _noted(self, error: KafkaError) -> None:
        # That all are down follows a reason for each: the reasons say more.
        if error.name() != "_ALL_BROKERS_DOWN" or self._trouble is None:
            self._trouble = error

    @contextmanager
    def failures_in_words(self, doing: str) -> Iterator[None]:
        """Translate errors of Kafka's client; `doing` is what was tried. Raises UnreachableError, BrokersError."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.translated(error.args[0], doing) from error
        except TimeoutError as error:  # of futures that the admin client returned
            raise UnreachableError(self.url, f"no answer in {self.timeout_s:g} s when asked to {doing}") from error

    def _refused(self, error: KafkaError) -> BrokersError:
        return BrokersError(f"{self.url} refuses the connection ({error.str()}): see --kafka-config")

    def translated(self, error: KafkaError, doing: str) -> RacewayError:
        """Return an error of Kafka as one of ours."""
        trouble, name = self._trouble, error.name()
        # librdkafka tells now and then of a refused certificate as of a lost connection, with the words of OpenSSL.
        if trouble is not None and name in PASSING and (trouble.name() in LOGIN or "SSL routines" in trouble.str()):
            return self._refused(trouble)
        if name in PASSING or error.retriable():
            said = trouble.str() if trouble is not None and trouble.name() in PASSING else error.str()
            return UnreachableError(self.url, said)
        if name in FENCED:
            return BrokersError(
                "another process has taken over this mirror (same journal, same --name), or it was paused for longer "
                "than a transaction may take: this one ends"
            )
        if name in LOGIN:
            return self._refused(error)
        if name.endswith(NOT_PERMITTED):
            return BrokersError(
                f"no permission to {doing} at {self.url} ({error.str()}): grant it to this user in Kafka"
            )
        if name in UNKNOWN_TOPIC:
            return BrokersError(f"cannot {doing}: {self.url} does not have the topic ({error.str()})")
        return BrokersError(f"cannot {doing} at {self.url}: {error.str()} ({name})")
