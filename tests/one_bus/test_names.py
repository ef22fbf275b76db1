"""Names, as the manual's page on one bus numbers the rules: what each wire calls a topic."""

from __future__ import annotations

import json
import unicodedata
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.wires.danube.codec.pb.danube_admin_pb2 import NamespaceRequest, NamespaceResponse
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.http_door import post as http_post
from tests.rigs.mb_wire import Peer
from tests.rigs.one_bus import OneBus, Place, fresh, fresh_place
from tests.rigs.schema_rest import bind, register
from tests.rigs.seneca_wire import answering, attach, console, fresh_word, post, rows, seed, serving, wait_for_rows

COMPOSED = "größe.مرحبا-尺寸_1"


def error_code(peer: Peer, topic: str, payload: bytes = b"{}") -> str:
    return str(json.loads(peer.publish(topic, payload).payload)["error"]["code"])


def publish_everywhere(bus: OneBus, topic: str, keys: dict[str, str]) -> dict[str, str]:
    """What each wire is told when it publishes there."""
    with danube_wire(bus.server) as wire, pytest.raises(RefusedError) as refused:
        wire.producer(f"/default/{topic}")
    return {
        "mb": error_code(bus.mb(), topic),
        "zbus": str(bus.zbus().ask("produce", b"x", mq=topic).status),
        "seneca": post(bus.server, seed(keys, sync=False)).json()["code"],
        "danube": refused.value.status,
    }


def test_a_name_of_any_script_is_one_topic_on_every_wire_that_can_say_it(bus: OneBus) -> None:
    """N1. Letters and digits of any script in normal form C, `.`, `_` and `-`."""
    word = fresh_word() + COMPOSED
    client = bus.zbus()
    client.create(word)
    with danube_wire(bus.server) as wire:
        wire.send(wire.producer(f"/default/{word}"), f"/default/{word}", b"danube")
        parted = unicodedata.normalize("NFD", word)
        assert parted != word
        wire.send(wire.producer(f"/default/{parted}", "q"), f"/default/{parted}", b"in another form")
    client.produce(word, b"zbus")
    assert [client.take(word).body for _ in range(3)] == [b"danube", b"in another form", b"zbus"]
    assert {row["topic"] for row in wait_for_rows(bus.server, 3, topic=word)} == {word}


@pytest.mark.parametrize("name", ["a b", "a/b", "a*", "", "x" * 256], ids=["blank", "slash", "star", "none", "long"])
def test_a_name_that_cannot_be_is_refused(bus: OneBus, name: str) -> None:
    """N1, E8."""
    document = json.dumps({"mqName": name, "mqMode": "1"})
    assert bus.zbus().admin("create_mq", document).status == 400
    with danube_wire(bus.server) as wire, pytest.raises(RefusedError, match="INVALID_ARGUMENT"):
        wire.producer(f"/default/{name}")
    assert error_code(bus.mb(), name) == "MALFORMED_MESSAGE"
    if name:  # an empty text is no key to Seneca, and no address over HTTP
        assert post(bus.server, seed({"role": name}, sync=False)).json()["code"] == "invalid_message"
        refused = http_post(bus.server, f"/topics/{quote(name, safe='')}")
        assert (refused.status, refused.code) == (400, "name_invalid")


def test_a_name_may_have_as_many_characters_as_it_may(bus: OneBus) -> None:
    """N1. 255, however many bytes they are."""
    name = (fresh_word() + "尺" * 255)[:255]
    client = bus.zbus()
    client.create(name)
    client.produce(name, b"x")
    assert client.take(name).body == b"x"


def test_a_topic_keeps_the_spelling_of_its_first_user(bus: OneBus) -> None:
    """N2. zbus made it with capitals: MB reaches it in any case, and the journal has one name."""
    name = fresh_word().title() + ".News"
    client, peer = bus.zbus(), bus.mb()
    client.create(name)
    peer.subscribe(name.lower())
    peer.publish(name.upper(), b"1")
    client.produce(name, b"2")
    assert [client.take(name).body, client.take(name).body] == [b"1", b"2"]
    first, second = wait_for_rows(bus.server, 2, topic=name)
    assert dict(first["attributes"]) == {"mb.topic": name.upper()}
    assert dict(second["attributes"]) == {}


