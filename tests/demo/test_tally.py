from __future__ import annotations

import asyncio

import pytest

from raceway.demo.tally import NOBODY, Tally
from raceway.errors import RacewayError, RemoteError, RequestTimeoutError


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (None, ("mb", "zbus", "answered")),
        (RemoteError("500", "broken"), ("mb", "zbus", "error")),
        (RemoteError("action_timeout", "late"), ("mb", NOBODY, "timeout")),
        (RequestTimeoutError("a", "b"), ("mb", NOBODY, "timeout")),
    ],
)
def test_the_outcome_of_a_request_is_counted(error: RacewayError | None, counted: tuple[str, str, str]) -> None:
    tally = Tally()

    async def answer() -> str:
        if error is not None:
            raise error
        return "yes"

    async def scene() -> None:
        if error is None:
            assert await tally.ask("mb", "zbus", answer()) == "yes"
            return
        with pytest.raises(type(error)):
            await tally.ask("mb", "zbus", answer())

    asyncio.run(scene())
    assert dict(tally.asked) == {counted: 1}
    assert tally.as_dict()["asked"] == [
        dict(zip(("asking", "answering", "status"), counted, strict=True)) | {"count": 1}
    ]
