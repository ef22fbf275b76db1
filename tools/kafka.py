"""Apache Kafka on loopback, without containers: for trying what talks to it (`make kafka`), and for tests.

Brokers are also controllers (KRaft), with small heaps and the serial collector. Their jars come by `tools.jars` and the
lock file beside this one.

    with brokers(folder, count=1, port_base=19092) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})
"""

from __future__ import annotations

import argparse
import base64
import logging
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.jars import JarsError, fetch, java

LOCK = Path(__file__).with_name("kafka-jars.txt")
START_S, STOP_S = 120.0, 30.0
# Ports in a row, one of each broker: for clients without and with TLS, for controllers.
PLAIN, SECURE, CONTROLLER = 0, 1, 2

PROPERTIES = """\
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listeners={listeners}
advertised.listeners={advertised}
log.dirs={data}
num.partitions=3
default.replication.factor={copies}
min.insync.replicas={least}
unclean.leader.election.enable=false
auto.create.topics.enable=false
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=3
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={least}
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
# A broker that was killed is noticed sooner than by default (9 s).
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
num.network.threads=2
num.io.threads=2
background.threads=1
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=4194304
"""
# PEM files; the password of each user is in the configuration, as Kafka wants it for SASL/PLAIN.
SECURE_PROPERTIES = """\
ssl.keystore.type=PEM
ssl.keystore.location={certificate}
ssl.client.auth=none
sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {users};
"""
# Without a leave for it, a user of the secure port may do nothing.
LEAVES = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{administrator}
"""
LOG4J = """\
Configuration:
  status: warn
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "%d %p %c %m%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""


class Secured(NamedTuple):
    """What the port with TLS and passwords has: a PEM file of certificate and key, users with their passwords.

    The first user may do everything, others what they were given leave for.
    """

    certificate: Path
    users: dict[str, str]


class Kafka:
    """Brokers numbered from 1, with their files in `folder`, on three ports each from `port_base` on."""

    def __init__(self, folder: Path, count: int, port_base: int, secured: Secured | None = None) -> None:
        self.count, self._folder, self._port_base, self._secured = count, folder, port_base, secured
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._jars = fetch(LOCK)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as clients want them."""
        return ",".join(f"127.0.0.1:{self._port(PLAIN, number)}" for number in self.numbers)

    @property
    def secure_bootstrap(self) -> str:
        """The addresses for TLS and a password."""
        return ",".join(f"127.0.0.1:{self._port(SECURE, number)}" for number in self.numbers)

    @property
    def numbers(self) -> range:
        return range(1, self.count + 1)

    def start(self) -> None:
        """Start all brokers on an empty folder; return when they serve."""
        (self._folder / "log4j2.yaml").write_text(LOG4J, "utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number in self.numbers:
            (self._folder / str(number)).mkdir()
            self._file(number, "server.properties").write_text(self._properties(number), "utf-8")
        # One word: an id may begin with a hyphen.
        id_option = f"--cluster-id={cluster}"
        formatting = [self._java(each, "kafka.tools.StorageTool", "format", id_option, "-c") for each in self.numbers]
        for number, process in zip(self.numbers, formatting, strict=True):
            if process.wait(START_S):
                raise RuntimeError(f"the folder of broker {number} could not be made: {self.log(number)}")
        for number in self.numbers:
            self.start_broker(number)
        self.wait()

    def start_broker(self, number: int) -> None:
        """Start one broker, also again; `wait` returns when it serves."""
        self._processes[number] = self._java(number, "kafka.Kafka")

    def wait(self) -> None:
        """Return when all brokers serve. Raises RuntimeError if one ended, or none serves in time."""
        deadline = time.monotonic() + START_S
        admin = AdminClient({"bootstrap.servers": self.bootstrap}, logger=_silent())
        while time.monotonic() < deadline:
            for number, process in self._processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"broker {number} ended with {process.returncode}: {self.log(number)}")
            try:
                if len(admin.list_topics(timeout=1).brokers) == self.count:
                    return
            except KafkaException:
                continue
        raise RuntimeError(f"the brokers do not serve after {START_S:.0f} s: {self.log(1)}")

    def kill(self, number: int) -> None:
        """End a broker with SIGKILL."""
        self._processes[number].kill()
        self._processes[number].wait(STOP_S)

    def mend(self) -> None:
        """Start the brokers that were killed; return when all serve."""
        ended = [number for number, process in self._processes.items() if process.poll() is not None]
        for number in ended:
            self.start_broker(number)
        if ended:
            self.wait()

    def pause(self, number: int) -> None:
        """Stop a broker with SIGSTOP until `resume`."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self._processes[number].send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End all brokers: orderly, then by force."""
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_S)

    def log(self, number: int) -> str:
        """Return the end of a broker's output."""
        return self._file(number, "out.log").read_text("utf-8", "replace")[-2000:]

    def _java(self, number: int, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [
            java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            f"-Dlog4j2.configurationFile={self._folder / 'log4j2.yaml'}", "-cp", ":".join(map(str, self._jars)), main,
            *arguments, str(self._file(number, "server.properties")),
        ]  # fmt: skip
        with self._file(number, "out.log").open("ab") as log:
            # In a session of its own: Ctrl-C is for us, and we end the brokers.
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def _properties(self, number: int) -> str:
        copies = min(3, self.count)
        for_clients = [f"PLAINTEXT://127.0.0.1:{self._port(PLAIN, number)}"]
        if self._secured:
            for_clients.append(f"SECURE://127.0.0.1:{self._port(SECURE, number)}")
        text = PROPERTIES.format(
            number=number,
            voters=",".join(f"{each}@127.0.0.1:{self._port(CONTROLLER, each)}" for each in self.numbers),
            listeners=",".join([*for_clients, f"CONTROLLER://127.0.0.1:{self._port(CONTROLLER, number)}"]),
            advertised=",".join(for_clients),
            data=self._file(number, "data"),
            copies=copies,
            least=min(2, copies),
        )
        return text + (self._secure_properties(self._secured) if self._secured else "")

    def _secure_properties(self, secured: Secured) -> str:
        users = " ".join(f'user_{name}="{password}"' for name, password in secured.users.items())
        return SECURE_PROPERTIES.format(certificate=secured.certificate, users=users) + LEAVES.format(
            administrator=next(iter(secured.users))
        )

    def _port(self, kind: int, number: int) -> int:
        return self._port_base + kind * self.count + number - 1

    def _file(self, number: int, name: str) -> Path:
        return self._folder / str(number) / name


@contextmanager
def brokers(folder: Path, count: int, port_base: int, secured: Secured | None = None) -> Iterator[Kafka]:
    """Brokers that serve until the block ends. Raises JarsError, RuntimeError."""
    kafka = Kafka(folder, count, port_base, secured)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def _silent() -> logging.Logger:
    """A logger for clients that try until a broker is there."""
    logger = logging.getLogger("tools.kafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger


def main() -> None:
    """Run brokers until Ctrl-C."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--port-base", type=int, default=9092, help="the port of the first (default: 9092)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"starting Kafka, {given.brokers} brokers; the first time its jars are fetched (44 MB) ...", flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="raceway-kafka-") as folder,
            brokers(Path(folder), given.brokers, given.port_base) as kafka,
        ):
            print(f"brokers at kafka://{kafka.bootstrap}; Ctrl-C stops them and removes their data")
            print("ready", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except (JarsError, RuntimeError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
