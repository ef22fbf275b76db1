from __future__ import annotations

import pytest

from raceway.schema.effort import STEPS, Compared, Effort, TooIntricateError


def test_a_budget_ends() -> None:
    effort = Effort()
    for _ in range(STEPS):
        effort.spend()
    with pytest.raises(TooIntricateError):
        effort.spend()


def test_a_trial_sees_only_what_is_compatible_around_it() -> None:
    around = Compared()
    around.note((1, 2), [])
    around.note((3, 4), ["differs"])
    trial = Compared(around)
    assert trial.maybe_known((1, 2)) == []
    assert trial.maybe_known((3, 4)) is None, "it may be compatible under the assumptions of the trial"
    trial.note((5, 6), [])
    assert around.maybe_known((5, 6)) is None
