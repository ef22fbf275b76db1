"""The gRPC door under `@grpc/grpc-js`, the client of Node, on Node's own HTTP/2."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.rigs.grpc_door import NO_TLS, Certificate, running_door
from tests.rigs.tools import HERE, INSTALL_S, grpc_js, installed

RUN_S = 60


@pytest.mark.timeout(3 * INSTALL_S + RUN_S)
@pytest.mark.parametrize("secure", [False, True])
def test_the_client_of_node(secure: bool, tmp_path: Path) -> None:
    folder, node = grpc_js(), installed("node", "nodejs")
    shutil.copy(HERE / "grpc_js" / "client.js", folder)
    certificate = Certificate.issue(trustme.CA(), tmp_path) if secure else NO_TLS
    with running_door(certificate) as door:
        command = [node, str(folder / "client.js"), door.address, certificate.authority]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["sizes"] == [0, 10, 70_000, 3_000_000]
    assert seen["many"] == [f"call {number}" for number in range(1000)]
    assert seen["fail"] == {"code": 7, "details": "50 % grün"}
    assert seen["unknown"]["code"] == 12
    assert (seen["large"]["code"], seen["deadline"]["code"]) == (3, 4)
    assert sorted(seen["metadata"]) == [["trace-bin", "0102ff"], ["x-name", "value"]]
    assert seen["count"] == list(range(5000))
    assert (seen["wide"], seen["chat"], seen["cancelled"]) == (4, ["one", "", "three"], 1)
