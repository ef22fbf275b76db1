"""The page on conversions says what the code does: change the code, and it says something else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from docs.generate.conversions import WIRES, conversions_page
from docs.generate.seneca_dialects import DIALECTS
from raceway.net.codec import cloudevents, http_message
from raceway.wires.danube.codec import rows as danube_rows
from raceway.wires.seneca.codec import call as seneca_call
from raceway.wires.seneca.codec import request as seneca_request
from raceway.wires.zbus.codec import rows as zbus_rows


def cell(page: str, section: str, column: str, wire: str, heads: Sequence[str] = WIRES) -> str:
    part = page.split(f"## {section}\n")[1].split("\n## ")[0].split("\n### ")[0]
    row = next((line for line in part.splitlines() if line.startswith(f"| `{column}` |")), None)
    return "" if row is None else row.split(" | ")[1 + heads.index(wire)].removesuffix(" |").strip()


def dialect_cell(page: str, column: str, dialect: str) -> str:
    return cell(
        page.replace("### The dialects", "## The dialects"), "The dialects of Seneca", column, dialect, DIALECTS
    )


INTO, OUT_OF = "From a wire into the row", "From the row to another wire"


def test_the_page_tells_where_things_go() -> None:
    page = conversions_page()
    assert cell(page, INTO, "parent_id", "MB") == "parentId"
    assert cell(page, INTO, "routing_key", "zbus") == "`routing-key`"
    assert cell(page, INTO, "correlation_id", "Danube") == "attribute `x-correlation-id`"
    assert cell(page, OUT_OF, "correlation_id", "Seneca") == "`cid`"
    assert cell(page, OUT_OF, "offset", "Danube") == "`topic_offset`"
    assert cell(page, OUT_OF, "parent_id", "MB") == ""


def test_the_page_tells_where_seneca_says_what_came_before_and_where_to_answer() -> None:
    page = conversions_page()
    assert cell(page, INTO, "parent_id", "Seneca") == "`mid` of the `trk` entry before its own"
    assert cell(page, INTO, "reply_to", "Seneca") == "`rtn.urn`"
    assert cell(page, INTO, "sent_ms", "Seneca") == "`tms[0]` of its own `trk` entry"
    assert dialect_cell(page, "sent_ms", "L") == "header `seneca-time-client-sent`"
    assert dialect_cell(page, "parent_id", "W") == "`id` of the first of `parents`"
    assert dialect_cell(page, "timeout_ms", "S") == ""


@pytest.mark.parametrize(
    ("table", "key", "value", "column", "wire"),
    [
        (zbus_rows._EACH, b"routing-key", "parent_id", "parent_id", "zbus"),
        (http_message.HEADERS, "x-parent-id", "routing_key", "parent_id", "HTTP"),
        (cloudevents.COLUMNS, "partitionkey", "parent_id", "routing_key", "CloudEvents"),
    ],
)
def test_another_mapping_is_another_page(
    monkeypatch: pytest.MonkeyPatch, table: dict[object, object], key: object, value: object, column: str, wire: str
) -> None:
    before = cell(conversions_page(), INTO, column, wire)
    monkeypatch.setitem(table, key, value)
    assert cell(conversions_page(), INTO, column, wire) != before


def test_another_attribute_is_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = conversions_page()
    monkeypatch.setattr(danube_rows, "CORRELATION", "other")
    changed = conversions_page()
    assert cell(changed, INTO, "correlation_id", "Danube") != cell(before, INTO, "correlation_id", "Danube")


def test_other_names_of_seneca_are_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = conversions_page()
    monkeypatch.setattr(seneca_call, "maybe_own", lambda hops, mid: 0)
    assert cell(conversions_page(), INTO, "parent_id", "Seneca") != cell(before, INTO, "parent_id", "Seneca")
    monkeypatch.setattr(seneca_request, "maybe_text", lambda value: None)
    assert cell(conversions_page(), INTO, "reply_to", "Seneca") != cell(before, INTO, "reply_to", "Seneca")
