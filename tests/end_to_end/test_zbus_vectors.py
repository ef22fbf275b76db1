"""Every vector of the zbus wire against a started server: each message whole, and again byte by byte.

A note behind a vector's title says what else must hold; the tests at the end prove those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

import pytest

from tests.rigs.server import Server, running_server
from tests.rigs.vectors.zbus_vectors import VECTORS, Step, Vector
from tests.rigs.zbus_wire import MQ, PUBSUB, UUID, Client, Message, broker_address, dial_server

Pace = Literal["whole", "byte by byte"]
PLACEHOLDER = re.compile(r"\{(ms|uuid|broker|html|n|cid:[a-z])\}")
# Queues that the vectors take for granted: mode and access token.
QUEUES = {
    "orders": (MQ, ""),
    "empty1": (MQ, ""),
    "empty2": (MQ, ""),
    "web": (MQ, ""),
    "vault": (MQ, "open"),
    "ticks": (PUBSUB, ""),
    "adder": (MQ, ""),
}
# These make their queue themselves, or need none.
WITHOUT_QUEUES = {"V01", "V02", "V03", "V04", "V32"}
CONTINUES = {"V13": ["V10", "V11", "V12"], "V24": ["V23"]}
ADMIN_TOKEN = "s3cret"
DRAINED = b"drained"


@pytest.fixture(scope="module", params=["whole", "byte by byte"])
def pace(request: pytest.FixtureRequest) -> Pace:
    chosen: Pace = request.param
    return chosen


@pytest.fixture(scope="module")
def server(pace: Pace) -> Iterator[Server]:
    """A fresh one for each pace: some vectors begin with nothing."""
    with running_server(RACEWAY_LISTEN__ZBUS__TRACKER="true") as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with running_server(RACEWAY_SECURITY__ADMIN_TOKEN=ADMIN_TOKEN) as server:
        yield server


class Stage:
    """The connections of one vector, and what its placeholders have come to mean."""

    def __init__(self, server: Server, pace: Pace, stack: ExitStack) -> None:
        self._server, self._pace, self._stack = server, pace, stack
        self._clients: dict[str, Client] = {}
        self.meanings = {"broker": broker_address(server)}

    def client(self, who: str) -> Client:
        if who not in self._clients:
            self._clients[who] = self._stack.enter_context(dial_server(self._server))
        return self._clients[who]

    def play(self, vector: Vector) -> None:
        for step, following in zip(vector.steps, [*vector.steps[1:], None], strict=True):
            if not step.is_sent:
                self.expect(step)
                continue
            self.send(step)
            if following is None or following.who != step.who:
                # The order between connections counts: a subscription comes before what it is to receive.
                self.client(step.who).synchronise()

    def send(self, step: Step) -> None:
        data = PLACEHOLDER.sub(lambda found: self.meanings[found[1]], step.text).encode()
        if self._pace == "whole":
            self.client(step.who).write(data)
        else:
            self.client(step.who).write_slowly(data)

    def expect(self, step: Step) -> None:
        client = self.client(step.who)
        if step.remark == "connection closed":
            assert client.until_closed() == []
        elif step.remark:
            assert step.remark.startswith("nothing")
            assert client.settled() == []
        else:
            self._compare(client.receive(), step.text)

    def _compare(self, message: Message, expected: str) -> None:
        head, _, body = expected.partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        assert message.first == first
        is_refusal = 400 <= message.status < 500
        for name, _, value in (line.partition(": ") for line in lines):
            if not (is_refusal and name == "content-length"):  # the text of a refusal is free
                self._match(message.headers.get(name, "(absent)"), value, name)
        if not is_refusal:
            self._match(message.body.decode(), body, "body")

    def _match(self, text: str, template: str, what: str) -> None:
        patterns = {"ms": r"\d{13}", "n": r"\d+", "html": r"(?s:.*)"}
        pattern, names, at = "", [], 0
        for found in PLACEHOLDER.finditer(template):
            name = found[1]
            known = re.escape(self.meanings[name]) if name in self.meanings else UUID.pattern
            names.append(name)
            pattern += f"{re.escape(template[at : found.start()])}({patterns.get(name, known)})"
            at = found.end()
        matched = re.fullmatch(pattern + re.escape(template[at:]), text)
        assert matched, f"{what}: {text!r} instead of {template!r}"
        self.meanings.update(zip(names, matched.groups(), strict=True))


@contextmanager
def set_stage(server: Server, pace: Pace, *names: str) -> Iterator[Stage]:
    """The queues that these vectors need are there, and empty again afterwards."""
    text = "".join(step.text for name in names for step in VECTORS[name].steps)
    needed = {mq: how for mq, how in QUEUES.items() if re.search(rf"\b{mq}\b", text)}
    with dial_server(server) as client:
        if not WITHOUT_QUEUES.intersection(names):
            for mq, (mode, access_token) in needed.items():
                client.create(mq, mode, access_token)
        with ExitStack() as stack:
            yield Stage(server, pace, stack)
        for mq, (mode, access_token) in needed.items():
            if mode == MQ:
                client.create(mq, mode, access_token)
                drain(client, mq, access_token)


def drain(client: Client, mq: str, token: str) -> list[Message]:
    """Takes all messages of a queue; those that were left."""
    client.produce(mq, DRAINED, token=token)
    left = []
    while (delivery := client.take(mq, token=token)).body != DRAINED:
        left.append(delivery)
    return left


@pytest.mark.parametrize("name", [name for name in VECTORS if name != "V22"])
def test_vector(server: Server, pace: Pace, name: str) -> None:
    names = [*CONTINUES.get(name, []), name]
    with set_stage(server, pace, *names) as stage:
        for each in names:
            stage.play(VECTORS[each])
    ids = [meaning for placeholder, meaning in stage.meanings.items() if placeholder.startswith("cid:")]
    assert len(set(ids)) == len(ids)


def test_vector_v22(guarded: Server, pace: Pace) -> None:
    """The server has an admin token; with it the same request is granted."""
    with ExitStack() as stack:
        (sent, refusal) = VECTORS["V22"].steps
        stage = Stage(guarded, pace, stack)
        stage.send(sent)
        stage.expect(refusal)
        granted = sent._replace(text=sent.text.replace("msgid:", f"token: {ADMIN_TOKEN}\r\nmsgid:"))
        stage.send(granted)
        assert stage.client("a").receive().status == 200


# ---- what the notes say besides --------------------------------------------------------------------------------------


def test_after_v13_the_third_message_is_still_queued(server: Server, pace: Pace) -> None:
    with set_stage(server, pace, "V10", "V11", "V12", "V13") as stage:
        for name in ("V10", "V11", "V12", "V13"):
            stage.play(VECTORS[name])
        (left,) = drain(stage.client("c"), "orders", "")
        assert (left.body, left.raw_id) == (b"anon", stage.meanings["uuid"])
        assert left.headers["mq-reply"] == stage.meanings["cid:p"]


def test_after_v15_there_is_no_second_delivery(server: Server, pace: Pace) -> None:
    with set_stage(server, pace, "V15") as stage:
        stage.play(VECTORS["V15"])
        stage.client("p").produce("empty2", "two")
        assert stage.client("c").settled() == []
        assert [left.body for left in drain(stage.client("p"), "empty2", "")] == [b"two"]


def test_in_v18_no_header_named_body_is_relayed(server: Server, pace: Pace) -> None:
    with set_stage(server, pace, "V18") as stage:
        client = stage.client("a")
        client.get("/web?cmd=produce&&msgid=w-1&&body=hi%20there")
        client.reply("w-1")
        client.get("/web?cmd=consume&msgid=w-2")
        assert "body" not in client.reply("w-2").headers


def test_in_v21_the_delivery_carries_no_token(server: Server, pace: Pace) -> None:
    with set_stage(server, pace, "V21") as stage:
        stage.play(VECTORS["V21"])
        (left,) = drain(stage.client("c"), "vault", "open")
        assert (left.raw_id, left.headers.get("token")) == ("t-3", None)


def test_in_v27_a_reply_code_on_a_post_line_means_the_same(server: Server, pace: Pace) -> None:
    vector = VECTORS["V27"]
    *before, answer, reply = vector.steps
    by_code = answer.text.replace("HTTP/1.1 500 Internal Server Error", "POST / HTTP/1.1\r\nreply-code: 500")
    with set_stage(server, pace, "V27") as stage:
        stage.play(vector._replace(steps=[*before, answer._replace(text=by_code), reply]))
