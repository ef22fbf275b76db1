"""The test vectors of the Seneca wire. The text is in `seneca_vectors.txt`.

A vector is a line with its name, dialect and title, then indented lines:

    >h name: value     a header of the request        <h name: value      a header of the answer
    > text             the body or line sent          < status text       the answer; `line` for one of TCP
    >rtn text          what is sent to the return path
    = who: trk […]     what that instance holds then; `stored meta:` is what the journal knows

`@20` is a time, 20 ms after a fixed one; `<new>` is an id that the receiver makes. The server is B unless told.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

BASE_MS = 1_700_000_000_000
NEW = "<new>"

_TITLE = re.compile(r"(V\d\d) (S|W|L|T|bare) (.*)")
_STEP = re.compile(r"  (>h|<h|>rtn|>|<|=) (.*)")
_TIME = re.compile(r"@(\d+)")


class Answer(NamedTuple):
    """`status` is None for a line."""

    status: int | None
    text: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.text)


class Vector(NamedTuple):
    name: str
    dialect: str
    title: str
    sent_headers: dict[bytes, bytes]
    sent: list[bytes]
    answered_headers: dict[bytes, bytes]
    answers: list[Answer]
    returned: list[bytes]
    views: dict[str, Any]

    @property
    def answer(self) -> Answer:
        (one,) = self.answers[:1]
        return one


def ms(offset: int) -> int:
    """The time that a vector writes as `@offset`."""
    return BASE_MS + offset


def _take(vector: Vector, sign: str, text: str) -> None:
    if sign in (">h", "<h"):
        name, value = text.split(": ", 1)
        headers = vector.sent_headers if sign == ">h" else vector.answered_headers
        headers[name.encode()] = value.encode()
    elif sign == ">":
        vector.sent.append(text.encode())
    elif sign == ">rtn":
        vector.returned.append(text.encode())
    elif sign == "<":
        status, body = text.split(" ", 1)
        vector.answers.append(Answer(None if status == "line" else int(status), body.encode()))
    else:
        who, view = text.split(": ", 1)
        vector.views[who] = json.loads(view.removeprefix("trk "))


def _read() -> dict[str, Vector]:
    vectors: dict[str, Vector] = {}
    for line in Path(__file__).with_name("seneca_vectors.txt").read_text("utf-8").splitlines():
        if title := _TITLE.fullmatch(line):
            vector = vectors[title[1]] = Vector(title[1], title[2], title[3], {}, [], {}, [], [], {})
        else:
            step = _STEP.fullmatch(line)
            assert step, line
            _take(vector, step[1], _TIME.sub(lambda time: str(ms(int(time[1]))), step[2]))
    return vectors


VECTORS = _read()
assert list(VECTORS) == [f"V{number:02d}" for number in range(1, 33)]
