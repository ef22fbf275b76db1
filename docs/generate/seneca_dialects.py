"""Where each column of a row comes from in the dialects of Seneca, found by giving each reader a call full of marks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from docs.generate.marks import Found, columns_of
from raceway.wires.seneca.codec.call import batch_of
from raceway.wires.seneca.codec.line import read_line
from raceway.wires.seneca.codec.patterns import maybe_topic
from raceway.wires.seneca.codec.request import read_http

DIALECTS = ("S", "W", "L", "T")
KEYS, PARENT = "the values of its keys", "the-parent"
DATA = {"role": "math", "a": "the payload"}
CUSTOM = {"other": "another", "schema_id": 7007, "schema_version": 7008}
# Marks that stand at the same place in every dialect that has custom data.
_CUSTOM_MARKS = {"custom data": "another", "custom `schema_id`": 7007, "custom `schema_version`": 7008}
_DATA_MARKS = {KEYS: "math", "the document without `meta$`": "the payload", "always `json`": "json"}


def _found(call: Any, marks: Mapping[str, Any], hops: str = "") -> Found:
    """`hops` is where a call says what came before it."""
    topic = maybe_topic(call.text) or ""
    row = batch_of(call, topic.encode()).row(0)
    found = columns_of(row, {**marks, **_CUSTOM_MARKS, **_DATA_MARKS})
    found["payload"] = found["payload"].removeprefix(f"{KEYS}, ")  # they are part of the document
    came_before = any(hop.mid == PARENT for hop in row.hops)
    return {column: places for column, places in found.items() if column not in ("kind", "hops")} | (
        {"hops": hops} if came_before else {}
    )


def _fresh() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"new{next(numbers)}"


def _of_s() -> Found:
    trk = [{"sid": "first", "mid": PARENT, "tms": [1]}, {"sid": "a-sid", "mid": "a-mid", "tms": [7012]}]
    meta = {"mid": "a-mid", "cid": "a-cid", "sid": "a-sid", "rtn": {"urn": "a-urn"}, "trk": trk, "custom": CUSTOM,
            "pat": "a-pattern"}  # fmt: skip
    call = read_http({}, json.dumps(DATA | {"meta$": meta}).encode(), _fresh())
    marks = {"`mid`": "a-mid", "`cid`": "a-cid", "`sid`": "a-sid", "`rtn.urn`": "a-urn",
             "`mid` of the `trk` entry before its own": PARENT, "`tms[0]` of its own `trk` entry": 7012,
             "`pat`": "a-pattern"}  # fmt: skip
    return _found(call, marks, "`trk`")


def _of_w() -> Found:
    parents = [["a:b", f"{PARENT}/a-cid", "first", "", "", 1, 2, True, "x"]]
    meta = {"id": "a-mid/a-cid", "instance": "a-sid", "start": 7012, "timeout": 7005, "custom": CUSTOM,
            "parents": parents, "pattern": "a-pattern"}  # fmt: skip
    call = read_http({}, json.dumps(DATA | {"meta$": meta}).encode(), _fresh())
    marks = {"`id` before the `/`": "a-mid", "`id` behind it": "a-cid", "`instance`": "a-sid", "`start`": 7012,
             "`timeout`": 7005, "`id` of the first of `parents`": PARENT, "`pattern`": "a-pattern"}  # fmt: skip
    return _found(call, marks, "`parents`")


def _of_l() -> Found:
    headers = {b"seneca-id": b"a-mid/a-cid", b"seneca-origin": b"a-sid", b"seneca-time-client-sent": b"7012"}
    call = read_http(headers, json.dumps(DATA | {"custom$": CUSTOM}).encode(), _fresh())
    marks = {"header `seneca-id` before the `/`": "a-mid", "`seneca-id` behind it": "a-cid",
             "header `seneca-origin`": "a-sid", "header `seneca-time-client-sent`": 7012}  # fmt: skip
    return _found(call, marks)


def _of_t() -> Found:
    line = {"kind": "act", "id": "a-mid/a-cid", "origin": "a-sid", "time": {"client_sent": 7012}, "sync": True,
            "act": DATA | {"custom$": CUSTOM}, "msg$": {"pat": "a-pattern"}}  # fmt: skip
    call = read_line(json.dumps(line).encode(), _fresh())
    marks = {"`id` before the `/`": "a-mid", "`id` behind it": "a-cid", "`origin`": "a-sid",
             "`time.client_sent`": 7012, "`msg$.pat`": "a-pattern"}  # fmt: skip
    return _found(call, marks)


def dialects() -> dict[str, Found]:
    return dict(zip(DIALECTS, (_of_s(), _of_w(), _of_l(), _of_t()), strict=True))


def from_seneca() -> Found:
    """As the protocol's own document says it; what only another dialect has is named with that."""
    found = dialects()
    return {column: f"{places} (W)" for column, places in found["W"].items()} | found["S"]
