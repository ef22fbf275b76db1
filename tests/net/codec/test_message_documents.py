from __future__ import annotations

import pytest

from raceway.errors import MalformedError
from raceway.model.envelope import PUBLISH
from raceway.net.codec.message_documents import (
    MEDIA_TYPE,
    is_documents,
    payload_fields,
    read_documents,
    write_documents,
)


def test_a_list_of_messages_is_told_by_its_media_type() -> None:
    assert is_documents(MEDIA_TYPE.upper() + "; charset=utf-8")
    assert not is_documents("application/json")


def test_a_document_has_the_names_of_columns() -> None:
    (message,) = read_documents(
        b'{"messages":[{"payload":"a","message_id":"m","correlation_id":"c","parent_id":"p","routing_key":"k",'
        b'"encoding":"text/plain","version":"2.0.0","schema_id":7,"schema_version":1,"attributes":{"tenant":"acme"}}]}'
    )
    row = message.batch("t", PUBLISH).row(0)
    assert (row.payload, row.message_id, row.correlation_id, row.parent_id) == (b"a", "m", "c", "p")
    assert (row.routing_key, row.encoding, row.version, row.attributes) == (
        "k", "text/plain", "2.0.0", {"tenant": "acme"},
    )  # fmt: skip
    assert (row.schema_id, row.schema_version) == (7, 1)


def test_payloads_are_text_base64_or_empty() -> None:
    found = read_documents(b'{"messages":[{"payload":"\xc3\xbc"},{"payload_base64":"AP8="},{}]}')
    assert [message.payload for message in found] == ["ü".encode(), b"\x00\xff", b""]


def test_a_payload_that_is_not_text_is_base64() -> None:
    assert payload_fields("ü".encode()) == {"payload": "ü"}
    assert payload_fields(b"\x00\xff") == {"payload_base64": "AP8="}


def test_what_is_written_is_what_is_read() -> None:
    payloads = ["ü".encode(), b"\x00\xff", b""]
    common = {"routing_key": "k", "attributes": {"tenant": "acme"}}
    found = read_documents(write_documents(common | payload_fields(payload) for payload in payloads))
    assert [(message.payload, message.routing_key, message.attributes) for message in found] == [
        (payload, "k", {"tenant": "acme"}) for payload in payloads
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b'{"messages":{}}', b'{"messages":[{"nosuch":1}]}', b'{"messages":[{"payload":1}]}',
        b'{"messages":[{"payload":"a","payload_base64":"AA=="}]}', b'{"messages":[{"payload_base64":"*"}]}',
        b'{"messages":[{"payload":"\xff"}]}', b'{"messages":[{"routing_key":""}]}', b'{"messages":[{"schema_id":-1}]}',
        b'{"messages":[{"attributes":{"":"x"}}]}', b'{"messages":[{"attributes":{"a":1}}]}',
        b'{"messages":[{"message_id":"a\\u0000"}]}',
    ],
)  # fmt: skip
def test_anything_else_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedError):
        read_documents(body)
