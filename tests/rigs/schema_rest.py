"""The schema registry of a started server, spoken to over its console port."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.rigs.server import Server

USER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


class Answer(NamedTuple):
    status: int
    type: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def call(server: Server, method: str, path: str, document: Any = None, **headers: str) -> Answer:
    """`document` may be bytes: then they are sent as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port("console"), timeout=60)
    body = document if isinstance(document, bytes) or document is None else json.dumps(document).encode()
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.getheader("content-type", ""), response.read())
    finally:
        connection.close()


def register(server: Server, subject: str, document: Any = USER, schema_type: str = "json_schema") -> dict[str, Any]:
    definition = document if isinstance(document, str) else json.dumps(document)
    path = f"/api/schemas/{quote(subject, safe='')}/versions"
    answer = call(server, "POST", path, {"type": schema_type, "definition": definition})
    assert answer.status in (200, 201), answer
    found: dict[str, Any] = answer.json()
    return found


def bind(server: Server, topic: str, subject: str | None, policy: str, validate: bool = True) -> None:
    document = {"subject": subject, "policy": policy, "validate_payload": validate}
    answer = call(server, "PUT", f"/api/topic-schemas/{quote(topic, safe='')}", document)
    assert answer.status == 200, answer
