r"""Vectors of the zbus wire, as data for tests of every layer.

`zbus_vectors.txt`: a line `V01 title`, then messages. `x>` is sent by the client on connection x, `x<` is received on
it; each is one message (V31 has two in one line), with `\r\n` written as these four characters. Placeholders: `{ms}`
time in milliseconds, `{uuid}` any UUID, `{cid:x}` the id of connection x, `{broker}` the broker's address, `{html}` and
`{n}` a page and its length. Text in parentheses is for people.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

WHERE = Path(__file__).parent
BROKER = "127.0.0.1:15555"
TIME_MS = "1423000000000"
PAGE = "<html><p>queues</html>"
_HOLES = {"{ms}": TIME_MS, "{uuid}": "5c4e1a3b-0c2d-4e5f-8a9b-0c1d2e3f4a5b", "{broker}": BROKER, "{html}": PAGE}
_HOLES |= {"{n}": str(len(PAGE))}


class Line(NamedTuple):
    """One message of a vector. `message` is None where nothing comes."""

    vector: str
    connection: str
    is_sent: bool
    message: bytes | None


def connection_id(name: str) -> str:
    return f"{ord(name):08x}-0000-4000-8000-000000000000"


def _message(text: str) -> bytes | None:
    if text.startswith("("):
        return None
    for hole, value in _HOLES.items():
        text = text.replace(hole, value)
    text = re.sub(r"\{cid:(.)\}", lambda found: connection_id(found[1]), text)
    return text.replace("\\r\\n", "\r\n").encode()


def _lines() -> list[Line]:
    found: list[Line] = []
    vector = ""
    for line in (WHERE / "zbus_vectors.txt").read_text("utf-8").splitlines():
        if line.startswith("V"):
            vector = line[:3]
        else:
            connection, direction, text = line[2], line[3], line[5:]
            found.append(Line(vector, connection, direction == ">", _message(text)))
    return found


LINES = _lines()
SENT = [(line.vector, line.message) for line in LINES if line.is_sent and line.message is not None]
RECEIVED = [(line.vector, line.message) for line in LINES if not line.is_sent and line.message is not None]


def corpus() -> list[Path]:
    """Inputs that a fuzzer found worth keeping."""
    return sorted((WHERE / "zbus_corpus").iterdir())
