"""One trace: a chain of messages over all wires is one tree in the journal.

MB request ──> Seneca service ──request──> zbus service ──publish──> Danube consumer ──publish──> nobody
    └ answer          └ answer (of zbus)
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.one_bus import OneBus, Place, fresh, fresh_place
from tests.rigs.ports import free_port_base
from tests.rigs.rounds import rounds
from tests.rigs.seneca_wire import Got, answering, attached, journal_end, new_id, post, rows, seed, serving
from tests.rigs.server import running_server, wait_until
from tests.rigs.zbus_wire import Client, ClosedByServer, dial_server

CHAINS = 100
DEADLINE_S = 60.0


class Links(NamedTuple):
    """The topics of a chain."""

    outer: Place
    inner: Place
    event: Place
    last: Place


def host_seneca(bus: OneBus, links: Links) -> None:
    """A real npm instance whose action asks further through the bus."""
    port = free_port_base()
    asks = {"ask": links.inner.keys | {"a": 1, "b": 2}, "result": {"outer": True}}
    further = {"dialect": "W", "port": bus.server.port("seneca"), "pin": f"role:{links.inner.word}"}
    bus.hosts.listen(
        fresh("host"), "W", port, role=links.outer.word, extra={links.outer.pin: asks}, clients=[further]
    )  # fmt: skip
    bus.open(attached(bus.server, links.outer.pin, f"http://127.0.0.1:{port}/act", "W"))


class ZbusLink(threading.Thread):
    """Publishes an event for each request, naming it, and answers."""

    def __init__(self, bus: OneBus, links: Links) -> None:
        super().__init__(daemon=True)
        self._client: Client = bus.zbus()
        self._links = links
        self._client.create(links.inner.topic)
        self._armed = self._client.arm(links.inner.topic, window="-1")
        self.start()

    def run(self) -> None:
        try:
            while True:
                delivery = self._client.reply(self._armed, 3600)
                raw_id = str(delivery.raw_id)
                self._client.send("produce", delivery.body, mq=self._links.event.topic, ack="0", msgid_raw=raw_id)
                self._client.answer(delivery, b'{"sum":3}')
        except (OSError, ClosedByServer):
            return


@pytest.fixture
def links(patient_bus: OneBus) -> Links:
    links = Links(fresh_place("chain"), fresh_place("sum"), fresh_place(), fresh_place())
    patient_bus.bear(links.event)
    host_seneca(patient_bus, links)
    ZbusLink(patient_bus, links)
    return links


def of_chain(found: list[dict[str, Any]], links: Links) -> list[dict[str, Any]]:
    topics = {place.topic for place in links}
    return [row for row in found if row["topic"] in topics]


def check_tree(tree: list[dict[str, Any]], links: Links, root_id: str) -> None:
    """Every row of one chain, each under what caused it, its times in order."""
    by_kind = {(row["topic"], row["kind"]): row for row in tree}
    assert len(by_kind) == len(tree) == 6, [(row["topic"], row["kind"], row["wire"]) for row in tree]
    asked, answered = by_kind[links.outer.topic, "request"], by_kind[links.outer.topic, "response"]
    inner, inner_answer = by_kind[links.inner.topic, "request"], by_kind[links.inner.topic, "response"]
    event, last = by_kind[links.event.topic, "publish"], by_kind[links.last.topic, "publish"]
    wires = [row["wire"] for row in (asked, inner, inner_answer, event, last, answered)]
    assert wires == ["mb", "seneca", "zbus", "zbus", "danube", "seneca"]
    assert (asked["message_id"], asked["parent_id"]) == (root_id, None)
    assert (answered["parent_id"], answered["answers"]) == (root_id, asked["sequence"])
    assert inner["parent_id"] == root_id
    assert (inner_answer["parent_id"], inner_answer["answers"]) == (inner["message_id"], inner["sequence"])
    assert event["parent_id"] == inner["message_id"]
    assert last["parent_id"] == event["message_id"]
    (inner_hop,) = [hop for hop in inner_answer["hops"] if hop["mid"] == inner["message_id"]]
    assert len(inner_hop["tms"]) == 3
    assert inner_hop["tms"] == sorted(inner_hop["tms"])
    outer_hop = next(hop for hop in answered["hops"] if hop["mid"] == root_id)
    assert outer_hop["tms"][0] <= inner_hop["tms"][0]
    assert inner_hop["tms"][-1] <= outer_hop["tms"][2] + 1


def test_a_hundred_chains_at_once_over_four_wires_are_a_hundred_trees(patient_bus: OneBus, links: Links) -> None:
    """A9, S10. Parent, correlation id, answers and hops of each are its own."""
    bus, since = patient_bus, journal_end(patient_bus.server)
    bus.danube.subscribe(c := fresh("c"), links.event.danube, "s")
    bus.danube.create(p := fresh("p"), links.last.danube)
    asking = bus.mb()
    for _ in range(rounds(1)):
        roots = [new_uuid() for _ in range(CHAINS)]
        for root in roots:
            asking.send(f"request:{links.outer.topic}:1.0.0:{root}::60000", b"{}")
        for root in roots:
            answer = json.loads(asking.reply(root, DEADLINE_S).payload)
            assert answer == {"outer": True, "inner": {"sum": 3}}
        events = bus.danube.receive(c, CHAINS, ack=True, within_s=DEADLINE_S)
        for event in events:
            chain = {"x-parent-id": event.attributes["x-message-id"]}
            chain["x-correlation-id"] = event.attributes["x-correlation-id"]
            bus.danube.send(p, b"done", attributes=chain)
        look = partial(maybe_complete_trees, bus, since, links, roots)
        trees = wait_until(look, DEADLINE_S, "all rows of all chains")
        assert set(trees) == set(roots)
        for root, tree in trees.items():
            check_tree(tree, links, root)
        since = journal_end(bus.server)


def maybe_complete_trees(
    bus: OneBus, since: int, links: Links, roots: list[str]
) -> dict[str, list[dict[str, Any]]] | None:
    found = of_chain(rows(bus.server, since), links)
    if len(found) < 6 * len(roots):
        return None
    trees: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        trees[row["correlation_id"]].append(row)
    return trees


def test_a_chain_goes_on_after_waiting_in_a_queue_over_a_restart(place: Place) -> None:
    """A9. Whoever names a message by `msgid-raw` belongs to its chain, however long it waited."""
    cid, event = new_id("c"), fresh_place()
    with running_server() as server:
        with dial_server(server) as client:
            client.create(place.topic)
            client.create(event.topic)
            post(server, seed(place.keys, sync=False, cid=cid))
        server.restart()
        with dial_server(server) as client:
            delivery = client.take(place.topic)
            client.produce(event.topic, b"x", msgid_raw=str(delivery.raw_id))
            (row,) = rows(server, topic=event.topic)
    assert (row["parent_id"], row["correlation_id"]) == (delivery.raw_id, cid)


@pytest.mark.parametrize("source", ["mb", "zbus", "seneca", "danube"])
def test_whoever_handles_a_publish_continues_its_chain(patient_bus: OneBus, place: Place, source: str) -> None:
    """A9. MB by the parent id, zbus by `msgid-raw`, Seneca by `trk`, Danube by attributes: from any wire to any."""
    bus, since = patient_bus, journal_end(patient_bus.server)
    bus.bear(place)
    last = fresh_place()
    mb, zbus = bus.mb(), bus.zbus()
    mb.subscribe(place.topic)
    zbus.create(place.topic)
    zbus.create(last.topic)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    service = bus.open(serving(bus.server, place.pin, answering({})))
    root = new_uuid()
    publish_with_root(bus, source, place, root)
    copy, delivery, [message] = mb.receive(), zbus.take(place.topic), bus.danube.receive(c, ack=True)
    (got,) = service.wait_for(1)
    post(bus.server, sent_on(got, last))
    mb.send(f"publish:{last.topic}:1.0.0:{new_uuid()}:{copy.id}", b"mb")
    zbus.produce(last.topic, b"zbus", msgid_raw=str(delivery.raw_id))
    bus.danube.create(p := fresh("p"), last.danube)
    named = message.attributes.get("x-message-id", f"{message.producer_id}-{message.request_id}")
    root_told = message.attributes["x-correlation-id"]
    bus.danube.send(p, b"danube", attributes={"x-parent-id": named, "x-correlation-id": root_told})
    found = wait_until(lambda: maybe_four(rows(bus.server, since, topic=last.topic)))
    (origin,) = rows(bus.server, since, topic=place.topic)[-1:]
    assert Counter(row["parent_id"] for row in found) == {origin["message_id"]: 4}
    assert Counter(row["correlation_id"] for row in found) == {root: 4}


def maybe_four(found: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    return found if len(found) == 4 else None


def sent_on(got: Got, place: Place) -> dict[str, Any]:
    """What a Seneca service sends while it handles a message: the history so far, and an entry of its own."""
    document = seed(place.keys, sync=False, sid="B", cid=got.meta["cid"])
    document["meta$"]["trk"] = [*got.meta["trk"], *document["meta$"]["trk"]]
    return document


def publish_with_root(bus: OneBus, source: str, place: Place, root: str) -> None:
    """A publish that belongs to the chain `root`, said in the words of its wire."""
    if source == "mb":
        bus.mb().publish(place.topic, b"{}", message_id=root)
    elif source == "zbus":
        bus.zbus().produce(place.topic, b"{}", msgid_raw=root)
    elif source == "seneca":
        post(bus.server, seed(place.keys, sync=False, cid=root))
    else:
        bus.danube.create(p := fresh("p"), place.danube)
        bus.danube.send(p, b"{}", attributes={"x-correlation-id": root})
