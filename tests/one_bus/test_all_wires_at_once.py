"""Publishers and subscribers on every wire at once: nothing is lost, nothing comes twice, everything in order.

Four topics, one for each publishing wire, each with a subscriber on every wire: sixteen cells, counted and printed.
`RACEWAY_ROUNDS=1` runs for a minute.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import AckRequest
from tests.rigs.danube_wire import DanubeWire, danube_wire
from tests.rigs.mb_wire import PeerClosed, new_id
from tests.rigs.one_bus import WIRES, OneBus, Place, fresh, fresh_place
from tests.rigs.rounds import SOAKING
from tests.rigs.seneca_bus import Received, raw_service
from tests.rigs.seneca_wire import Http, attached, seed
from tests.rigs.server import wait_until
from tests.rigs.zbus_wire import ClosedByServer

SECONDS = 60.0 if SOAKING else 4.0
TOGETHER = 20
CATCH_UP_S = 60.0
DONE = (OSError, PeerClosed, ClosedByServer, TimeoutError, HTTPException)

# What a cell got: numbers in the order in which they came.
Cells = dict[tuple[str, str], list[int]]


def number_of(document: Any) -> int:
    """Numbers travel bare, as Seneca's wrapping of them, or as a member."""
    return int(document if isinstance(document, int) else document.get("n", document.get("data")))


# ---- publishers: each says how many were taken -----------------------------------------------------------------------


def publish_mb(bus: OneBus, place: Place, going: Callable[[], bool]) -> int:
    peer, count = bus.mb(), 0
    while going():
        ids = [new_id() for _ in range(TOGETHER)]
        for number, message_id in enumerate(ids, count):
            peer.send(f"publish:{place.topic}:1.0.0:{message_id}", b"%d" % number)
        for message_id in ids:
            assert b"success" in peer.reply(message_id, CATCH_UP_S).payload
        count += TOGETHER
    return count


def publish_zbus(bus: OneBus, place: Place, going: Callable[[], bool]) -> int:
    client, count = bus.zbus(), 0
    while going():
        ids = [new_id() for _ in range(TOGETHER)]
        for number, message_id in enumerate(ids, count):
            client.send("produce", b"%d" % number, mq=place.topic, msgid=message_id)
        for message_id in ids:
            assert client.reply(message_id, CATCH_UP_S).status == 200
        count += TOGETHER
    return count


def publish_seneca(bus: OneBus, place: Place, going: Callable[[], bool]) -> int:
    count = 0
    with Http(bus.server.port("seneca"), CATCH_UP_S) as http:
        while going():
            assert http.post(seed(place.keys | {"n": count}, sync=False)).status == 202
            count += 1
    return count


# ---- subscribers -----------------------------------------------------------------------------------------------------


def listen_mb(bus: OneBus, place: Place, came: list[int]) -> None:
    peer = bus.mb()
    peer.subscribe(place.topic)

    def run() -> None:
        with suppress(*DONE):
            while True:
                message = peer.receive(3600)
                if message.action == "publish":
                    came.append(number_of(json.loads(message.payload)))
                else:  # the bus asks whether it is still there
                    peer.answer(message)

    threading.Thread(target=run, daemon=True).start()


def listen_zbus(bus: OneBus, place: Place, came: list[int]) -> None:
    client = bus.zbus()
    client.create(place.topic)
    client.arm(place.topic, window="-1")

    def run() -> None:
        with suppress(*DONE):
            while True:
                came.append(number_of(json.loads(client.receive(3600).body)))

    threading.Thread(target=run, daemon=True).start()


def listen_seneca(bus: OneBus, place: Place, came: list[int]) -> None:
    def handle(received: Received, connection: Any) -> None:
        came.append(number_of(received.document["act"]))

    service = bus.open(raw_service(handle, lines=True))
    bus.open(attached(bus.server, place.pin, service.url, "T"))


def listen_danube(bus: OneBus, place: Place, came: list[int]) -> None:
    """By the wire itself: the published client acknowledges one message after the other, and that takes its time."""
    wire: DanubeWire = bus.open(danube_wire(bus.server))
    stream = wire.listen(wire.consumer(place.danube, fresh("c"), "s"))
    ack = wire.channel.unary_unary("/danube.ConsumerService/Ack")
    # A call that nobody holds is cancelled.
    calls: set[Any] = set()

    def run() -> None:
        with suppress(grpc.RpcError, ValueError):
            for message in stream:
                came.append(number_of(json.loads(message.payload)))
                done = AckRequest(msg_id=message.msg_id, subscription_name=message.subscription_name)
                calls.add(call := ack.future(done.SerializeToString()))
                call.add_done_callback(calls.discard)

    threading.Thread(target=run, daemon=True).start()


LISTENERS = {"mb": listen_mb, "danube": listen_danube, "zbus": listen_zbus, "seneca": listen_seneca}
PUBLISHERS = {"mb": publish_mb, "zbus": publish_zbus, "seneca": publish_seneca}


# ---- the run ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_comes_twice_while_all_wires_are_at_work(patient_bus: OneBus) -> None:
    """S6, S2, S3, S4."""
    bus, places = patient_bus, {wire: fresh_place() for wire in WIRES}
    cells: Cells = {(source, target): [] for source in WIRES for target in WIRES}
    bus.danube.create(producer := fresh("p"), places["danube"].danube)
    for source, place in places.items():
        if source != "danube":
            bus.bear(place)
        for target, listen in LISTENERS.items():
            listen(bus, place, cells[source, target])
    sent = run_publishers(bus, places, producer)

    def caught_up() -> bool:
        return all(len(cells[source, target]) >= sent[source] for source, target in cells)

    try:
        wait_until(caught_up, CATCH_UP_S, "every cell has everything")
    finally:
        print_cells(cells, sent)
    for (source, target), came in cells.items():
        assert came == list(range(sent[source])), (source, target)


def run_publishers(bus: OneBus, places: dict[str, Place], producer: str) -> dict[str, int]:
    sent: dict[str, int] = {}
    failures: list[BaseException] = []
    end = time.monotonic() + SECONDS

    def publish(wire: str) -> None:
        try:
            sent[wire] = PUBLISHERS[wire](bus, places[wire], lambda: time.monotonic() < end)
        except BaseException as error:  # whatever it is, the test must say it
            failures.append(error)

    threads = [threading.Thread(target=publish, args=(wire,)) for wire in PUBLISHERS]
    bus.danube.keep_sending(producer)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bus.danube.stop_sending() == []
    sent["danube"] = bus.danube.progress()[0][producer]
    assert failures == []
    assert all(count > 0 for count in sent.values()), sent
    return sent


def print_cells(cells: Cells, sent: dict[str, int]) -> None:
    print(f"{SECONDS:.0f} s   sent " + "".join(f"{wire:>10}" for wire in WIRES))
    for source in WIRES:
        counts = "".join(f"{len(cells[source, target]):>10}" for target in WIRES)
        print(f"{source:>7}{sent.get(source, 0):>8}{counts}")
