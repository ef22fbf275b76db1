"""The page on conversions says what the code does: change the code, and it says something else."""

from __future__ import annotations

import pytest

from docs.conversions import WIRES, conversions_page
from raceway.codec import cloudevents, danube_rows, http_message, zbus_encode, zbus_rows


def cell(page: str, section: str, column: str, wire: str) -> str:
    part = page.split(f"## {section}")[1].split("\n## ")[0]
    row = next((line for line in part.splitlines() if line.startswith(f"| `{column}` |")), None)
    return "" if row is None else row.split(" | ")[1 + WIRES.index(wire)].removesuffix(" |").strip()


INTO, OUT_OF = "From a wire into the row", "From the row to another wire"


def test_the_page_tells_where_things_go() -> None:
    page = conversions_page("")
    assert cell(page, INTO, "parent_id", "MB") == "parentId"
    assert cell(page, INTO, "routing_key", "zbus") == "`routing-key`"
    assert cell(page, INTO, "correlation_id", "Danube") == "attribute `x-correlation-id`"
    assert cell(page, OUT_OF, "correlation_id", "Seneca") == "`cid`"
    assert cell(page, OUT_OF, "offset", "Danube") == "`topic_offset`"
    assert cell(page, OUT_OF, "parent_id", "MB") == ""


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
    before = cell(conversions_page(""), INTO, column, wire)
    monkeypatch.setitem(table, key, value)
    assert cell(conversions_page(""), INTO, column, wire) != before


def test_another_attribute_or_status_is_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = conversions_page("")
    monkeypatch.setattr(danube_rows, "CORRELATION", "other")
    changed = conversions_page("")
    assert cell(changed, INTO, "correlation_id", "Danube") != cell(before, INTO, "correlation_id", "Danube")
    monkeypatch.setitem(zbus_encode.ZBUS_STATUSES, "busy", 429)
    assert "| `busy` | SERVICE_UNAVAILABLE | 429 |" in conversions_page("")
