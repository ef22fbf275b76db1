"""What intents and outcomes are made of."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

R = TypeVar("R")


class IntentFor(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A small intent whose outcome is an `R`."""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an intent."""


class Done(Outcome, frozen=True):
    """Success. `changed` is False if the call was a no-op."""

    changed: bool = True