def test_mb_makes_a_topic_in_lower_case(bus: OneBus) -> None:
    """N2."""
    name = fresh_word() + ".News"
    bus.mb().publish(name, b"1")
    assert len(wait_for_rows(bus.server, 1, topic=name.lower())) == 1
    assert rows(bus.server, topic=name) == []


def test_a_name_that_differs_only_in_case_is_not_made(bus: OneBus) -> None:
    """N2. The refusal names the other one."""
    name = fresh_word()
    bus.mb().publish(name, b"1")
    refusal = bus.zbus().admin("create_mq", json.dumps({"mqName": name.title(), "mqMode": "1"}))
    assert (refusal.status, name in refusal.body.decode()) == (400, True)
    with danube_wire(bus.server) as wire, pytest.raises(RefusedError) as refused:
        wire.producer(f"/default/{name.title()}")
    assert refused.value.status == "ALREADY_EXISTS"
    assert name in refused.value.text
    answer = post(bus.server, seed({"role": name.title()}, sync=False))
    assert (answer.json()["code"], name in answer.json()["message"]) == ("invalid_message", True)


@pytest.mark.parametrize("first", ["system", "raceway", "SYSTEM"])
def test_nobody_publishes_under_the_brokers_own_words(bus: OneBus, first: str) -> None:
    """N3, E8. Or anybody could forge an audit record, through `/default/system.message` too."""
    told = publish_everywhere(bus, f"{first}.message", {"role": first, "cmd": "message"})
    assert told == {
        "mb": "INVALID_REQUEST", "zbus": "400", "seneca": "invalid_message", "danube": "INVALID_ARGUMENT",
    }  # fmt: skip


def test_patterns_see_the_brokers_own_topics_only_by_their_first_word(bus: OneBus) -> None:
    """N3."""
    everything, own = bus.mb(), bus.mb()
    everything.subscribe("#")
    own.subscribe("system.#")
    bus.mb().publish(fresh_word(), b"{}")
    assert own.receive().topic == "system.message"
    assert "system.message" not in {message.topic for message in everything.settled()}


def test_whoever_names_it_hears_of_what_was_rejected(bus: OneBus, place: Place) -> None:
    """N3. `raceway.#` is the word itself; `#` and `+.rejected` are not."""
    register(bus.server, place.word)
    bus.mb().publish(place.topic, b'{"id":1}')
    bind(bus.server, place.topic, place.word, "enforce")
    own, others = bus.mb(), bus.mb()
    own.subscribe("raceway.#")
    for pattern in ("#", "+.rejected"):
        others.subscribe(pattern)
    wrong = f'{{"id":"{place.word}"}}'.encode()
    assert error_code(bus.mb(), place.topic, wrong) == "INVALID_REQUEST"
    while (copy := own.receive()).payload != wrong:
        pass
    assert copy.topic == "raceway.rejected"
    assert [message for message in others.settled() if message.payload == wrong] == []


def test_dots_may_stand_in_a_topic_of_danube(bus: OneBus) -> None:
    """N4. `/default/x.y` is `x.y`."""
    place, peer = fresh_place(), bus.mb()
    peer.subscribe(place.topic)
    bus.danube.create(name := fresh("p"), f"/default/{place.topic}")
    bus.danube.send(name, b"x")
    assert peer.receive().topic == place.topic


