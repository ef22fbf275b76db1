"""The root of the error tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, dataclass_transform

V = TypeVar("V")


class RacewayError(Exception):
    """The base class of all errors that Raceway raises on purpose.

    `code` is stable and names the error on wires and in the journal. `retriable`: the same call may succeed later
    without any change. A class that names neither has those of its base.
    """

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: str = "", retriable: bool = False) -> None:
        cls.code = code or cls.code
        cls.retriable = retriable or cls.retriable

    @classmethod
    def maybe_entry(cls, table: Mapping[str, V]) -> V | None:
        """Return the entry for `code` in a table of a wire, otherwise that for the nearest base class, if any."""
        codes = (getattr(kind, "code", "") for kind in cls.__mro__)
        return next((table[code] for code in codes if code in table), None)


@dataclass_transform(eq_default=False)
class FactsError(Exception):
    """Mixin of errors whose facts are fields: arguments of the constructor, attributes, and `args`."""

    sentence: ClassVar[str] = "{reason}"
    """The text, with the names of fields in braces."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if get_annotations(cls) and "__init__" not in vars(cls):
            dataclass(eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        self.args = tuple(vars(self).values())

    def __str__(self) -> str:
        return self.sentence.format_map(vars(self))
