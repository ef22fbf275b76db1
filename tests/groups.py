"""Which tests one worker runs one after the other, and in which order workers are given them. An entry is the beginning
of test ids.
"""

from __future__ import annotations

# Tests that share something costly run in one worker: a JVM, a browser, the pages of the manual. These take longest, so
# they begin first, in this order; otherwise one worker would be left alone with them at the end.
GROUPS = {
    "tests/pipeline/": "spark",
    "tests/test_docs.py": "manual",
    "tests/cli/test_pipeline.py": "pipeline commands",
    "tests/end_to_end/test_console": "chromium",
    "tests/test_site.py": "chromium",
    "tests/cluster/": "cluster",
    "tests/mirror/": "mirror",
}
_FIRST = {group: rank for rank, group in enumerate(dict.fromkeys(GROUPS.values()))}
# Long tests that share nothing with others of their file: any worker takes the next one. They come last, so that all
# workers end at nearly the same time.
SINGLE = (
    "tests/recovery/test_danube_kill.py", "tests/recovery/test_folder_watch.py", "tests/recovery/test_kill.py",
    "tests/recovery/test_lost_segments.py", "tests/recovery/test_zbus_kill.py", "tests/server/test_lifeline.py",
    "tests/sim/test_histories.py", "tests/sim/test_planted.py",
)  # fmt: skip


def group_of(test_id: str) -> str:
    """The group of a test; where it shares nothing costly its file, or itself."""
    if is_single(test_id):
        return test_id
    path = test_id.partition("::")[0]
    return next((group for prefix, group in GROUPS.items() if path.startswith(prefix)), path)


def is_single(test_id: str) -> bool:
    """Whether a test is handed out by itself."""
    return test_id.startswith(SINGLE)


def rank_of(test_id: str) -> int:
    """The rank of a test by which tests are sorted."""
    if is_single(test_id):
        return len(_FIRST) + 1
    return _FIRST.get(group_of(test_id), len(_FIRST))
