"""With CI=true a test that cannot run is a failure: otherwise a missing tool would pass for a proof."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SKIPS = {
    "test_inside.py": "import pytest\ndef test_x() -> None:\n    pytest.skip('no tool')\n",
    "test_mark.py": "import pytest\n@pytest.mark.skip(reason='no tool')\ndef test_x() -> None: ...\n",
    "test_allowed.py": (
        "import pytest\n@pytest.mark.may_skip('far away')\ndef test_x() -> None:\n    pytest.skip('not there')\n"
    ),
    "test_module.py": "import pytest\npytest.importorskip('no_such_module')\ndef test_x() -> None: ...\n",
}


@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 failed, 1 skipped, 2 errors"), ("", "4 skipped")])
def test_skips_fail_only_on_the_server(tmp_path: Path, ci: str, outcome: str) -> None:
    for name, code in SKIPS.items():
        (tmp_path / name).write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "--continue-on-collection-errors"]
    env = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1].startswith(outcome)
