"""What the model knows of messages: what a client sent and was answered, and what is in the journal.

A message is known by its token, which stands in its payload and is never used again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

TOKEN = re.compile(rb'"m":"([^"]+)"')

State = Literal["open", "stored", "acknowledged", "refused", "failed"]


class Broken(Exception):  # noqa: N818 - a finding, not an error of the simulation
    """A promise that was not kept."""


def token_of(payload: bytes, who: str) -> str:
    """Return the token in a payload. Every message of the world has one."""
    found = TOKEN.search(payload)
    if found is None:
        raise Broken(f"{who} has what nobody sent: {payload[:120]!r}")
    return found[1].decode()


class Row(NamedTuple):
    """A row of the journal, as far as promises go."""

    sequence: int
    topic: str
    offset: int | None
    kind: str
    payload: bytes
    time_us: int
    # Of an answer: the position of its request, and why it is none that anybody waited for.
    answers: int | None = None
    error: str | None = None


@dataclass
class Message:
    """A publish or a request that a client sent.

    open: no answer. stored: told that it is accepted, without a promise. acknowledged: promised to be on disk. refused:
    told that it was not accepted. failed: told that the disk did not take it.
    """

    token: str
    topic: str
    payload: bytes
    connection: int
    at: float
    state: State = "open"
    offset: int | None = None
    is_request: bool = False
    is_repeated: bool = False  # sent again, under an id for deduplication
    is_forbidden: bool = False  # its sender may not publish
    is_converted: bool = False  # a document of Seneca's, which other wires get as another text
    is_malformed: bool = False  # not what the schema of its topic wants
    behind: int = -1  # the last position that was seen before it was sent
    key: str = ""  # its routing key, if it has one
    subject: str = ""  # on a publish/subscribe queue, what it is about
