from __future__ import annotations

import pytest

from raceway.model.envelope import DANUBE, MB, SENECA, ZBUS
from raceway.model.wires import spelling_key


@pytest.mark.parametrize(
    ("wire", "key"), [(MB, "mb.topic"), (DANUBE, "danube.topic"), (ZBUS, "zbus.mq"), (SENECA, "seneca.topic")]
)
def test_stored_rows_keep_the_attribute_under_which_a_wire_spells_a_name(wire: bytes, key: str) -> None:
    assert spelling_key(wire) == key
