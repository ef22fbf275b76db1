"""A disk that fills up or fails under Danube clients: no send is answered with success that was not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import NewTopicRequest, TopicResponse
from raceway.wires.danube.codec.pb.schema_registry_pb2 import RegisterSchemaRequest, RegisterSchemaResponse
from tests.recovery.test_process_faults import fault_env, is_ready, set_fault
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import DanubeWire, danube_wire
from tests.rigs.server import Server, running_server, wait_until

TOPIC = "/default/fault"
SCHEMA = RegisterSchemaRequest(subject="s", schema_type="string", schema_definition=b"x")


class Books:
    """Numbers that were sent, and how each was answered."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.refused: dict[bytes, str] = {}

    def send(self, wire: DanubeWire, producer_id: int) -> str | None:
        payload = b"%d" % (len(self.stored) + len(self.refused))
        try:
            wire.send(producer_id, TOPIC, payload)
        except RefusedError as refusal:
            self.refused[payload] = refusal.status
            return refusal.status
        self.stored.append(payload)
        return None

    def check(self, wire: DanubeWire, consumer_id: int) -> None:
        """The consumer gets what was stored, in order, and nothing that was refused."""
        stream = wire.listen(consumer_id)
        got = list(islice(stream, len(self.stored)))
        stream.cancel()
        assert [message.payload for message in got] == self.stored
        assert [message.msg_id.topic_offset for message in got] == list(range(len(got)))


@contextmanager
def faulty(folder: Path) -> Iterator[tuple[Server, Path]]:
    fault, data = folder / "fault", folder / "data"
    env = fault_env(fault, data) | {"RACEWAY_BROKER__SUBSCRIPTIONS__FIRST_IN_FLIGHT": 100}  # nothing is acknowledged
    with running_server(data, **env, RACEWAY_JOURNAL__RETRY_S=0.1) as server:
        yield server, fault


def assert_nothing_new_is_made(wire: DanubeWire) -> None:
    """At once: the client would wait for ever."""
    makers: list[Callable[[], object]] = [
        lambda: wire.producer("/default/another"),
        lambda: wire.producer(TOPIC, "another"),
        lambda: wire.consumer(TOPIC, subscription="another"),
        lambda: wire.ask("danube_admin.TopicAdmin/CreateTopic", NewTopicRequest(name="/default/b"), TopicResponse),
        lambda: wire.ask("danube_schema.SchemaRegistry/RegisterSchema", SCHEMA, RegisterSchemaResponse),
    ]
    for make in makers:
        with pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
            make()


def test_a_full_disk_tells_clients_to_try_again_and_consumers_go_on(tmp_path: Path) -> None:
    books = Books()
    with faulty(tmp_path) as (server, fault), danube_wire(server) as wire:
        producer_id, consumer_id = wire.producer(TOPIC), wire.consumer(TOPIC)
        for _ in range(20):
            assert books.send(wire, producer_id) is None
        set_fault(fault, "full")
        # What was on its way when it was noticed may be in doubt; from then on nothing is tried.
        wait_until(lambda: books.send(wire, producer_id) == "RESOURCE_EXHAUSTED")
        assert set(books.refused.values()) <= {"INTERNAL", "RESOURCE_EXHAUSTED"}
        assert books.send(wire, producer_id) == "RESOURCE_EXHAUSTED"
        assert_nothing_new_is_made(wire)
        assert wire.producer(TOPIC) == producer_id, "who is known may come back"
        assert wire.consumer(TOPIC) == consumer_id
        books.check(wire, consumer_id)
        fault.unlink()
        wait_until(lambda: is_ready(server), what="/readyz to be well again")
        for _ in range(20):
            assert books.send(wire, producer_id) is None
        books.check(wire, consumer_id)
        server.kill()
        server.start()
        with danube_wire(server) as again:
            books.check(again, consumer_id)


def test_a_failed_sync_ends_answers_of_success_until_a_restart(tmp_path: Path) -> None:
    books = Books()
    with faulty(tmp_path) as (server, fault):
        with danube_wire(server) as wire:
            producer_id, consumer_id = wire.producer(TOPIC), wire.consumer(TOPIC)
            for _ in range(20):
                assert books.send(wire, producer_id) is None
            set_fault(fault, "sync")
            assert books.send(wire, producer_id) == "INTERNAL"
            fault.unlink()
            assert {books.send(wire, producer_id) for _ in range(5)} == {"RESOURCE_EXHAUSTED"}, "though it would work"
            books.check(wire, consumer_id)
        server.kill()
        server.start()
        with danube_wire(server) as wire:
            assert books.send(wire, producer_id) is None
            books.check(wire, consumer_id)
