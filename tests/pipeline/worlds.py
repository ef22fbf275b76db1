"""Small worlds: everything that can happen on a bus, at random, in a few rows close to every border there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from raceway.model.envelope import Hop
from tests.pipeline.rows import START_US, Row, answer, message, request
from tests.pipeline.schemas import V1, V2, avro, datum, framed

SECOND_US = 1_000_000
# Within everything, beyond a deadline, about a minute, just within and just beyond the gap and the window, an hour.
STEPS_S = (0, 1, 6, 55, 599, 600, 601, 3600)
VERSIONS = [avro(1, 1, V1), avro(2, 2, V2, START_US + 30 * SECOND_US)]
EVENTS = (
    "publish", "publish", "follow", "follow", "request", "request", "answer", "answer", "answer", "orphan", "named",
    "named", "typed", "refused",
)  # fmt: skip


@dataclass
class _World:
    """Rows as they come, and what the next ones may refer to."""

    rows: list[Row] = field(default_factory=list)
    time_us: int = START_US
    answered: dict[int, Row] = field(default_factory=dict)

    def fields(self, draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
        self.time_us += draw(st.sampled_from(STEPS_S)) * SECOND_US
        wire = draw(st.sampled_from(["mb", "zbus", "seneca", "danube"]))
        return len(self.rows), {"time_us": self.time_us, "wire": wire, "producer": draw(st.sampled_from("pq"))}

    def add(self, draw: st.DrawFn) -> None:
        event = draw(st.sampled_from(EVENTS))
        self.rows.append(getattr(self, f"_{event}")(draw, *self.fields(draw)))

    def _publish(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        """Ids come again: nothing makes them unique."""
        return message(at, **fields, message_id=draw(st.sampled_from([f"m{at}", "a", "b"])))

    def _follow(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        cause = self._some(draw, self.rows)
        if cause is None:
            return message(at, **fields, message_id=None, correlation_id="unknown")
        return message(at, **fields, parent_id=cause["message_id"], correlation_id=cause["correlation_id"])

    def _request(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        cause = self._some(draw, self.rows) if draw(st.booleans()) else None
        chain = {} if cause is None else {"parent_id": cause["message_id"], "correlation_id": cause["correlation_id"]}
        return request(at, draw(st.sampled_from([5000, None, 600_000])), **fields, **chain)

    def _answer(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        asked = self._some(draw, [row for row in self.rows if row["kind"] == "request"])
        if asked is None:
            return self._orphan(draw, at, fields)
        position = asked["sequence"]
        late = fields["time_us"] > asked["time_us"] + (asked["timeout_ms"] or 5000) * 1000
        verdict = "duplicate" if position in self.answered else "late" if late else None
        error = verdict or draw(st.sampled_from([None, None, "NO_PRICE"]))
        hops = [{"sid": "a", "rid": "b", "mid": "m", "tms": [1, 2, 5]}]
        given = answer(
            at, position, **fields, message_id=asked["message_id"], correlation_id=asked["correlation_id"],
            error=error, hops=hops,
        )  # fmt: skip
        self.answered.setdefault(position, given)
        return given

    def _orphan(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        return answer(at, None, **fields, correlation_id=draw(st.sampled_from(["lost", "a"])))

    def _named(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        return message(at, **fields, attributes={"x-dedup-id": draw(st.sampled_from("xy"))})

    def _typed(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        one, two = datum(V1, {"id": at}), datum(V2, {"id": at, "note": "n"})
        number, payload = draw(st.sampled_from([(1, one), (2, two), (1, two), (None, one), (None, two), (9, one)]))
        if draw(st.booleans()):
            return message(at, **fields, payload=framed(number or 1, payload))
        return message(at, **fields, schema_id=1, schema_version=number, payload=payload)

    def _refused(self, draw: st.DrawFn, at: int, fields: dict[str, Any]) -> Row:
        facts = {"topic": "orders", "code": "payload_invalid", "subject": "subject-1", "version": "1"}
        return message(at, **fields, topic="raceway.rejected", attributes=facts)

    @staticmethod
    def _some(draw: st.DrawFn, rows: list[Row]) -> Row | None:
        return draw(st.sampled_from(rows)) if rows else None


@st.composite
def worlds(draw: st.DrawFn, most: int = 40) -> list[Row]:
    """Never the simplest one, which hypothesis tries first: twenty like messages in one moment prove little."""
    assume(draw(st.booleans()))
    world = _World()
    for _ in range(draw(st.integers(most // 2, most))):
        world.add(draw)
    return world.rows


def shop(rounds: int) -> Iterator[Row]:
    """An everyday world: five rows a round, a quarter of an hour apart, of which every table gets some."""
    for number in range(rounds):
        at, time_us = 5 * number, START_US + number * 900 * SECOND_US
        yield message(at, time_us=time_us, producer="shop")
        yield message(at + 1, time_us=time_us + 1, parent_id=f"m{at}", correlation_id=f"m{at}", topic="orders.paid")
        yield request(at + 2, time_us=time_us + 2, producer="shop")
        answered = answer(at + 3, at + 2, time_us=time_us + 500, producer="desk", correlation_id=f"m{at + 2}")
        yield answered | {"hops": (Hop("a", "b", "m", (1, 2, 5)),)}
        refused = {"topic": "orders", "code": "payload_invalid", "subject": "subject-1", "version": "1"}
        typed = {"topic": "typed", "schema_id": 1, "schema_version": 1, "payload": datum(V1, {"id": number})}
        more = {"topic": "raceway.rejected", "attributes": refused} if number % 2 else typed
        yield message(at + 4, time_us=time_us + 3, **more)
