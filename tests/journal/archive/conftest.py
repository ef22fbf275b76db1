from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.rigs.archives import PLACES, Place, places


@pytest.fixture(scope="session")
def make_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Place]]:
    with places(tmp_path_factory) as make:
        yield make


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, make_place: Callable[[str, str], Place]) -> Place:
    return make_place(request.param, "journal")


@pytest.fixture
def folder_place(make_place: Callable[[str, str], Place]) -> Place:
    return make_place("folder", "journal")
