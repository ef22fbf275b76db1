"""Limits that hold where wires meet. Sizes on the way in (L1) are in `test_errors.py`."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from raceway import config
from raceway.wires.danube.settings import DanubeWire
from raceway.wires.mb.settings import MbWire
from raceway.wires.seneca.settings import SenecaDial, SenecaWire
from raceway.wires.zbus.settings import ZbusWire
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.mb_wire import TcpPeer, connect
from tests.rigs.one_bus import OneBus, Place, fresh, fresh_place
from tests.rigs.seneca_bus import lines, raw_service
from tests.rigs.seneca_wire import (
    Http,
    answering,
    attached,
    journal_end,
    new_id,
    post,
    rows,
    seed,
    serving,
    wait_for_rows,
)
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, dial_server, zbus_port

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def tight() -> Iterator[Server]:
    """Limits that a test can reach."""
    with running_server(
        RACEWAY_LISTEN__HEAD_S=1.5,
        RACEWAY_LISTEN__MB__SWEEP_MS=50,
        RACEWAY_LISTEN__ZBUS__SWEEP_MS=50,
        RACEWAY_LISTEN__SENECA__SWEEP_MS=50,
        RACEWAY_LISTEN__OUTPUT_BYTES=256 * KIB,
        RACEWAY_LISTEN__STALL_S=2,
        RACEWAY_BROKER__HOLD_MS=100,
        RACEWAY_BROKER__SUBSCRIPTIONS__BEHIND_BYTES=256 * KIB,
        RACEWAY_LISTEN__SOCKET_SEND_BYTES=16 * KIB,
        RACEWAY_BROKER__PUBSUB_MESSAGES=10,
        RACEWAY_BROKER__PUBSUB_BYTES=32 * KIB,
        RACEWAY_BROKER__MAX_TOPICS=40,
        RACEWAY_BROKER__SUBSCRIPTIONS__DEDUP_IDS=3,
    ) as server:
        yield server


def notes(bus: OneBus, place: Place, since: int) -> list[dict[str, str]]:
    found = [dict(row["attributes"]) for row in rows(bus.server, since, topic="raceway.undeliverable")]
    return [note for note in found if note["topic"] == place.topic]


# ---- sizes that do not fit -------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_manual() -> None:
    """L1, L3, L4, L5, L6, L9, A3."""
    settings = config.Config()
    listen, broker = settings.listen, settings.broker
    zbus, danube = listen.of(ZbusWire), listen.of(DanubeWire)
    assert (zbus.head_limit, zbus.header_limit, zbus.body_limit) == (64 * KIB, 200, 64 * MIB)
    assert (listen.of(SenecaWire).body_limit, settings.of(SenecaDial).message_limit) == (8 * MIB, 8 * MIB)
    assert listen.of(MbWire).payload_limit == 16 * KIB
    assert (listen.http.body_limit, listen.grpc.message_limit) == (64 * MIB, 4 * MIB - 64 * KIB)
    assert (danube.attribute_limit, danube.attribute_bytes) == (128, 64 * KIB)
    assert (listen.head_s, listen.body_rate, listen.output_bytes) == (10.0, KIB, 16 * MIB)
    assert (listen.stall_s, listen.output_total_bytes) == (60.0, 256 * MIB)
    assert (broker.hold_ms, broker.hold_window_ms, broker.subscriptions.behind_bytes) == (1000, 10_000, 16 * MIB)
    assert (broker.pubsub_messages, broker.pubsub_bytes, broker.max_topics) == (1000, 8 * MIB, 1_000_000)
    assert (broker.subscriptions.dedup_s, broker.subscriptions.dedup_ids) == (600.0, 100_000)


@pytest.mark.parametrize(
    ("lines", "status"),
    [(198, 200), (199, 400), (1, 400)],
    ids=["as many headers as may be", "one more", "a head of more than 64 KiB"],
)
def test_a_head_of_zbus_has_its_limits(bus: OneBus, place: Place, lines: int, status: int) -> None:
    """L1. 64 KiB and 200 headers, `cmd` and `mq` among them."""
    client = bus.zbus()
    client.create(place.topic)
    value = "v" if lines > 1 else "v" * 64 * KIB
    head = "".join(f"x-{number}: {value}\r\n" for number in range(lines))
    client.write(f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: {place.topic}\r\n{head}\r\n".encode())
    assert client.receive().status == status


def test_a_document_of_seneca_has_its_limits_and_its_last_key_counts(bus: OneBus, place: Place) -> None:
    """L1. Depth 512; a key that comes twice; a GET, whose query is read."""
    peer = bus.mb()
    peer.subscribe(place.topic)
    keys = f'"role":"{place.word}","cmd":"{place.cmd}","meta$":{{"act":true,"snc":false}}'
    with Http(bus.server.port("seneca")) as http:
        assert http.post(f'{{{keys},"x":{"[" * 511}{"]" * 511}}}'.encode()).status == 202
        assert http.post(f'{{{keys},"x":{"[" * 512}{"]" * 512}}}'.encode()).status == 400
        assert http.post(f'{{{keys},"n":1,"n":2}}'.encode()).status == 202
    assert [json.loads(peer.receive().payload).get("n") for _ in range(2)] == [None, 2]
    with serving(bus.server, place.pin, answering({"ok": True})) as service, Http(bus.server.port("seneca")) as http:
        answer = http.post(b"", {}, f"/act?role={place.word}&cmd={place.cmd}&n=3", "GET")
        assert (answer.status, service.got[-1].json()["n"]) == (200, "3")


def test_one_large_message_does_not_stop_a_danube_stream(bus: OneBus, place: Place) -> None:
    """L2. Not delivered there, counted, stepped over, noted; everybody else has it."""
    since = journal_end(bus.server)
    before = bus.server.metric("raceway_undeliverable_messages_total")
    client, peer = bus.zbus(), bus.mb()
    client.create(place.topic)
    peer.subscribe(place.topic)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    client.produce(place.topic, b"x" * (10 * MIB))
    client.produce(place.topic, b"small")
    assert [(one.payload, one.offset) for one in bus.danube.receive(c, ack=True)] == [(b"small", 1)]
    assert [len(peer.receive().payload), len(peer.receive().payload)] == [10 * MIB, 5]
    assert [len(client.take(place.topic).body) for _ in range(2)] == [10 * MIB, 5]
    (note,) = wait_until(lambda: notes(bus, place, since))
    assert (note["reason"], note["subscription"], note["offset"]) == ("too_large", "s", "0")
    assert bus.server.metric("raceway_undeliverable_messages_total") > before


@pytest.mark.parametrize("dialect", ["S", "T"])
def test_one_large_message_does_not_reach_a_seneca_service(bus: OneBus, place: Place, dialect: str) -> None:
    """L2. A line of ten megabytes would end the connection of a service that reads lines."""
    since = journal_end(bus.server)
    client = bus.zbus()
    if dialect == "S":
        service = bus.open(serving(bus.server, place.pin, answering({"ok": True})))
    else:
        service = bus.open(raw_service(lines(lambda document: {"ok": True}), lines=True))
        bus.open(attached(bus.server, place.pin, service.url, "T"))
    client.produce(place.topic, b'{"x":"' + b"x" * (10 * MIB) + b'"}')
    client.produce(place.topic, b'{"n":1}')
    service.wait_for(1)
    (note,) = wait_until(lambda: notes(bus, place, since))
    assert "the message" in note["reason"]
    answer = client.reply(client.request(place.topic, b"x" * (9 * MIB)))
    assert answer.status == 413, "whoever asks is told"
    assert client.reply(client.request(place.topic, b"{}")).json() == {"ok": True}


# ---- slow peers ------------------------------------------------------------------------------------------------------


# What each door is sent, and never the rest of it: a head that was begun, and a body of which too little comes.
BEGUN = {
    "tcp": (b"\0\0", struct.pack(">I", 200) + b"publish:"),
    "websocket": (b"GET / HT", b""),
    "danube": (b"PRI * HTT", b""),
    "zbus": (b"POST / HT", b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: x\r\ncontent-length: 900\r\n\r\nx"),
    "seneca": (b"POST /act HT", b"POST /act HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900\r\n\r\n{"),
    "seneca_tcp": (b'{"kind":', b""),
    "console": (b"POST /topics/x HT", b"POST /topics/x HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 900\r\n\r\n{"),
}


@pytest.mark.parametrize(
    ("door", "start"), [(door, start) for door, starts in BEGUN.items() for start in starts if start]
)
def test_a_message_that_is_begun_must_go_on(tight: Server, door: Any, start: bytes) -> None:
    """L3. A head must be complete in time, and a body keep up its rate: here a kilobyte a second, for 900 bytes."""
    with socket.create_connection(("127.0.0.1", tight.port(door)), 10) as peer:
        peer.sendall(start)
        began = time.monotonic()
        while peer.recv(4096):
            pass
        assert 0.2 < time.monotonic() - began < 10


def test_a_live_peer_that_takes_nothing_is_closed_and_counted_and_durable_readers_wait(tight: Server) -> None:
    """L4. MB is closed when its time is over; a zbus queue and a Danube subscription have everything in the end."""
    place, body, count = fresh_place(), b"x" * 16_000, 150
    before = tight.metric("raceway_slow_peers_closed_total")
    with connect(tight, "tcp") as speaking, dial_server(tight) as client, danube_wire(tight) as wire:
        slow_socket = socket.socket()
        slow_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow_socket.connect(("127.0.0.1", tight.port("tcp")))
        slow = TcpPeer(slow_socket)
        slow.subscribe(place.topic)
        client.create(place.topic)
        stream = wire.listen(wire.consumer(place.danube))
        for _ in range(count):
            speaking.publish(place.topic, body)
        wait_until(lambda: tight.metric("raceway_slow_peers_closed_total") > before, 10, "the slow peer closed")
        slow.close()
        with Client(zbus_port(tight), receive_buffer=4096) as consumer:
            consumer.send("consume", mq=place.topic, msgid="c", window="-1")
            time.sleep(0.2)  # it is slow: what does not fit waits in the journal
            assert [len(consumer.receive().body) for _ in range(count)] == [len(body)] * count
        for message in itertools.islice(stream, count):
            wire.ack(message)
        stream.cancel()


def test_a_live_zbus_peer_that_takes_nothing_is_closed_and_counted(tight: Server) -> None:
    """L4. A publish/subscribe consumer that asked for everything."""
    place, before = fresh_place(), tight.metric("raceway_slow_peers_closed_total")
    with connect(tight, "tcp") as speaking, Client(zbus_port(tight), receive_buffer=4096) as slow:
        slow.create(place.topic, mode=2)
        slow.arm(place.topic, topic="*", window="-1")

        def is_closed() -> bool:
            for _ in range(20):
                speaking.publish(place.topic, b"x" * 16_000)
            return tight.metric("raceway_slow_peers_closed_total") > before

        wait_until(is_closed, 10, "the slow peer closed")


def test_a_danube_stream_without_room_leaves_the_live_path_of_its_topic(tight: Server) -> None:
    """L4. A non-reliable subscription whose stream is not read."""
    place, before = fresh_place(), tight.metric("raceway_detached_subscribers_total")
    with danube_wire(tight) as wire, connect(tight, "tcp") as speaking:
        wire.producer(place.danube, reliable=False)
        stream = wire.listen(wire.consumer(place.danube))

        def is_full() -> bool:
            for _ in range(100):
                speaking.publish(place.topic, b"x" * 16_000)
            return tight.metric("raceway_detached_subscribers_total") > before

        wait_until(is_full, 30, "it to leave the live path")
        stream.cancel()


def test_a_pubsub_buffer_above_its_mark_loses_nothing(tight: Server) -> None:
    """L5. Fed by another wire. Ten messages are its mark here: publishers wait, then it reads from the journal."""
    place, before = fresh_place(), tight.metric("raceway_detached_subscribers_total")
    with dial_server(tight) as client, connect(tight, "tcp") as peer:
        client.create(place.topic, mode=2)
        armed = client.arm(place.topic, topic="*")
        for number in range(40):
            peer.publish(place.topic, b"%d" % number)
        bodies = [client.reply(armed).body] + [client.ask("consume", mq=place.topic, topic="*").body for _ in range(39)]
    assert bodies == [b"%d" % number for number in range(40)]
    assert tight.metric("raceway_detached_subscribers_total") > before


def test_a_pubsub_buffer_has_so_many_bytes_at_most(tight: Server) -> None:
    """L5. 32 KiB here, of messages of ten thousand bytes: the others are read from the journal."""
    place = fresh_place()
    with dial_server(tight) as client, connect(tight, "tcp") as peer:
        client.create(place.topic, mode=2)
        armed = client.arm(place.topic, topic="*")
        for number in range(9):
            peer.publish(place.topic, b"%d" % number * 10_000)
        bodies = [client.reply(armed).body] + [client.ask("consume", mq=place.topic, topic="*").body for _ in range(8)]
    assert [body[:1] for body in bodies] == [b"%d" % number for number in range(9)]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def test_one_topic_too_many_is_refused_on_every_wire() -> None:
    """L6, E5."""
    with running_server(RACEWAY_BROKER__MAX_TOPICS=3) as server, connect(server, "tcp") as peer:
        with dial_server(server) as client:
            codes = [json.loads(peer.publish(f"t{number}").payload)["error"]["code"] for number in range(5)]
            assert codes == ["NO_ROUTE_FOUND"] * 3 + ["SERVICE_UNAVAILABLE"] * 2
            assert client.admin("create_mq", '{"mqName": "t9", "mqMode": "1"}').status == 503
        assert post(server, seed({"role": "t9"}, sync=False)).json()["code"] == "overloaded"
        with danube_wire(server) as wire, pytest.raises(RefusedError, match="RESOURCE_EXHAUSTED"):
            wire.producer("/default/t9")


def test_too_many_attributes_are_refused_and_as_many_as_may_be_reach_other_wires(bus: OneBus, place: Place) -> None:
    """L7. Danube's as lines of a zbus head."""
    client = bus.zbus()
    client.create(place.topic)
    bus.danube.create(p := fresh("p"), place.danube)
    with pytest.raises(RefusedError):
        bus.danube.send(p, b"x", attributes={f"a{number}": "" for number in range(129)})
    with pytest.raises(RefusedError):
        bus.danube.send(p, b"x", attributes={"a": "x" * (65 * KIB)})
    custom = {f"a{number}": "v" for number in range(129)}
    assert post(bus.server, seed(place.keys, sync=False, ctm=custom)).status == 413
    most = {f"a{number}": "v" * 400 for number in range(128)}
    bus.danube.send(p, b"x", attributes=most)
    headers = client.take(place.topic).headers
    assert {name: headers[name] for name in most} == most


