"""Topics that several wires share: when they exist, how they are dispatched, where they begin, their partitions."""

from __future__ import annotations

import json

import pytest

from raceway.model.hashing import fnv1a64, sender_id
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import get
from tests.rigs.one_bus import OneBus, Place, fresh
from tests.rigs.schema_rest import bind, register
from tests.rigs.seneca_wire import answering, fresh_word, post, rows, seed, serving


def test_a_topic_exists_once_it_was_published_to_or_created(bus: OneBus) -> None:
    """T1. Or a schema was bound to it; and not because somebody looked."""
    published, created, configured, never = (fresh_word() for _ in range(4))
    bus.mb().publish(published, b"x")
    bus.zbus().create(created)
    register(bus.server, configured)
    bind(bus.server, configured, configured, "warn")
    bus.mb().subscribe(never)
    assert get(bus.server, f"/topics/{never}").status == 404
    for name in (published, created, configured):
        bus.danube.subscribe(fresh("c"), f"/default/{name}", "s")
    with pytest.raises(RefusedError):
        bus.danube.subscribe(fresh("c"), f"/default/{never}", "s")


def test_the_first_danube_producer_sets_the_strategy_of_a_topic_born_elsewhere(bus: OneBus, place: Place) -> None:
    """T2. Until then its Danube subscriptions are reliable."""
    bus.bear(place)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    bus.mb().publish(place.topic, b"1")
    [first] = bus.danube.receive(c)
    bus.danube.close(c)
    bus.danube.subscribe(c, place.danube, "s")
    assert bus.danube.receive(c, ack=True) == [first], "it was not acknowledged, so it comes again"
    with danube_wire(bus.server) as wire:
        wire.producer(place.danube, "first", reliable=True)
        with pytest.raises(RefusedError, match="FAILED_PRECONDITION"):
            wire.producer(place.danube, "second", reliable=False)


def test_zbus_may_produce_to_a_name_that_anybody_knows(bus: OneBus) -> None:
    """T3. 200 if the topic exists or has a subscription anywhere, else 404."""
    client = bus.zbus()
    unknown, published, by_mb, by_seneca = (fresh_word() for _ in range(4))
    assert client.ask("produce", b"x", mq=unknown).status == 404
    post(bus.server, seed({"role": published}, sync=False))
    bus.mb().subscribe(by_mb)
    with serving(bus.server, f"role:{by_seneca}", answering({})):
        for name in (published, by_mb, by_seneca):
            assert client.ask("produce", b"x", mq=name).status == 200, name


def test_a_new_queue_and_a_new_subscription_begin_behind_what_is_there(bus: OneBus, place: Place) -> None:
    """T4."""
    peer, client = bus.mb(), bus.zbus()
    peer.publish(place.topic, b"before")
    client.create(place.topic)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    peer.publish(place.topic, b"after")
    assert client.take(place.topic).body == b"after"
    assert [one.payload for one in bus.danube.receive(c, ack=True)] == [b"after"]


def test_a_publish_to_a_base_goes_to_the_partition_of_its_key_or_sender(bus: OneBus, place: Place) -> None:
    """T5. `fnv1a64(routing key, else sender) mod N`."""
    bus.danube.create(fresh("p"), place.danube, partitions=3)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    client, peer = bus.zbus(), bus.mb()
    peer.register("clock")
    for key in ("a", "b", "c", "d"):
        client.produce(place.topic, key.encode(), **{"routing-key": key})
    peer.publish(place.topic, b"clock")
    got = {one.payload.decode(): one.topic for one in bus.danube.receive(c, 5, ack=True)}
    assert got == {key: f"{place.danube}-part-{fnv1a64(key.encode()) % 3}" for key in ("a", "b", "c", "d", "clock")}


def test_subscribers_of_other_wires_to_the_base_get_what_all_partitions_get(bus: OneBus, place: Place) -> None:
    """T6. Under the name of the base."""
    bus.danube.create(p := fresh("p"), place.danube, partitions=3)
    peer, client = bus.mb(), bus.zbus()
    peer.subscribe(place.topic)
    client.create(place.topic, mode=2)
    armed = client.arm(place.topic, topic=place.topic, window="-1")
    with serving(bus.server, place.pin, answering({})) as service:
        bus.danube.send(p, *[b'{"n":%d}' % number for number in range(6)])
        seen = [peer.receive() for _ in range(6)]
        assert {message.topic for message in seen} == {place.topic}
        wanted = sorted(b'{"n":%d}' % number for number in range(6))
        assert sorted(message.payload for message in seen) == wanted
        deliveries = [client.reply(armed) for _ in range(6)]
        assert sorted(one.body for one in deliveries) == wanted
        assert {one.headers["topic"] for one in deliveries} == {place.topic}
        observed = [got.json() for got in service.wait_for(6)]
        assert sorted(one["n"] for one in observed) == list(range(6))
        assert {(one["role"], one["cmd"]) for one in observed} == {(place.word, place.cmd)}


def test_a_zbus_queue_stands_on_one_partition(bus: OneBus, place: Place) -> None:
    """T6. The base itself cannot be a queue, and the refusal names a partition."""
    bus.danube.create(p := fresh("p"), place.danube, partitions=2)
    client = bus.zbus()
    refusal = client.admin("create_mq", json.dumps({"mqName": place.topic, "mqMode": "1"}))
    assert (refusal.status, f"{place.topic}-part-0" in refusal.body.decode()) == (409, True)
    client.create(f"{place.topic}-part-0")
    client.create(f"{place.topic}-part-1")
    bus.danube.send(p, b"0", b"1")
    assert {client.take(f"{place.topic}-part-{number}").body for number in (0, 1)} == {b"0", b"1"}


def test_temporary_reply_queues_are_no_topics(bus: OneBus, place: Place) -> None:
    """T7."""
    client, service = bus.zbus(), bus.zbus()
    service.create(place.topic)
    before = bus.server.metric("raceway_topics")
    reply_to = fresh("reply")
    asked = client.request(place.topic, b"x", **{"mq-reply": reply_to})
    service.serve_one(place.topic, b"y")
    assert client.reply(asked).body == b"y"
    assert bus.server.metric("raceway_topics") == before
    assert rows(bus.server, topic=reply_to) == []
    with pytest.raises(RefusedError):
        bus.danube.subscribe(fresh("c"), f"/default/{reply_to}", "s")


def test_the_producer_id_of_a_foreign_sender_is_that_of_its_topic_and_name(bus: OneBus, place: Place) -> None:
    """T8. The same each time, whoever reads it."""
    bus.bear(place)
    bus.danube.subscribe(c := fresh("c"), place.danube, "s")
    post(bus.server, seed(place.keys, sync=False, sid="A/1"))
    post(bus.server, seed(place.keys, sync=False, sid="A/1"))
    got = bus.danube.receive(c, 2, ack=True)
    assert [(one.producer, one.producer_id) for one in got] == [("A/1", sender_id(place.topic.encode(), b"A/1"))] * 2
