"""Options of `format("raceway")`: parsed once, with errors that name the option."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from raceway.errors import ConfigError
from raceway.journal.archive.reader import AnyReader
from raceway.pipeline.scan import Selection, first_at

T = TypeVar("T")

EARLIEST, LATEST = "earliest", "latest"
NAMES = (
    "path", "topics", "wires", "includeControl", "startingPosition", "startingTimestamp", "endingPosition",
    "endingTimestamp", "maxRecordsPerTrigger", "maxBytesPerTrigger", "numPartitions", "failOnDataLoss", "pushFilters",
)  # fmt: skip
_KNOWN = {name.lower() for name in NAMES}


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

    @property
    def folder(self) -> Path:
        return Path(self.path)

    def first(self, reader: AnyReader) -> int:
        """The first position to read."""
        if self.starting_us is not None:
            return first_at(reader, self.starting_us)
        if self.starting_position is None or self.starting_position == EARLIEST:
            return reader.first_position()
        return reader.committed() + 1 if self.starting_position == LATEST else int(self.starting_position)

    def end(self, reader: AnyReader) -> int:
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
    for side in ("starting", "ending"):
        if f"{side}position" in found and f"{side}timestamp" in found:
            raise ConfigError(f"{side}Timestamp", f"{side}Position is set too: choose one of them")
    selection = Selection(_names(found.get("topics")), with_control=_flag(found, "includeControl", False))
    wires = _names(found.get("wires"))
    return SourceOptions(
        path=path.removeprefix("file://"),
        selection=selection.narrowed("wire", wires) if wires else selection,
        starting_position=_maybe(found, "startingPosition", _position),
        starting_us=_maybe(found, "startingTimestamp", _time_us),
        ending_position=_maybe(found, "endingPosition", _position),
        ending_us=_maybe(found, "endingTimestamp", _time_us),
        max_records=_maybe(found, "maxRecordsPerTrigger", _count),
        max_bytes=_maybe(found, "maxBytesPerTrigger", _count),
        partitions=_maybe(found, "numPartitions", _count),
        fail_on_data_loss=_flag(found, "failOnDataLoss", True),
        push_filters=_flag(found, "pushFilters", False),
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


def _maybe(options: Mapping[str, str], name: str, read: Callable[[str, str], T]) -> T | None:
    """The value of an option, which `read` makes of its name and text; None if it is not set."""
    text = options.get(name.lower())
    return None if text is None else read(name, text)


def _count(name: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise ConfigError(name, f"must be a whole number above 0, not {text!r}")
    return int(text)


def _position(name: str, text: str) -> int | str:
    words = (EARLIEST, LATEST) if name == "startingPosition" else (LATEST,)
    if text.lower() in words:
        return text.lower()
    if not text.isdigit():
        raise ConfigError(name, f"must be {', '.join(words)} or a position, not {text!r}")
    return int(text)


def _time_us(name: str, text: str) -> int:
    if text.isdigit():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            name, f"must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970, not {text!r}"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000_000)
