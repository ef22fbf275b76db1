from __future__ import annotations

import gzip
import json

import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from raceway.web.packing import LEAST_BYTES, MOST_BYTES, Packing, takes_gzip
from tests.web.asgi import Answer, ask

FIGURES = {"rates": [0] * LEAST_BYTES}
GZIP = {"Accept-Encoding": "gzip, deflate"}


def answered(app: ASGIApp, path: str = "/api/x", headers: dict[str, str] | None = None) -> Answer:
    return ask(Packing(app), path, headers=GZIP if headers is None else headers)


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("*", True), ("", False), ("br", False), ("gzip;q=0, br", False),
     ("gzip; q=0.0", False), ("x-gzip", False)],
)  # fmt: skip
def test_gzip_is_taken_by_those_who_say_so(accepted: str, taken: bool) -> None:
    assert takes_gzip(accepted) is taken


def test_figures_of_the_api_are_compressed() -> None:
    plain, packed = answered(JSONResponse(FIGURES), headers={}), answered(JSONResponse(FIGURES))
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(packed.body) < len(plain.body) / 5
    assert json.loads(gzip.decompress(packed.body)) == FIGURES


def test_messages_over_http_are_sent_as_they_are() -> None:
    assert "content-encoding" not in answered(JSONResponse(FIGURES), "/topics/orders").headers


@pytest.mark.parametrize("size", [0, LEAST_BYTES - 3, MOST_BYTES - 1])
def test_what_is_too_small_or_too_large_is_left(size: int) -> None:
    answer = answered(JSONResponse("a" * size))
    assert "content-encoding" not in answer.headers
    assert answer.json() == "a" * size


def test_limits_of_the_size() -> None:
    for size in (LEAST_BYTES, MOST_BYTES):
        assert answered(JSONResponse("a" * (size - 2))).headers["content-encoding"] == "gzip"


def test_other_texts_are_left() -> None:
    assert "content-encoding" not in answered(PlainTextResponse("a" * 5000)).headers


async def in_two_pieces(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"6002")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"[" + b"1," * 3000, "more_body": True})
    await send({"type": "http.response.body", "body": b"1]", "more_body": False})


def test_an_answer_in_pieces_is_left() -> None:
    answer = answered(in_two_pieces)
    assert "content-encoding" not in answer.headers
    assert len(answer.json()) == 3001
