"""What real npm Seneca says about patterns: its language, its router, its canonical text."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from tests.rigs.node_peers import PACKAGES, installed

ANSWER_S = 60


def ask_node(**asked: Any) -> dict[str, list[Any]]:
    """`texts`, `routers`, `pins`: see `npm/patterns.js`. One start of Node for all."""
    # Node looks for packages upwards from the program's own folder.
    program = shutil.copy(PACKAGES / "patterns.js", installed())
    done = subprocess.run(
        ["node", program], input=json.dumps(asked).encode(), capture_output=True, timeout=ANSWER_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    said: dict[str, list[Any]] = json.loads(done.stdout)
    return said
