"""The real Java client of zbus, `org.zbus:zbus:5.2.0` from Maven Central, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.rigs.mb_wire import connect
from tests.rigs.seneca_wire import wait_for_rows
from tests.rigs.server import Server, wait_until
from tests.rigs.tools import FETCH_S, HERE, locked_jars
from tests.rigs.zbus_wire import Client, fresh_name

PROGRAM = Path(__file__).parent.parent / "zbus_java" / "Peer.java"
WAIT_S = 60
# A compiler on a busy machine; the first test also waits for its jars.
COMPILE_S = 180

pytestmark = [
    pytest.mark.may_skip("Maven Central cannot be reached from everywhere"),
    pytest.mark.timeout(FETCH_S + COMPILE_S + 2 * WAIT_S),
]
COUNT = 20


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A class path with the client and the program that drives it."""
    jars = [str(jar) for jar in locked_jars(HERE / "zbus_java" / "zbus-jars.txt")]
    if (compiler := shutil.which("javac")) is None:
        pytest.skip("there is no javac")
    folder = str(tmp_path_factory.mktemp("classes"))
    subprocess.run([compiler, "-cp", os.pathsep.join(jars), "-d", folder, str(PROGRAM)], check=True, timeout=COMPILE_S)
    return os.pathsep.join([folder, *jars])


def command(classes: str, server: Server, what: str, mq: str) -> list[str]:
    # It looks into Java's own classes when it tells of an exception.
    java = ["java", "-Xmx128m", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", classes]
    return [*java, "Peer", str(server.port("zbus")), what, mq, str(COUNT)]


def run(classes: str, server: Server, what: str, mq: str) -> list[str]:
    done = subprocess.run(
        command(classes, server, what, mq), capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def running(classes: str, server: Server, what: str, mq: str) -> Iterator[tuple[IO[str], IO[str]]]:
    """Its standard input and output, when it listens."""
    process = subprocess.Popen(
        command(classes, server, what, mq),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "listening\n"
        yield process.stdin, process.stdout
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.communicate()


def consumers(client: Client, mq: str) -> int:
    table = client.data()["mqTable"]
    return len(table[mq]["consumerInfoList"]) if mq in table else 0


def test_what_it_produces_it_consumes_in_order(classes: str, server: Server) -> None:
    mq = fresh_name()
    told = run(classes, server, "mq", mq)
    assert told == ["created true", *["stored 200"] * COUNT, *(f"got m{number}" for number in range(COUNT))]
    rows = wait_for_rows(server, COUNT, topic=mq)
    assert [row["payload"] for row in rows] == [b"m%d" % number for number in range(COUNT)]


def test_it_consumes_what_another_wire_has_published(classes: str, server: Server, client: Client) -> None:
    mq = client.create()
    with connect(server, "tcp") as peer:
        for number in range(COUNT):
            peer.publish(mq, {"n": number})
    told = run(classes, server, "drain", mq)
    assert [json.loads(line.removeprefix("got ")) for line in told] == [{"n": number} for number in range(COUNT)]


def test_a_subscriber_gets_its_topic_and_no_other(classes: str, server: Server, client: Client) -> None:
    mq = fresh_name()
    with running(classes, server, "pubsub", mq) as (said, told):
        wait_until(lambda: consumers(client, mq) == 1, WAIT_S, "the subscription")
        said.write("\n")
        said.flush()
        assert [told.readline() for _ in range(COUNT)] == [f"got a m{number}\n" for number in range(COUNT)]
        assert told.readline() == "all true\n"


def test_a_caller_is_answered_by_its_service(classes: str, server: Server) -> None:
    told = run(classes, server, "rpc", fresh_name())
    assert told == [*(f"sum {number + 1}" for number in range(COUNT)), "hello zbus"]


def test_its_service_answers_other_wires(classes: str, server: Server, client: Client) -> None:
    mq = fresh_name()
    order = {"module": "sums", "method": "plus", "params": [20, 22], "paramTypes": ["int", "int"], "encoding": "UTF-8"}
    with running(classes, server, "serve", mq):
        wait_until(lambda: consumers(client, mq) > 0, WAIT_S, "the service")
        with connect(server, "tcp") as peer:
            answers = [peer.ask(mq, order).payload for _ in range(COUNT)]
    assert [json.loads(answer).get("result") for answer in answers] == [42] * COUNT, answers