def test_another_namespace_is_seen_by_others_through_an_alias_only(bus: OneBus) -> None:
    """N4. `/shop/orders` has the alias `shop.orders`; `/shop/other` has none."""
    with danube_wire(bus.server) as wire:
        wire.ask("danube_admin.NamespaceAdmin/CreateNamespace", NamespaceRequest(name="shop"), NamespaceResponse)
    mb, zbus = bus.mb(), bus.zbus()
    mb.subscribe("#")
    zbus.create("shop.orders")
    bus.danube.create(p := fresh("p"), "/shop/orders")
    bus.danube.create(q := fresh("p"), "/shop/other")
    bus.danube.subscribe(c := fresh("c"), "/shop/orders", "s")
    bus.danube.send(q, b"hidden")
    bus.danube.send(p, b"danube")
    zbus.produce("shop.orders", b"zbus")
    mb.publish("Shop.Orders", b"mb")
    assert [zbus.take("shop.orders").body for _ in range(3)] == [b"danube", b"zbus", b"mb"]
    seen = [message for message in mb.settled() if message.action == "publish"]
    assert [(one.topic.lower(), one.payload) for one in seen] == [
        ("shop.orders", b"danube"), ("shop.orders", b"zbus"), ("shop.orders", b"mb"),
    ]  # fmt: skip
    assert [one.payload for one in bus.danube.receive(c, 3, ack=True)] == [b"danube", b"zbus", b"mb"]
    assert {row["topic"] for row in wait_for_rows(bus.server, 3, topic="/shop/orders")} == {"/shop/orders"}
    assert dict(wait_for_rows(bus.server, 1, topic="/shop/orders", wire="zbus")[0]["attributes"]) == {
        "zbus.mq": "shop.orders"
    }


def test_the_zbus_key_topic_filters_and_stays_what_it_was(bus: OneBus) -> None:
    """N5. Of a zbus message it is what its sender said; of others it is the canonical name."""
    name, client, producer = fresh_word(), bus.zbus(), bus.zbus()
    client.create(name, mode=2)
    armed = client.arm(name, topic="hk")
    producer.produce(name, b"sh", topic="sh")
    producer.produce(name, b"hk", topic="hk")
    delivery = client.reply(armed)
    assert (delivery.body, delivery.headers["topic"]) == (b"hk", "hk")
    armed = client.arm(name, topic=name)
    bus.mb().publish(name, b"mb")
    delivery = client.reply(armed)
    assert (delivery.body, delivery.headers["topic"], delivery.headers["mq"]) == (b"mb", name, name)


def test_the_zbus_key_topic_survives_where_the_topic_has_another_name(bus: OneBus, place: Place) -> None:
    """N5, S15. What the queue was called is kept beside it: here the base of partitions."""
    bus.danube.create(fresh("p"), place.danube, partitions=2)
    client = bus.zbus()
    client.create(place.topic, mode=2)
    armed = client.arm(place.topic, topic="hk")
    bus.zbus().produce(place.topic, place.word, topic="hk")
    assert client.reply(armed).headers["topic"] == "hk"
    (row,) = wait_for_rows(bus.server, 1, wire="zbus", payload=place.word.encode())
    assert row["topic"].startswith(f"{place.topic}-part-")
    assert dict(row["attributes"]) == {"zbus.topic": "hk", "zbus.mq": place.topic}


@pytest.mark.parametrize(
    ("keys", "topic"),
    [
        ({"cmd": "sum", "role": "W"}, "W.sum"),
        ({"zone": "z", "cmd": "sum", "area": "W", "base": "b"}, "b.W.sum.z"),
        ({"role": "W"}, "W"),
    ],
)
def test_a_pins_topic_is_its_values_in_a_fixed_order(bus: OneBus, keys: dict[str, str], topic: str) -> None:
    """N6. `sys role plugin base area aim cmd`, then by the alphabet."""
    word = fresh_word()
    own = {key: value.replace("W", word) for key, value in keys.items()}
    pin = ",".join(f"{key}:{value}" for key, value in own.items())
    with serving(bus.server, pin, answering({"ok": True})) as service:
        answer = bus.mb().ask(topic.replace("W", word), {"n": 1})
        assert answer.json() == {"ok": True}
        asked = service.got[-1].json()
        assert {key: asked[key] for key in own} == own


def test_a_star_is_one_level_and_the_bus_says_the_keys(bus: OneBus) -> None:
    """N6. Also where another wire's message does not say them, or says something else."""
    word = fresh_word()
    with serving(bus.server, f"role:{word},cmd:*", answering({"ok": True})) as service:
        assert bus.mb().ask(f"{word}.sum", {"cmd": "lie"}).json() == {"ok": True}
        asked = service.got[-1].json()
        assert (asked["role"], asked["cmd"]) == (word, "sum")
        assert bus.mb().ask(f"{word}.sum.more", {}).json()["error"]["code"] == "NO_ROUTE_FOUND"


