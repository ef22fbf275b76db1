from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from raceway.journal.contract import Health
from raceway.web.metrics import COUNTERS, exposition
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message, new_id

Sample = tuple[str, tuple[tuple[str, str], ...]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def scraped(bench: Bench) -> dict[Sample, float]:
    bench.loop.settle()
    families = text_string_to_metric_families(exposition(DOOR(bench.broker).view).decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def plain(bench: Bench) -> dict[str, float]:
    return {name: value for (name, labels), value in scraped(bench).items() if not labels}


def test_a_quiet_bus_shows_every_counter_at_zero(bench: Bench) -> None:
    found = plain(bench)
    assert {name: found[f"raceway_{name}_total"] for name in COUNTERS} == dict.fromkeys(COUNTERS, 0)
    assert found["raceway_journal_committed_rows_total"] == 0
    assert found["raceway_journal_writable"] == 1


def test_messages_are_counted_by_wire_and_kind(bench: Bench) -> None:
    responder = bench.responder("r")
    bench.publish(bench.peer("a"), Message(b"a", b"123"), Message(b"b"))
    bench.publish(bench.exact_peer(), Message(b"a"))
    bench.request(bench.peer(), Message(b"r", id=new_id()))
    bench.respond(responder, Message(id=responder.masked))
    found = scraped(bench)
    kinds = {labels: value for (name, labels), value in found.items() if name == "raceway_messages_total"}
    assert kinds == {
        (("kind", "publish"), ("wire", "mb")): 2, (("kind", "publish"), ("wire", "zbus")): 1,
        (("kind", "request"), ("wire", "mb")): 1, (("kind", "response"), ("wire", "mb")): 1,
    }  # fmt: skip
    assert found["raceway_delivered_messages_total", ()] == 2
    assert found["raceway_unrouted_publishes_total", ()] == 1
    assert found["raceway_received_bytes_total", ()] == 3 + 4 * 2
    assert found["raceway_journal_committed_rows_total", ()] == 5


def test_answers_that_fail_are_counted_apart(bench: Bench) -> None:
    responder, asker = bench.responder("r"), bench.peer()
    bench.request(asker, *(Message(b"r", id=new_id(), timeout_ms=t) for t in (10, 5000, 5000)))
    bench.loop.advance(0.1)
    late, twice, broken = (request.forwarded_id for request, _ in responder.requests)
    bench.respond(responder, Message(id=late), Message(id=twice), Message(id=twice), Message(id=new_id()))
    bench.respond(responder, Message(id=broken), error=[b"BROKEN"])
    found = plain(bench)
    wanted = {
        "raceway_request_timeouts_total": 1, "raceway_late_answers_total": 1, "raceway_duplicate_answers_total": 1,
        "raceway_unknown_answers_total": 1, "raceway_failed_answers_total": 1, "raceway_evicted_requests_total": 0,
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_gauges_show_what_is_there_now(bench: Bench) -> None:
    bench.responder("r")
    bench.request(bench.peer(), Message(b"r", id=new_id()))
    found = plain(bench)
    assert (found["raceway_peers"], found["raceway_topics"], found["raceway_open_requests"]) == (2, 1, 1)
    bench.loop.advance(10)
    assert plain(bench)["raceway_open_requests"] == 0


def test_a_journal_in_trouble_is_seen(bench: Bench) -> None:
    bench.journal.refuse_writes()
    assert plain(bench)["raceway_journal_writable"] == 0


def test_figures_of_the_journal_are_there(bench: Bench) -> None:
    bench.publish(bench.peer(), Message())
    found = plain(bench)
    assert found["raceway_journal_rows"] == 1
    assert found["raceway_journal_segments"] == 1
    assert found["raceway_journal_unsynced_bytes"] == 0
    assert found["raceway_journal_quarantined_rows"] == 0
    assert "raceway_journal_committed" not in found, "it is told as a counter"


def test_labels_do_not_grow_with_peers_topics_or_ids(bench: Bench) -> None:
    bench.publish(bench.peer("#"), Message(b"first"))
    before = set(scraped(bench))
    for number in range(10):
        bench.publish(bench.peer("#"), Message(b"t%d" % number, id=new_id()))
    assert set(scraped(bench)) == before


# What Prometheus asks of names: no abbreviated unit as a word of one, base units only, `_total` for counters alone.
ABBREVIATED = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
NOT_BASE = {
    "milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "bits", "kilobytes", "megabytes",
    "kibibytes", "mebibytes", "percent",
}  # fmt: skip


def test_names_have_base_units_in_full(bench: Bench) -> None:
    bench.loop.settle()
    families = list(text_string_to_metric_families(exposition(DOOR(bench.broker).view).decode()))
    assert len(families) > len(COUNTERS)
    for family in families:
        words = family.name.split("_")
        assert not (ABBREVIATED | NOT_BASE) & set(words), family.name
        assert re.fullmatch(r"raceway(_[a-z]+)+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert {sample.name.endswith("_total") for sample in family.samples} <= {family.type == "counter"}, family.name
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name


def test_times_of_syncs_are_in_seconds(bench: Bench) -> None:
    bench.broker.journal.health = lambda: Health(status="ok", last_sync_us=1500, slowest_sync_us=2_000_000)  # type: ignore[method-assign]
    found = plain(bench)
    assert found["raceway_journal_last_sync_seconds"] == 0.0015
    assert found["raceway_journal_slowest_sync_seconds"] == 2
    assert not [name for name in found if name.endswith("_us")]
