"""Brokers start without containers, serve, outlast a kill of one of them, and are gone after Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.rigs.kafka import SILENT, make_topic, read_topic, running_kafka
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until
from tests.rigs.tools import FETCH_S, locked_jars
from tools.kafka import LOCK

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.may_skip("Maven Central cannot be reached from everywhere"),
    pytest.mark.timeout(FETCH_S + 180),
]


def test_what_three_brokers_have_acknowledged_outlasts_one_of_them() -> None:
    with running_kafka(3) as kafka:
        make_topic(kafka, "kept")
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "logger": SILENT})
        acknowledged: list[bytes] = []
        for number in range(100):
            value = b"%d" % number
            producer.produce(
                "kept", value, on_delivery=lambda error, record: acknowledged.append(record.value() or b"")
            )
        assert producer.flush(30) == 0
        kafka.kill(1)
        assert [record.value() for record in read_topic(kafka, "kept")] == acknowledged
        kafka.start_broker(1)
        kafka.wait()


def test_ctrl_c_ends_all_brokers() -> None:
    locked_jars(LOCK)
    command = [sys.executable, "-m", "tools.kafka", "--brokers", "1", "--port-base", str(free_port_base())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        printed = [line for line in iter(process.stdout.readline, "ready\n") if line]
        assert printed[-1].startswith("brokers at kafka://127.0.0.1:")
        java = psutil.Process(process.pid).children(recursive=True)
        assert [each.name() for each in java] == ["java"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    wait_until(lambda: not any(each.is_running() for each in java), 10, "the brokers to end")
