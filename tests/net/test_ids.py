from __future__ import annotations

import re

from raceway.net.ids import random_id

UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_random_ids_are_uuids_of_version_4() -> None:
    ids = [random_id() for _ in range(2000)]
    assert all(UUID4.fullmatch(one) for one in ids)
    assert len(set(ids)) == 2000
    assert {one[19:20] for one in ids} == {b"8", b"9", b"a", b"b"}, "all variants are used"
