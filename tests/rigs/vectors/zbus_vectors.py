"""The test vectors of the zbus wire as plays: who sends and who receives what, in which order.

The text is in `zbus_vectors.txt`. A vector is a line with its name and title, perhaps a note after ` -- `, then one
indented line per message: `x>` is sent by the client on connection x, `x<` received on it; `\\r\\n` stands for two
bytes. Placeholders: `{ms}` 13 digits, `{uuid}` any UUID, `{cid:x}` the connection id of x, `{broker}` the advertised
address, `{html}` and `{n}` a page and its length. Header order is free and further headers may be present.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_TITLE = re.compile(r"(V\d\d) (.*?)(?: -- (.*))?")
_STEP = re.compile(r"  ([a-z])([<>]) (.*)")


class Step(NamedTuple):
    """One message on connection `who`; or, received, a remark in round brackets: `(nothing)`, `(connection closed)`."""

    who: str
    is_sent: bool
    text: str

    @property
    def remark(self) -> str:
        return self.text.strip("()") if self.text.startswith("(") else ""


class Vector(NamedTuple):
    name: str
    title: str
    note: str
    steps: list[Step]


def _read() -> dict[str, Vector]:
    vectors: dict[str, Vector] = {}
    for line in Path(__file__).with_name("zbus_vectors.txt").read_text("utf-8").splitlines():
        if title := _TITLE.fullmatch(line):
            vector = vectors[title[1]] = Vector(title[1], title[2], title[3] or "", [])
        else:
            step = _STEP.fullmatch(line)
            assert step, line
            vector.steps.append(Step(step[1], step[2] == ">", step[3].replace("\\r\\n", "\r\n")))
    return vectors


VECTORS = _read()
assert list(VECTORS) == [f"V{number:02d}" for number in range(1, 35)]
