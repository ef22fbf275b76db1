"""HTTP/2 conformance of the gRPC door, judged by h2spec, all of its cases, plain and inside TLS.

No exception is made. The door answers what is no call (h2spec asks with GET and POST of its own) with a short text, so
that the cases about windows have a body to look at.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
import trustme

from tests.rigs.grpc_door import Certificate, Door, running_door
from tests.rigs.tools import h2spec

# How many cases this version of h2spec has, the stricter ones among them. Fewer would be a proof of less.
CASES = 146


@pytest.fixture(params=["plain", "tls"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Door, list[str]]]:
    if request.param == "plain":
        with running_door() as door:
            yield door, []
        return
    certificate = Certificate.issue(trustme.CA(), tmp_path_factory.mktemp("tls"))
    with running_door(certificate) as door:
        yield door, ["-t", "-k"]


@pytest.mark.timeout(400)
def test_every_case_of_h2spec_passes(door: tuple[Door, list[str]]) -> None:
    running, options = door
    command = [str(h2spec()), "-h", "127.0.0.1", "-p", str(running.port), "-o", "5", "--strict", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert re.search(rf"^{CASES} tests, {CASES} passed, 0 skipped, 0 failed$", done.stdout, re.MULTILINE), (
        done.stdout[-5000:] + done.stderr
    )
