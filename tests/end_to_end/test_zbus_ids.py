"""Clients of zbus 6.2 and newer know replies by the header `id`. The bus does not speak their commands, and must say so
in a way that they hear instead of waiting for their time-out."""

from __future__ import annotations

import json

import pytest

from raceway.wires.zbus.codec import encode
from raceway.wires.zbus.codec.head import EchoedId
from tests.rigs.seneca_wire import wait_for_rows
from tests.rigs.server import Server
from tests.rigs.zbus_wire import Client, Message


def raw(client: Client, *headers: str, body: bytes = b"", line: str = "POST / HTTP/1.1") -> Message:
    """The next message from the server after this one was sent as it stands."""
    lines = [line, *headers, f"content-length: {len(body)}", "", ""]
    client.write("\r\n".join(lines).encode() + body)
    return client.receive()


def test_a_command_of_newer_versions_is_refused_under_its_id(client: Client) -> None:
    refused = raw(client, "cmd: create_mq", "mq: orders", "id: 6f1c-1")
    assert (refused.status, refused.headers["id"]) == (400, "6f1c-1")
    assert refused.body == b"Bad format: command(create_mq) not support"
    again = raw(client, "cmd: create_mq", "mq: orders", "id: 6f1c-2", "msgid: m2")
    assert (again.status, again.headers["id"], again.msgid) == (400, "6f1c-2", "m2")


@pytest.mark.parametrize("headers", [("cmd: produce", "mq: nobody.has.it"), ("cmd: admin", "method: no_such")])
def test_other_refusals_have_it_too(client: Client, headers: tuple[str, ...]) -> None:
    refused = raw(client, *headers, "id: i1")
    assert (refused.status, refused.headers["id"]) == (404, "i1")


def test_an_acknowledgement_has_it_and_the_row_goes_by_it(client: Client, server: Server, mq: str) -> None:
    for number in range(40):
        told = raw(client, "cmd: produce", f"mq: {mq}", f"id: {mq}-{number}", body=b"x")
        assert (told.status, told.headers["id"], told.msgid) == (200, f"{mq}-{number}", f"{mq}-{number}")
    rows = wait_for_rows(server, 40, topic=mq)
    assert [row["message_id"] for row in rows] == [f"{mq}-{number}" for number in range(40)]
    data = raw(client, "cmd: admin", "method: data", "id: i2")
    assert (data.headers["id"], bool(json.loads(data.body))) == ("i2", True)


def test_without_it_nothing_has_changed(client: Client, mq: str) -> None:
    assert "id" not in raw(client, "cmd: produce", f"mq: {mq}", "msgid: m1").headers
    assert "id" not in raw(client, "cmd: create_mq", "msgid: m2").headers
    assert "id" not in raw(client, "cmd: create_mq", "id:", "msgid: m3").headers


def test_an_id_that_is_no_plain_word_is_not_repeated(client: Client) -> None:
    refused = raw(client, "msgid: m1", line="GET /?cmd=create_mq&id=a%0d%0aset-cookie:%20b HTTP/1.1")
    assert (refused.status, refused.msgid) == (400, "m1")
    assert {"id", "set-cookie"}.isdisjoint(refused.headers)


def test_several_acknowledgements_have_each_its_own() -> None:
    ids = [b"m1", EchoedId.maybe_of(b"m2", b"i2") or b"", EchoedId.maybe_of(None, b"i3") or b""]
    text = encode.acknowledgements(ids, 5).decode()
    assert [line for line in text.split("\r\n") if line.startswith(("msgid", "id"))] == [
        "msgid: m1", "msgid: m2", "id: i2", "msgid: i3", "id: i3",
    ]  # fmt: skip
