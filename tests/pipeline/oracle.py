"""All nine tables in plain Python, from what `raceway journal dump` prints, with nothing of the pipeline.

It follows the manual (docs/understand/tables.md), not the code: where the two differ, one of them is wrong. Of what is
in words for people (`value_fault`) it tells only whether there is something.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import fastavro


class Message(dict[str, Any]):
    """A message; columns that it does not have are NULL."""

    def __missing__(self, _: str) -> None:
        return None


Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = list[Row]

SECOND_US = 1_000_000
MINUTE_US, HOUR_US = 60 * SECOND_US, 3600 * SECOND_US
GAP_US = DEDUP_US = 10 * MINUTE_US
LONGEST = 2**63 - 1
_TOO_LATE = ("late", "duplicate")
_OWN_CLOCK = ("mb", "zbus")


class Times(NamedTuple):
    """Settings: when minutes and hours are closed, and how old a trace may become."""

    close_us: int
    trace_us: int


def messages_of(dump: Iterable[str]) -> tuple[Rows, Rows]:
    """The messages in a dump, and the schema versions that its control rows tell of."""
    messages: Rows = []
    versions: Rows = []
    for line in dump:
        row = json.loads(line)
        if row["kind"] == "control":
            section, _, value = json.loads(row["payload"])
            if section == "schemas" and value is not None:
                versions.append(value)
            continue
        if "payload_base64" in row:
            row["payload"] = base64.b64decode(row.pop("payload_base64"))
        elif "payload" in row:
            row["payload"] = row["payload"].encode()
        messages.append(Message(row | {"source": "journal"}))
    return messages, versions


def tables_of(dump: Iterable[str], times: Times) -> dict[str, Rows]:
    """The rows of each table."""
    messages, versions = messages_of(dump)
    now_us = max((row["time_us"] for row in messages), default=0)
    rejected = [_rejected(row) for row in messages if row["topic"] == "raceway.rejected"]
    clean = [_clean(row, versions) for row in _without_repeats(messages)]
    exchanges = list(_exchanges(messages, now_us))
    closed_us = now_us - times.close_us
    return {
        "bronze.messages": messages,
        "bronze.rejected": rejected,
        "silver.messages": clean,
        "silver.exchanges": exchanges,
        "silver.hops": [hop for row in messages for hop in _hops(row)],
        "gold.topic_stats": _topic_stats(clean, exchanges, closed_us),
        "gold.service_graph": _service_graph(exchanges, closed_us),
        "gold.schema_usage": _schema_usage(clean, rejected, closed_us),
        "gold.traces": list(_traces(messages, times.trace_us)),
    }


# ---- bronze ---------------------------------------------------------------------------------------------------------


def _rejected(row: Row) -> Row:
    told = row["attributes"] or {}
    version = told.get("version", "")
    return {
        **{name: row[name] for name in ("source", "partition", "sequence", "time_us", "payload")},
        **{name: told.get(name) for name in ("topic", "code", "reason", "path", "subject")},
        "attributes": told,
        "wire": told.get("wire", row["wire"]),
        "producer": told.get("producer", row["producer"]),
        "schema_version": int(version) if version.isdigit() else None,
    }


# ---- silver.messages ------------------------------------------------------------------------------------------------


def _without_repeats(messages: Rows) -> Iterator[Row]:
    seen: dict[tuple[Any, ...], int] = {}
    for row in messages:
        name = (row["attributes"] or {}).get("x-dedup-id")
        if name and row["kind"] in ("publish", "request"):
            key = row["topic"], row["producer"], name
            before_us = seen.get(key)
            seen[key] = row["time_us"]
            if before_us is not None and row["time_us"] - before_us <= DEDUP_US:
                continue
        yield row


def _clean(row: Row, versions: Rows) -> Row:
    payload = row["payload"]
    try:
        text = None if payload is None else payload.decode()
    except UnicodeDecodeError:
        text = None
    computed = {
        "attributes": row["attributes"] or {},
        "bytes": None if payload is None else len(payload),
        "text": text,
        "valid_json": text is not None and _is_json(text),
    }
    typed = _read(row, versions) if row["topic"] != "raceway.rejected" else {}
    return Message(row | computed | typed)


def _is_json(text: str) -> bool:
    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _read(row: Row, versions: Rows) -> Row:
    """What schemas say of a payload: first the one in its prefix, then the one that the message names."""
    payload, schema_id = row["payload"] or b"", row["schema_id"]
    there = [each for each in versions if each["created_at_ms"] * 1000 <= row["time_us"]]
    named = _maybe_named(row, versions, there) if schema_id is not None else None
    framed = None
    if payload[:1] == b"\0" and len(payload) >= 5:
        number = int.from_bytes(payload[1:5], "big")
        candidates = [each for each in there if each["registry_id"] == number]
        if named is not None:
            candidates = [each for each in reversed(candidates) if each["subject"] == named["subject"]]
        framed = candidates[0] if candidates else None
    in_frame = _typed(framed, payload[5:]) if framed else None
    if in_frame and not in_frame["value_fault"]:
        return in_frame
    if named is not None:
        bare = _typed(named, payload)
        return bare if not bare["value_fault"] or in_frame is None else in_frame
    if schema_id is None:
        return {}
    known = [each for each in versions if each["schema_id"] == schema_id]
    return {"subject": known[0]["subject"] if known else None, "value_fault": True}


def _maybe_named(row: Row, versions: Rows, there: Rows) -> Row | None:
    of_subject = [each for each in versions if each["schema_id"] == row["schema_id"]]
    if row["schema_version"] is None:
        return next((each for each in reversed(there) if each in of_subject), None)
    same = [each for each in of_subject if each["version"] == row["schema_version"]]
    return next((each for each in reversed(same) if each in there), same[0] if same else None)


def _typed(version: Row, payload: bytes) -> Row:
    value, stream = None, io.BytesIO(payload)
    try:
        read = fastavro.schemaless_reader(stream, json.loads(base64.b64decode(version["definition"])), None)
        if not stream.read():
            value = read
    except (EOFError, ValueError, IndexError):
        pass
    told = {"schema_version": version["version"], "schema_type": "avro", "value": value, "value_fault": value is None}
    return {"schema_id": version["schema_id"], "subject": version["subject"]} | told


# ---- silver.exchanges -----------------------------------------------------------------------------------------------


def _exchanges(messages: Rows, now_us: int) -> Iterator[Row]:
    requests = {row["sequence"]: row for row in messages if row["kind"] == "request"}
    answers: dict[int, Rows] = defaultdict(list)
    for row in messages:
        if row["kind"] == "response":
            answers[row["sequence"] if row["answers"] is None else row["answers"]].append(row)
    for position in sorted({*requests, *answers}):
        given = sorted(answers[position], key=lambda row: (_lateness(row), row["sequence"]))
        yield _exchange(position, requests.get(position, Message()), given, now_us)


def _lateness(row: Row) -> int:
    return {"late": 1, "duplicate": 2}.get(row["error"], 0)


def _exchange(position: int, asked: Row, given: Rows, now_us: int) -> Row:
    first: Row = given[0] if given else Message()
    verdict = ("in time", "late", "duplicate")[_lateness(first)] if given else None
    error = first["error"] if verdict == "in time" else None
    by_bus = first["producer"] == "raceway" and first["error"] in ("no_route", "busy")
    deadline_us = None
    if asked and asked["timeout_ms"] is not None:
        deadline_us = asked["time_us"] + asked["timeout_ms"] * 1000
        deadline_us = deadline_us if deadline_us <= LONGEST else None
    if not asked:
        status = "orphan"
    elif given:
        status = "late" if verdict == "late" else "error" if error else "answered"
    else:
        status = "timeout" if deadline_us is not None and deadline_us <= now_us else "open"
    has_latency = asked and given and not by_bus
    return {
        "source": "journal",
        "partition": 0,
        "sequence": position,
        "answer_sequence": first["sequence"],
        "status": status,
        "error": error,
        **{name: (asked or first)[name] for name in ("topic", "message_id", "correlation_id")},
        "wire": asked["wire"],
        "caller": asked["producer"],
        "callee_wire": None if by_bus else first["wire"],
        "callee": None if by_bus else first["producer"],
        "parent_id": asked["parent_id"],
        "time": (asked or first)["time_us"],
        "requested_us": asked["time_us"],
        "answered_us": first["time_us"],
        "latency_us": first["time_us"] - asked["time_us"] if has_latency else None,
        "timeout_ms": asked["timeout_ms"],
        "deadline_us": deadline_us,
        "late_answers": sum(row["error"] == "late" for row in given),
        "duplicate_answers": sum(row["error"] == "duplicate" for row in given),
        "request_bytes": len(asked["payload"]) if asked else None,
        "answer_bytes": len(first["payload"]) if given else None,
        "due_us": deadline_us if status == "open" else None,
        "verdict": verdict,
    }


# ---- silver.hops ----------------------------------------------------------------------------------------------------


def _hops(row: Row) -> Iterator[Row]:
    own = row["kind"] == "response" and row["wire"] in _OWN_CLOCK
    for number, hop in enumerate(row["hops"] or ()):
        times = hop.get("tms") or []
        processing, round_trip = _between(times, 1, 2), _between(times, 0, 2 if own else 3)
        network = None if own or None in (processing, round_trip) else _fitting(round_trip - processing)
        yield {
            **{name: row[name] for name in ("source", "partition", "sequence", "time_us")},
            **{name: row[name] for name in ("topic", "wire", "kind", "correlation_id")},
            **{name: hop.get(name) for name in ("sid", "rid", "mid")},
            "hop": number,
            "times_ms": times,
            "queue_ms": _between(times, 0, 1) if own else None,
            "processing_ms": processing,
            "round_trip_ms": round_trip,
            "network_ms": network,
        }


def _between(times: list[int | None], first: int, second: int) -> Any:
    if len(times) <= second:
        return None
    begin, end = times[first], times[second]
    return None if begin is None or end is None else _fitting(end - begin)


def _fitting(number: int) -> int | None:
    return number if -LONGEST - 1 <= number <= LONGEST else None


# ---- sums -----------------------------------------------------------------------------------------------------------


def _latencies(found: list[int], closed: bool) -> Row:
    classes = Counter(math.floor(math.log(latency + 1) / math.log(2) * 16) for latency in found)
    shares = {f"latency_p{share}_us": _percentile(sorted(found), share / 100, closed) for share in (50, 95, 99)}
    return shares | {"latency_counts": dict(classes)}


class About(NamedTuple):
    """A percentile by classes: within 2.2 % of the exact one."""

    exact: float

    def fits(self, other: Any) -> bool:
        return isinstance(other, float) and abs(other - self.exact) <= 0.022 * (self.exact + 1)


def _percentile(values: list[int], share: float, closed: bool) -> float | About | None:
    if not values:
        return None
    rank = (len(values) - 1) * share
    below, above = values[math.floor(rank)], values[math.ceil(rank)]
    exact = below + (above - below) * (rank - math.floor(rank))
    return exact if closed else About(exact)


def _grouped(rows: Iterable[tuple[tuple[Any, ...], Row]]) -> dict[tuple[Any, ...], Rows]:
    found: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for key, row in rows:
        found[key].append(row)
    return found


def _topic_stats(clean: Rows, exchanges: Rows, closed_us: int) -> Rows:
    sent = _grouped(((row["time_us"] // MINUTE_US * MINUTE_US, row["topic"], row["wire"]), row) for row in clean)
    asked = _grouped(
        ((row["time"] // MINUTE_US * MINUTE_US, row["topic"], row["wire"]), row)
        for row in exchanges
        if row["status"] != "orphan"
    )
    found = []
    for key in {*sent, *asked}:
        rows, calls, closed = sent.get(key, []), asked.get(key, []), key[0] + MINUTE_US <= closed_us
        latencies = [row["latency_us"] for row in calls if row["latency_us"] is not None]
        found.append(
            {
                "source": "journal",
                **dict(zip(("minute", "topic", "wire"), key, strict=True)),
                **{f"{kind}es" if kind == "publish" else f"{kind}s": _number(rows, "kind", kind) for kind in _KINDS},
                "bytes": sum(row["bytes"] or 0 for row in rows),
                "errors": sum(row["error"] is not None for row in rows),
                "answered": len(latencies),
                "timeouts": _number(calls, "status", "timeout"),
                **_latencies(latencies, closed),
                "messages": len(rows),
                "exchanges": len(calls),
                "closed": closed,
            }
        )
    return found


_KINDS = ("publish", "request", "response")


def _number(rows: Rows, column: str, value: str) -> int:
    return sum(row[column] == value for row in rows)


def _service_graph(exchanges: Rows, closed_us: int) -> Rows:
    names = ("hour", "topic", "caller", "wire", "callee", "callee_wire")
    groups = _grouped(
        (
            (
                row["time"] // HOUR_US * HOUR_US, row["topic"], row["caller"] or "nobody", row["wire"],
                row["callee"] or "nobody", row["callee_wire"] or "",
            ),
            row,
        )
        for row in exchanges
        if row["status"] != "orphan"
    )  # fmt: skip
    found = []
    for key, rows in groups.items():
        closed = key[0] + HOUR_US <= closed_us
        counts = {"errors": "error", "timeouts": "timeout", "late": "late", "open": "open"}
        found.append(
            {
                "source": "journal",
                **dict(zip(names, key, strict=True)),
                "calls": len(rows),
                **{name: _number(rows, "status", status) for name, status in counts.items()},
                **_latencies([row["latency_us"] for row in rows if row["latency_us"] is not None], closed),
                "closed": closed,
            }
        )
    return found


def _schema_usage(clean: Rows, rejected: Rows, closed_us: int) -> Rows:
    names = ("hour", "subject", "schema_version", "producer", "wire")

    def keyed(row: Row) -> tuple[tuple[Any, ...], Row]:
        hour = row["time_us"] // HOUR_US * HOUR_US
        return (hour, row["subject"] or "", row["schema_version"], row["producer"] or "", row["wire"]), row

    def is_tolerated(row: Row) -> bool:
        return row["kind"] != "response" and row["error"] is not None

    stored = _grouped(keyed(row) for row in clean if row["subject"] is not None or is_tolerated(row))
    refused = _grouped(keyed(row) for row in rejected)
    found = []
    for key in {*stored, *refused}:
        rows, bad = stored.get(key, []), len(refused.get(key, []))
        tolerated = sum(bool(row["value_fault"]) or is_tolerated(row) for row in rows)
        found.append(
            {
                "source": "journal",
                **dict(zip(names, key, strict=True)),
                "schema_type": max((row["schema_type"] for row in rows if row["schema_type"]), default=None),
                "messages": len(rows),
                "tolerated": tolerated,
                "refused": bad,
                "violations": tolerated + bad,
                "closed": key[0] + HOUR_US <= closed_us,
            }
        )
    return found


# ---- gold.traces ----------------------------------------------------------------------------------------------------


def _traces(messages: Rows, longest_us: int) -> Iterator[Row]:
    by_id = _grouped(((row["correlation_id"],), row) for row in messages if row["correlation_id"] is not None)
    for rows in by_id.values():
        trace: Rows = []
        for row in rows:
            is_root = row["kind"] != "response" and (row["message_id"] or "").lower() == row["correlation_id"].lower()
            silent = trace and row["time_us"] - trace[-1]["time_us"] > GAP_US
            if trace and (is_root or silent or row["time_us"] - trace[0]["time_us"] > longest_us):
                yield _trace(trace)
                trace = []
            trace.append(row)
        yield _trace(trace)


class _Node:
    def __init__(self, row: Row, parent: _Node | None) -> None:
        self.row, self.parent = row, parent
        self.depth: int = parent.depth + 1 if parent else 1
        self.children: list[_Node] = []
        self.answers: Rows = []

    @property
    def end(self) -> Row:
        """What ended it: the first answer in time, otherwise the first one, otherwise itself."""
        return min(self.answers, key=lambda row: row["error"] in _TOO_LATE, default=self.row)

    @property
    def last_us(self) -> int:
        last_us: int = max([self.end["time_us"], *(child.last_us for child in self.children)])
        return last_us

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()

    def critical(self) -> Iterator[_Node]:
        yield self
        if self.children:
            yield from max(self.children, key=lambda child: child.last_us).critical()

    def record(self) -> Row:
        row, end = self.row, self.end
        return {
            **{name: row[name] for name in ("sequence", "kind", "topic", "wire", "producer")},
            "parent": self.parent.row["sequence"] if self.parent else None,
            "depth": self.depth,
            "answerer": end["producer"] if self.answers else None,
            "start_us": row["time_us"],
            "end_us": end["time_us"],
            "error": end["error"],
        }


def _trace(rows: Rows) -> Row:
    nodes: dict[int, _Node] = {}
    crossings = 0
    for row in rows:
        asked = nodes.get(row["answers"]) if row["kind"] == "response" and row["answers"] is not None else None
        if asked is not None:
            asked.answers.append(row)
            crossings += asked.row["wire"] != row["wire"]
            continue
        wanted = (row["parent_id"] or "").lower()
        causes = (
            node
            for node in reversed(nodes.values())
            if node.row["kind"] != "response" and (node.row["message_id"] or "").lower() == wanted
        )
        parent = next(causes, None) if wanted else None
        nodes[row["sequence"]] = node = _Node(row, parent)
        if parent is not None:
            parent.children.append(node)
            crossings += parent.row["wire"] != row["wire"]
    roots = [node for node in nodes.values() if node.parent is None]
    path = list(max(roots, key=lambda node: node.last_us).critical())
    start_us, end_us = rows[0]["time_us"], max(row["time_us"] for row in rows)
    return {
        "source": "journal",
        "correlation_id": rows[0]["correlation_id"],
        "first_sequence": rows[0]["sequence"],
        "last_sequence": rows[-1]["sequence"],
        "start_us": start_us,
        "end_us": end_us,
        "time": start_us,
        "total_us": end_us - start_us,
        "messages": len(rows),
        "requests": _number(rows, "kind", "request"),
        "errors": sum(row["error"] is not None for row in rows),
        "depth": max(node.depth for node in nodes.values()),
        "wires": sorted({row["wire"] for row in rows}),
        "crossings": crossings,
        "root_topic": rows[0]["topic"],
        "root_wire": rows[0]["wire"],
        "critical_us": path[0].last_us - path[0].row["time_us"],
        "critical_path": [node.row["topic"] for node in path],
        "tree": [each.record() for root in roots for each in root.walk()],
    }
