"""Options of `format("raceway")`: parsed once, with errors that name the option."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from raceway.errors import ConfigError
from raceway.journal.read.reader import Reader
from raceway.pipeline.scan import Selection, first_at

EARLIEST, LATEST = "earliest", "latest"
NAMES = (
    "path", "topics", "wires", "includeControl", "startingPosition", "startingTimestamp", "endingPosition",
    "endingTimestamp", "maxRecordsPerTrigger", "maxBytesPerTrigger", "numPartitions", "failOnDataLoss", "pushFilters",
)  # fmt: skip
_INTERNAL = ("alignTo", "stageTo")
_KNOWN = {name.lower() for name in (*NAMES, *_INTERNAL)}


@dataclass(frozen=True)
class SourceOptions:
    """Parsed options. Pickled with the readers, so plain values only."""

    path: str
    selection: Selection
    starting_position: int | str | None
    starting_us: int | None
    ending_position: int | str | None
    ending_us: int | None
    max_records: int | None
    max_bytes: int | None
    partitions: int | None
    fail_on_data_loss: bool
    push_filters: bool
    # Internal: a batch of more positions than this ends at a multiple of it.
    align_to: int | None
    # Internal: write the rows of each range to a Parquet file in this folder and pass only its name to Spark.
    stage_to: str | None

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def first(self, reader: Reader) -> int:
        """The first position to read."""
        if self.starting_us is not None:
            return first_at(reader, self.starting_us)
        if self.starting_position is None or self.starting_position == EARLIEST:
            return reader.first_position()
        return reader.committed() + 1 if self.starting_position == LATEST else int(self.starting_position)

    def end(self, reader: Reader) -> int:
        """The first position that a batch does not read."""
        end = reader.committed() + 1
        if self.ending_us is not None:
            return first_at(reader, self.ending_us)
        return end if self.ending_position in (None, LATEST) else min(end, int(str(self.ending_position)))


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Parse Spark's options; keys are case-insensitive. Raises ConfigError naming the invalid one."""
    found = {key.lower(): value for key, value in options.items()}
    _check_names(options)
    path = found.get("path")
    if not path:
        raise ConfigError("path", 'is missing: name the data folder of the bus with .option("path", DIR) or .load(DIR)')
    if "startingposition" in found and "startingtimestamp" in found:
        raise ConfigError("startingTimestamp", "startingPosition is set too: choose one of them")
    if "endingposition" in found and "endingtimestamp" in found:
        raise ConfigError("endingTimestamp", "endingPosition is set too: choose one of them")
    return SourceOptions(
        path=path.removeprefix("file://"),
        selection=Selection(
            topics=_names(found.get("topics")),
            wires=_names(found.get("wires")),
            with_control=_flag(found, "includeControl", False),
        ),
        starting_position=_maybe_position(found, "startingPosition", (EARLIEST, LATEST)),
        starting_us=_maybe_time_us(found, "startingTimestamp"),
        ending_position=_maybe_position(found, "endingPosition", (LATEST,)),
        ending_us=_maybe_time_us(found, "endingTimestamp"),
        max_records=_maybe_count(found, "maxRecordsPerTrigger"),
        max_bytes=_maybe_count(found, "maxBytesPerTrigger"),
        partitions=_maybe_count(found, "numPartitions"),
        fail_on_data_loss=_flag(found, "failOnDataLoss", True),
        push_filters=_flag(found, "pushFilters", False),
        align_to=_maybe_count(found, "alignTo"),
        stage_to=found.get("stageto"),
    )


def _check_names(options: Mapping[str, str]) -> None:
    """Raise ConfigError for an unknown option: ignoring it would return rows that were not asked for."""
    for key in options:
        if key.lower() not in _KNOWN:
            spelled = {name.lower(): name for name in NAMES}
            near = difflib.get_close_matches(key.lower(), spelled, 1)
            hint = f"did you mean {spelled[near[0]]}?" if near else f"known options: {', '.join(NAMES)}"
            raise ConfigError(key, f"unknown option; {hint}")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(name, f"must be true or false, not {text!r}")
    return text == "true"


def _maybe_count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdigit() or int(text) == 0:
        raise ConfigError(name, f"must be a whole number above 0, not {text!r}")
    return int(text)


def _maybe_position(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> int | str | None:
    text = options.get(name.lower())
    if text is None or text.lower() in words:
        return None if text is None else text.lower()
    if not text.isdigit():
        raise ConfigError(name, f"must be {', '.join(words)} or a position, not {text!r}")
    return int(text)


def _maybe_time_us(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if text.isdigit():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            name, f"must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {text!r}"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
