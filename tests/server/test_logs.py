from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from raceway import config
from raceway.server import logs


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
    logging.basicConfig(force=True)


def configured(**settings: str) -> io.StringIO:
    stream = io.StringIO()
    logs.configure(config.Log(**settings), stream)  # type: ignore[arg-type]
    return stream


def test_records_are_json_lines_where_there_is_no_terminal() -> None:
    stream = configured()
    structlog.get_logger().warning("connection closed", peer="127.0.0.1:5")
    record = json.loads(stream.getvalue())
    assert (record["event"], record["level"], record["peer"]) == ("connection closed", "warning", "127.0.0.1:5")
    assert record["timestamp"].endswith("Z")


def test_text_can_be_asked_for() -> None:
    stream = configured(format="text")
    structlog.get_logger().info("opened")
    assert "opened" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_records_below_the_level_are_left_out() -> None:
    stream = configured(level="warning")
    structlog.get_logger().info("small talk")
    structlog.get_logger().error("trouble")
    assert "small talk" not in stream.getvalue()
    assert "trouble" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_strangers_sent_cannot_break_out_of_its_record(form: str) -> None:
    stream = configured(format=form)
    structlog.get_logger().info("refused", topic="a\n\x1b[31mforged", bytes=b"\x1b" * 5000)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b[31m" not in stream.getvalue()
    assert len(stream.getvalue()) < 5 * logs.MAX_VALUE


def test_records_of_libraries_take_the_same_shape() -> None:
    stream = configured()
    logging.getLogger("asyncio").error("task %s died", "x")
    logging.getLogger("uvicorn").info("too much detail")
    record = json.loads(stream.getvalue())
    assert (record["event"], record["level"]) == ("task x died", "error")


def test_a_traceback_stays_in_its_record() -> None:
    stream = configured()
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "ValueError: why" in json.loads(stream.getvalue())["exception"]
