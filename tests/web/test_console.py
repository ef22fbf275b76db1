from __future__ import annotations

import gzip
import re

import pytest
from starlette.applications import Starlette

from raceway.web.app import build_app
from raceway.web.console import FOR_EVER, files
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import ask


@pytest.fixture(scope="module")
def app() -> Starlette:
    return build_app(DOOR(Bench().broker), ())


def test_the_page_and_all_its_files_are_there(app: Starlette) -> None:
    assert ask(app, "/").body == files()["index.html"].content
    for name, file in files().items():
        answer = ask(app, f"/console/{name}")
        assert (answer.status, answer.body) == (200, file.content)
    assert ask(app, "/console/app.js").headers["content-type"].startswith("text/javascript")


def test_the_page_names_files_that_a_browser_keeps_for_ever(app: Starlette) -> None:
    page = ask(app, "/")
    assert page.headers["cache-control"] == "no-cache", "a new release must be visible at once"
    named = re.findall(r'(?:href|src)="(/console/[^"]+)"', page.body.decode())
    assert len({name.split("/")[2] for name in named}) == 1
    for name in named:
        answer = ask(app, name)
        assert (answer.status, answer.headers["cache-control"]) == (200, FOR_EVER)
        assert answer.body == files()[name.split("/", 3)[3]].content
    assert ask(app, f"/console/{'0' * 20}/app.js").status == 404, "of another release"


def test_files_are_compressed_for_those_who_accept_it(app: Starlette) -> None:
    plain, packed = (ask(app, "/console/app.js", headers={"Accept-Encoding": given}) for given in ("br", "br, gzip"))
    assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
    assert gzip.decompress(packed.body) == plain.body == files()["app.js"].content
    assert len(packed.body) < len(plain.body) / 2


def test_a_file_that_did_not_change_is_not_sent_again(app: Starlette) -> None:
    etag = ask(app, "/console/style.css").headers["etag"]
    again = ask(app, "/console/style.css", headers={"If-None-Match": etag})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["none.js", "../app.py", "..%2Fapp.py", "/etc/passwd", ""])
def test_only_files_of_the_folder_are_sent(app: Starlette, name: str) -> None:
    answer = ask(app, f"/console/{name}")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["/", "/console/app.js", "/api/overview", "/healthz", "/nothing"])
def test_every_answer_says_what_a_browser_must_not_do(app: Starlette, path: str) -> None:
    headers = ask(app, path).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