def test_other_globs_have_the_name_that_the_settings_give_them(bus: OneBus) -> None:
    """N6. `role:odd,cmd:x*` is `odd.all` here; a glob without a name cannot be attached."""
    with serving(bus.server, "role:odd,cmd:x*", answering({"ok": True})) as service:
        assert bus.mb().ask("odd.all", {"n": 1}).json() == {"ok": True}
        assert post(bus.server, seed({"role": "odd", "cmd": "xylophone", "n": 2})).data == {"ok": True}
        assert [got.json()["n"] for got in service.got] == [1, 2]
        assert {row["wire"] for row in rows(bus.server, topic="odd.all", kind="request")} == {"mb", "seneca"}
        wanted = {"pin": "role:odd,cmd:y*", "url": service.url(), "dialect": "S"}
        assert console(bus.server, "POST", "/api/seneca/services", wanted).status == 400


def test_among_pins_the_one_that_senecas_router_would_choose_is_asked(bus: OneBus) -> None:
    """N6. The more a pin says, and a value before a star."""
    word = fresh_word()
    with (
        serving(bus.server, f"role:{word},cmd:*", answering({"by": "star"})),
        serving(bus.server, f"role:{word},cmd:sum", answering({"by": "value"})),
    ):
        told = [post(bus.server, seed({"role": word, "cmd": cmd})).data["by"] for cmd in ("sum", "other")]
        assert told == ["value", "star"]


def test_a_second_pin_with_a_taken_name_is_refused(bus: OneBus) -> None:
    """N6. `role:x,cmd:y` and `area:x,aim:y` would both be `x.y`."""
    word = fresh_word()
    with serving(bus.server, f"role:{word},cmd:y", answering({})) as service:
        wanted = {"pin": f"area:{word},aim:y", "url": service.url(), "dialect": "S"}
        answer = console(bus.server, "POST", "/api/seneca/services", wanted)
        assert answer.status == 409, answer
        with pytest.raises(AssertionError):
            attach(bus.server, f"role:{word},cmd:a b*", service.url(), "S")


@pytest.mark.parametrize(
    ("document", "topic"),
    [({"role": "W", "cmd": "y", "other": "z"}, "W.y"), ({"sys": "W", "cmd": 7}, "W"), ({"other": "z"}, None)],
)
def test_without_a_pin_the_common_keys_name_the_topic(bus: OneBus, document: dict[str, Any], topic: str | None) -> None:
    """N6. None of them there: `act_not_found`."""
    word = fresh_word()
    own = {key: value.replace("W", word) if isinstance(value, str) else value for key, value in document.items()}
    if topic is None:
        assert post(bus.server, seed(own)).json()["code"] == "act_not_found"
        return
    peer = bus.mb()
    peer.subscribe(topic.replace("W", word))
    assert post(bus.server, seed(own, sync=False)).status == 202
    assert json.loads(peer.receive().payload) == own, "pattern keys stay in the payload"


def test_what_a_wire_cannot_spell_is_not_delivered_there_and_counted(bus: OneBus) -> None:
    """N7. MB has no underscores; `raceway doctor` says so."""
    name, peer, client = f"{fresh_word()}_x", bus.mb(), bus.zbus()
    peer.subscribe("#")
    client.create(name)
    before = bus.server.metric("raceway_unspelled_messages_total")
    client.produce(name, b"x")
    assert [message for message in peer.settled() if message.payload == b"x"] == []
    assert bus.server.metric("raceway_unspelled_messages_total") > before
    assert client.take(name).body == b"x"
    shown = CliRunner().invoke(app, ["doctor", "--data", str(bus.server.data), "--json"])
    assert any("cannot represent the topic name" in finding["text"] for finding in json.loads(shown.stdout)), (
        shown.stdout
    )
