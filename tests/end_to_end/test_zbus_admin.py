"""zbus admin: the monitoring page, its data, making queues, and the admin token."""

from __future__ import annotations

import html
import json
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.rigs import http_door
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import (
    MQ,
    PUBSUB,
    TEMP,
    Client,
    Dial,
    Message,
    broker_address,
    compose,
    dial_server,
    fresh_name,
)

ADMIN_TOKEN = "s3cret"
HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>"


class Page(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, document: bytes) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(document.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.links += [value or "" for name, value in attrs if tag == "a" and name == "href"]

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"

    def assert_harmless(self) -> None:
        assert not self.tags & {"script", "iframe", "object", "embed", "img", "base", "form"}
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        assert not [value for _, value in self.attributes if value.lower().lstrip().startswith("javascript:")]


def page(client: Client) -> Page:
    reply = client.admin("index")
    assert reply.is_page
    return Page(reply.body)


def create(client: Client, document: object, **keys: str) -> Message:
    body = document if isinstance(document, str) else json.dumps(document)
    return client.admin("create_mq", body, **keys)


def info(client: Client, mq: str) -> dict[str, Any]:
    found: dict[str, Any] = client.data()["mqTable"][mq]
    return found


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_shows_queues_consumers_and_backlog(dial: Dial, server: Server) -> None:
    client, consumer = dial(), dial()
    mq, news = client.create(), client.create(mode=PUBSUB)
    for _ in range(37):
        client.produce(mq)
    consumer.arm(news, topic="t")
    shown = page(client)
    assert mq in shown.text
    assert news in shown.text
    rows = shown.text.split(mq, 1)[1]
    assert "37" in rows, "the backlog"
    assert "{}:{}".format(*consumer.socket.getsockname()) in shown.text, "the consumer"


def test_the_page_has_no_script_and_links_to_the_console(client: Client, server: Server) -> None:
    shown = page(client)
    shown.assert_harmless()
    assert any(f":{server.port('console')}" in link for link in shown.links), shown.links
    assert not [value for name, value in shown.attributes if name == "src" and "//" in value], "works offline"


def test_the_page_forbids_scripts_to_the_browser(client: Client) -> None:
    """A second lock behind the escaping."""
    headers = client.admin("index").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy or "default-src 'self'" in policy
    assert "script-src" not in policy or "unsafe" not in policy.split("script-src", 1)[1].split(";", 1)[0]
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_is_safe_against_hostile_names(dial: Dial) -> None:
    """Topics and tokens are any text; queue names with such characters are refused."""
    client, subscriber = dial(), dial()
    news = client.create(mode=PUBSUB)
    subscriber.arm(news, topic=HOSTILE)
    assert create(client, {"mqName": HOSTILE, "mqMode": 1}).status == 400
    client.create(access_token=HOSTILE)
    page(client).assert_harmless()
    topics = info(client, news)["consumerInfoList"][0]["topics"]
    assert topics == [HOSTILE]


def test_the_page_never_shows_an_access_token(client: Client) -> None:
    client.create(access_token="of-this-queue-alone")
    assert b"of-this-queue-alone" not in client.admin("index").body
    assert b"of-this-queue-alone" not in client.admin("data").body


@pytest.mark.parametrize("uri", ["/?method={}", "/?cmd={}", "/{}?cmd=produce", "/x?cmd=produce&msgid={}"])
def test_a_refusal_that_repeats_hostile_text_is_no_page(client: Client, uri: str) -> None:
    """A browser would run it: a refusal is plain text, and the browser is told not to guess."""
    client.get(uri.format("%3Cscript%3Ealert(1)%3C/script%3E"))
    refusal = client.receive()
    assert 400 <= refusal.status < 500
    assert refusal.headers["content-type"].startswith("text/plain")
    assert refusal.headers["x-content-type-options"] == "nosniff"


def test_many_queues_make_a_page_of_bounded_size(client: Client) -> None:
    mqs = [fresh_name() for _ in range(1500)]
    documents = [json.dumps({"mqName": mq, "mqMode": 1}) for mq in mqs]
    client.write(b"".join(compose({"method": "create_mq", "msgid": m}, d) for m, d in zip(mqs, documents, strict=True)))
    assert {client.reply(mq).status for mq in mqs} == {200}
    began = time.monotonic()
    assert len(client.admin("index").body) < 4_000_000
    assert time.monotonic() - began < 2


# ---- data ------------------------------------------------------------------------------------------------------------


def test_data_describes_the_broker_and_its_queues(dial: Dial, server: Server) -> None:
    client, consumer = dial(), dial()
    before = time.time() * 1000
    mq, news = client.create(access_token="t"), client.create(mode=PUBSUB | TEMP)
    client.produce(mq, token="t")
    consumer.arm(news, topic="b, a")
    document = client.data()
    assert {"broker", "lastUpdatedTime", "mqTable"} <= document.keys()
    assert document["broker"] == broker_address(server)
    assert before - 1000 < document["lastUpdatedTime"] < time.time() * 1000 + 1000
    queue, subscribed = document["mqTable"][mq], document["mqTable"][news]
    assert (queue["broker"], queue["name"], queue["mode"]) == (broker_address(server), mq, MQ)
    assert (queue["unconsumedMsgCount"], queue["consumerCount"], queue["consumerInfoList"]) == (1, 0, [])
    assert before - 1000 < queue["createdTime"] < time.time() * 1000 + 1000
    assert queue["creator"].startswith("127.0.0.1")
    assert isinstance(queue["loadFactor"], int | float)
    assert (subscribed["mode"], subscribed["consumerCount"]) == (PUBSUB | TEMP, 1)
    (one,) = subscribed["consumerInfoList"]
    assert one["remoteAddr"] == "{}:{}".format(*consumer.socket.getsockname())
    assert sorted(one["topics"]) == ["a", "b"]
    assert one["status"]


def test_data_keeps_the_creation_of_a_queue_over_a_restart() -> None:
    with running_server() as server:
        with dial_server(server) as client:
            mq = client.create()
            before = info(client, mq)
        server.restart()
        with dial_server(server) as client:
            after = info(client, mq)
    assert {name: after[name] for name in ("createdTime", "mode", "name")} == {
        name: before[name] for name in ("createdTime", "mode", "name")
    }


def test_reply_queues_are_not_listed(dial: Dial, mq: str) -> None:
    caller, service = dial(), dial()
    caller.request(mq)
    box = service.take(mq).headers["mq-reply"]
    assert box not in page(caller).text


# ---- create_mq -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, "1", 2, "2", 0, "5"])
def test_a_queue_is_made_by_a_document(client: Client, mode: object) -> None:
    mq = fresh_name()
    reply = create(client, {"mqName": mq, "mqMode": mode, "accessToken": "t", "more": [1]})
    assert (reply.status, len(reply.body)) == (200, 13)
    assert client.ask("produce", mq=mq, token="t").status == 200
    assert client.ask("produce", mq=mq).status == 403


@pytest.mark.parametrize("name_key", ["mq_name", "mq"])
def test_a_queue_is_made_by_keys(client: Client, name_key: str) -> None:
    mq = fresh_name()
    keys = {"cmd": "admin", "method": "create_mq", "msgid": "k", "mq_mode": "1", "access_token": "t", name_key: mq}
    client.write(compose(keys))
    assert client.reply("k").status == 200
    assert client.ask("produce", mq=mq, token="t").status == 200
    assert client.ask("produce", mq=mq).status == 403


def test_a_queue_is_made_by_url(client: Client) -> None:
    one, two = fresh_name(), fresh_name()
    client.get(f"/?cmd=admin&&method=create_mq&&mq_name={one}&&mq_mode=1&&msgid=one")
    client.get(f"/{two}?method=create_mq&mq_mode=2&msgid=two")
    assert [client.reply(msgid).status for msgid in ("one", "two")] == [200, 200]
    assert (info(client, one)["mode"], info(client, two)["mode"]) == (1, 2)


@pytest.mark.parametrize(
    "document",
    [
        "",
        "{",
        "null",
        "[]",
        "1",
        '"text"',
        "\ufeff",
        "[" * 50_000,
        '{"mqMode":1}',
        '{"mqName":"","mqMode":1}',
        '{"mqName":null,"mqMode":1}',
        '{"mqName":1,"mqMode":1}',
        '{"mqName":"ok"}',
        '{"mqName":"ok","mqMode":""}',
        '{"mqName":"ok","mqMode":"one"}',
        '{"mqName":"ok","mqMode":null}',
        '{"mqName":"ok","mqMode":1.5}',
        '{"mqName":"ok","mqMode":[1]}',
        '{"mqName":"ok","mqMode":1,"accessToken":{}}',
        '{"mqName":"ok","mqMode":1}x',
    ],
)
def test_a_document_that_describes_no_queue_is_refused(client: Client, document: str) -> None:
    assert create(client, document).status == 400
    assert "ok" not in client.data()["mqTable"]


def test_a_document_that_is_no_text_is_refused(client: Client) -> None:
    assert client.admin("create_mq", b'{"mqName":"\xff","mqMode":1}').status == 400


@pytest.mark.parametrize(
    "name", ["a/b", "a b", "a\x00b", "x" * 256, "a\r\nb", "*", "a,b", "../x", "system.x", "raceway.y"]
)
def test_a_name_that_no_topic_can_have_is_refused(client: Client, name: str) -> None:
    assert create(client, {"mqName": name, "mqMode": 1}).status == 400
    assert name not in client.data()["mqTable"]


@pytest.mark.parametrize("name", ["größe", "队列", "a.b_c-d", "x" * 255, "9"])
def test_names_of_any_script_are_taken(client: Client, name: str) -> None:
    assert create(client, {"mqName": name, "mqMode": 1}).status == 200
    client.produce(name, "x")
    assert client.take(name).body == b"x"
    assert html.escape(name) in client.admin("index").body.decode()


def test_creating_again_changes_neither_mode_nor_token(client: Client) -> None:
    mq = client.create(mode=MQ, access_token="first")
    for token in ("second", "", "first"):
        assert create(client, {"mqName": mq, "mqMode": 1, "accessToken": token}).status == 200
    assert create(client, {"mqName": mq, "mqMode": MQ | TEMP}).status == 200
    assert info(client, mq)["mode"] == MQ
    assert client.ask("produce", mq=mq, token="second").status == 403
    assert client.ask("produce", mq=mq, token="first").status == 200


# ---- unknown methods, the admin token --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fly", "INDEX2", "create", "../index", "__class__", "x" * 1000])
def test_an_unknown_method_is_not_found(client: Client, method: str) -> None:
    assert client.admin(method).status == 404


def test_without_a_tracker_its_methods_are_not_found(client: Client) -> None:
    assert client.admin("track_sub").status == 404


def test_the_admin_token_guards_every_method_and_nothing_else() -> None:
    settings: dict[str, Any] = {"RACEWAY_SECURITY__ADMIN_TOKEN": ADMIN_TOKEN, "RACEWAY_SECURITY__FREE_FAILURES": 0}
    with running_server(**settings) as server, dial_server(server) as client:
        mq = client.create(token=ADMIN_TOKEN)
        for method in ("", "index", "data", "create_mq", "track_sub", "fly"):
            for token in ("", "guess", ADMIN_TOKEN.upper(), ADMIN_TOKEN + "0", ADMIN_TOKEN[:-1], "ß"):
                assert client.admin(method, token=token).status == 403
        client.get("/")
        assert client.receive().status == 403
        assert client.admin("data", token=ADMIN_TOKEN).json()["mqTable"].keys() == {mq}
        client.produce(mq, "x")
        assert client.take(mq).body == b"x"
        assert ADMIN_TOKEN not in server.stderr


def test_a_new_queue_is_recorded_once_and_a_temporary_one_is_not(client: Client, server: Server) -> None:
    def entries(name: str) -> list[dict[str, Any]]:
        found = http_door.get(server, f"/api/messages?topic=raceway.audit&text={name}&limit=10").json()["messages"]
        return list(found)

    mq, news, temporary = client.create(access_token="hush"), client.create(mode=PUBSUB), client.create(mode=TEMP)
    assert create(client, {"mqName": mq, "mqMode": MQ, "accessToken": "hush"}).status == 200
    (entry,) = entries(mq)
    facts = entry["attributes"]
    assert (facts["action"], facts["method"], facts["path"]) == ("Create a queue", "admin", "create_mq")
    assert facts["address"] == "{}:{}".format(*client.socket.getsockname())
    assert (entry["wire"], json.loads(entry["payload"])) == ("zbus", {"name": mq, "mode": MQ})
    assert "hush" not in json.dumps(entry)
    assert len(entries(news)) == 1
    assert entries(temporary) == []
