"""Settings for all tests: hypothesis without a deadline (shared machines), no silent skips where it counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.groups import group_of, rank_of
from tests.rigs.rounds import SOAKING
from tests.tiers import is_slow, is_verb

# Few examples in `make test`, many in `make soak`.
EXAMPLES = 200 if SOAKING else 50
settings.register_profile("default", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")

# A shell without job control starts what runs in its background deaf to Ctrl-C, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A command that lowers its priority, called by a test in this process, would slow down all tests that follow.
os.nice = lambda by: by

# On the server a test that cannot run is a failure: a missing tool must not pass for a proof.
SKIPS_FAIL = os.environ.get("CI") == "true"


# The few that may: what they need comes from a place that not every server can reach.
MAY_SKIP = "may_skip"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MAY_SKIP}(reason): a skip is no failure, also with CI=true")
    config.addinivalue_line("markers", "slow: run by `make test-slow`; see tests/tiers.py")
    config.addinivalue_line("markers", "verbs: run again by `make test-delayed`; see tests/tiers.py")


class ByGroup(LoadScopeScheduling):  # type: ignore[misc] # its base has no types
    """Hand out whole groups to workers."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByGroup:
    config.option.loadscopereorder = False  # keep the order of `pytest_collection_modifyitems`
    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank_of(item.nodeid))
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker("slow")
        if is_verb(item.nodeid):
            item.add_marker("verbs")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if SKIPS_FAIL and report.skipped and not hasattr(report, "wasxfail") and not item.get_closest_marker(MAY_SKIP):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if SKIPS_FAIL and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.outcome = "failed"
    report.longrepr = f"skipped, which fails with CI=true: {report.longrepr}"
