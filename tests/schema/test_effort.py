from __future__ import annotations

import pytest

from raceway.schema.effort import STEPS, Comparison, Effort, TooIntricateError


def test_a_budget_ends() -> None:
    effort = Effort()
    for _ in range(STEPS):
        effort.spend()
    with pytest.raises(TooIntricateError):
        effort.spend()


class _Telling(Comparison):
    """A comparison of texts: those that differ are not compatible."""

    def _compare(self, reader: str, writer: str, path: str) -> list[str]:
        return [] if reader == writer else ["differs"]


def test_a_trial_sees_only_what_is_compatible_around_it() -> None:
    around = _Telling(Effort())
    same, other = "same", "other"
    assert around.compare(same, same, "") == []
    assert around.compare(same, other, "") == ["differs"]
    trial = _Telling(Effort(), around)
    assert trial.maybe_known((id(same), id(same))) == []
    unknown = trial.maybe_known((id(same), id(other)))
    assert unknown is None, "it may be compatible under the assumptions of the trial"
    trial.compare(other, other, "")
    assert around.maybe_known((id(other), id(other))) is None
