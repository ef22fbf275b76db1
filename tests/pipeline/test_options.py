from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from raceway.errors import ConfigError
from raceway.journal.read.reader import Reader
from raceway.pipeline.options import parse
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Positions 50 to 149, ten microseconds apart."""
    return Reader(write_folder(tmp_path / "data", [rows(50, 60), rows(110, 40)]))


def test_without_more_than_a_path_everything_is_read(reader: Reader) -> None:
    options = parse({"path": "data"})
    assert (options.first(reader), options.end(reader)) == (50, 150)
    assert (options.max_records, options.max_bytes, options.partitions) == (None, None, None)
    assert options.fail_on_data_loss
    assert not options.push_filters
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_are_found_in_any_case_and_lists_are_parted_by_commas() -> None:
    options = parse(
        {"PATH": "file:///data", "Topics": "orders.#, stock.+ ,", "wIres": "mb,zbus", "INCLUDECONTROL": "TRUE"}
    )
    assert options.path == "/data"
    assert options.selection.topics == ("orders.#", "stock.+")
    assert options.selection.among == {"wire": {"mb", "zbus"}}
    assert options.selection.with_control


@pytest.mark.parametrize(
    ("given", "span"),
    [
        ({"startingPosition": "earliest"}, (50, 150)),
        ({"startingPosition": "latest"}, (150, 150)),
        ({"startingPosition": "70", "endingPosition": "90"}, (70, 90)),
        ({"startingPosition": "10", "endingPosition": "1000"}, (10, 150)),
        ({"endingPosition": "latest"}, (50, 150)),
        ({"startingTimestamp": "2023-11-14T22:13:20.001Z"}, (100, 150)),
        ({"startingTimestamp": "2023-11-14T22:13:20.001"}, (100, 150)),
        ({"startingTimestamp": "2023-11-14T23:13:20.001+01:00"}, (100, 150)),
        ({"startingTimestamp": "1700000000001"}, (100, 150)),
        ({"startingTimestamp": "2030-01-01"}, (150, 150)),
        ({"startingTimestamp": "1970-01-01", "endingTimestamp": "1700000000001"}, (50, 100)),
    ],
)
def test_where_a_read_begins_and_ends(reader: Reader, given: dict[str, str], span: tuple[int, int]) -> None:
    options = parse({"path": "data"} | given)
    assert (options.first(reader), options.end(reader)) == span


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "path"),
        ({"path": ""}, "path"),
        ({"path": "data", "startingPosition": "first"}, "startingPosition"),
        ({"path": "data", "startingPosition": "-1"}, "startingPosition"),
        ({"path": "data", "endingPosition": "earliest"}, "endingPosition"),
        ({"path": "data", "startingTimestamp": "noon"}, "startingTimestamp"),
        ({"path": "data", "startingTimestamp": "0", "startingPosition": "0"}, "startingTimestamp"),
        ({"path": "data", "endingTimestamp": "0", "endingPosition": "0"}, "endingTimestamp"),
        ({"path": "data", "maxRecordsPerTrigger": "0"}, "maxRecordsPerTrigger"),
        ({"path": "data", "maxBytesPerTrigger": "1 MB"}, "maxBytesPerTrigger"),
        ({"path": "data", "numPartitions": "two"}, "numPartitions"),
        ({"path": "data", "failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"path": "data", "pushFilters": "1"}, "pushFilters"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(given)
    assert refused.value.key == named


@pytest.mark.parametrize(
    ("given", "hint"),
    [("topic", "did you mean topics?"), ("startingposition_", "did you mean startingPosition?"),
     ("MAXRECORDS", "did you mean maxRecordsPerTrigger?"), ("zzz", "known options: path, topics, wires,")],
)  # fmt: skip
def test_a_name_that_no_option_has_is_refused_with_the_nearest(given: str, hint: str) -> None:
    with pytest.raises(ConfigError) as failure:
        parse({"path": "data", given: "orders.#"})
    assert failure.value.key == given
    assert hint in failure.value.reason