def test_a_history_without_end_is_cut_and_the_row_says_so(bus: OneBus, place: Place) -> None:
    """L8. 64 hops: the first and the last are kept."""
    document = seed(place.keys, sync=False)
    own = document["meta$"]["trk"][-1]
    document["meta$"]["trk"] = [{"sid": "s", "mid": f"h{n}", "tms": [n, n]} for n in range(100)] + [own]
    assert post(bus.server, document).status == 202
    (row,) = wait_for_rows(bus.server, 1, topic=place.topic)
    assert (len(row["hops"]), row["hops"][0]["mid"], row["hops"][-1]["mid"]) == (64, "h0", own["mid"])
    assert dict(row["attributes"])["seneca.hops_cut"] == "37"


def test_a_repeated_dedup_id_of_one_sender_is_stored_once_on_any_wire_that_can_say_it(tight: Server) -> None:
    """L9. Also after a restart; the oldest of too many is forgotten."""
    place = fresh_place()
    with dial_server(tight) as client:
        client.create(place.topic)
        for dedup_id in ("1", "1", "2", "3", "4", "1", "4"):
            client.produce(place.topic, dedup_id, **{"x-dedup-id": dedup_id})
        assert [client.take(place.topic).body for _ in range(5)] == [b"1", b"2", b"3", b"4", b"1"]
    document = seed(place.keys, sync=False, sid="A/1", ctm={"x-dedup-id": new_id()})
    post(tight, document)
    tight.restart()
    document["meta$"] |= {"mid": new_id(), "trk": []}
    assert post(tight, document).status == 202
    assert len(rows(tight, topic=place.topic, wire="seneca")) == 1


def test_an_expression_that_would_take_for_ever_does_not(bus: OneBus) -> None:
    """L10. RE2; 256 characters at most."""
    peer = bus.mb()
    assert peer.ask("system.log.subscribe", {"levels": ["error"], "regex": "(a+)+$"}).payload == b'{"status":"success"}'
    too_long = peer.ask("system.log.subscribe", {"levels": ["error"], "regex": "a" * 257}).json()
    assert "error" in too_long
    backwards = peer.ask("system.log.subscribe", {"levels": ["error"], "regex": r"(a)\1"}).json()
    assert "error" in backwards, "RE2 knows no references back"
    began = time.monotonic()
    bus.mb().publish("system." + "a" * 200 + "!", b"{}")
    assert peer.settled() is not None
    assert time.monotonic() - began < 5
