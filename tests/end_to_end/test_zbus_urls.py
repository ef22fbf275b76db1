"""The bus by URL alone: curl and a browser, neither of which knows zbus."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs.server import Server, wait_until
from tests.rigs.tools import INSTALL_S, installed
from tests.rigs.zbus_wire import EVERY_BYTE, Client, Dial, fresh_name, zbus_port

CURL_S, BROWSER_S = 20, 60
# curl asks before it sends this much.
ONE_MIB = 1 << 20


@pytest.fixture
def address(server: Server) -> str:
    return f"http://127.0.0.1:{zbus_port(server)}"


def run_curl(*arguments: str) -> bytes:
    # `--noproxy`: the machine may have a proxy for the outside world.
    command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(CURL_S), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=CURL_S + 5).stdout


# ---- curl ------------------------------------------------------------------------------------------------------------


def test_curl_gets_the_page(address: str) -> None:
    assert b"<html" in run_curl(address + "/").lower()
    assert run_curl("--output", "/dev/null", "--write-out", "%{http_code} %{content_type}", address) == (
        b"200 text/html; charset=utf-8"
    )


def test_curl_produces_and_consumes(address: str, mq: str) -> None:
    acknowledged = run_curl(f"{address}/{mq}?cmd=produce&&msgid=aed14-2343-1dea0-32&&body=xxx%20yyy")
    assert (len(acknowledged), acknowledged.isdigit()) == (13, True)
    assert run_curl(f"{address}/{mq}?cmd=consume&&msgid=aed14-2343-1dea0-33") == b"xxx yyy"


def test_curl_uses_one_connection_for_several_urls(address: str, mq: str) -> None:
    urls = [f"{address}/{mq}?cmd=produce&body={letter}" for letter in "abc"] + [f"{address}/{mq}?cmd=consume"] * 3
    printed = run_curl("--write-out", "|%{num_connects}|", *urls).decode()
    assert printed.count("|1|") == 1
    assert printed.count("|0|") == 5
    assert printed.split("|")[6:12:2] == ["a", "b", "c"]


def test_curl_waits_for_a_message(address: str, mq: str, dial: Dial) -> None:
    command = ["curl", "--silent", "--noproxy", "*", "--max-time", str(CURL_S), f"{address}/{mq}?cmd=consume"]
    producer = dial()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as waiting:
        wait_until(lambda: producer.data()["mqTable"][mq]["consumerCount"] == 1, what="curl to wait")
        assert waiting.poll() is None
        producer.produce(mq, "at last")
        assert waiting.communicate(timeout=CURL_S)[0] == b"at last"


@pytest.mark.parametrize("size", [0, 1, 256, 2 * ONE_MIB])
def test_curl_posts_a_body_of_any_bytes(address: str, mq: str, tmp_path: Path, size: int) -> None:
    """Above one MiB curl first asks with `expect: 100-continue`."""
    body = (EVERY_BYTE * (size // 256 + 1))[:size]
    (tmp_path / "body").write_bytes(body)
    posted = run_curl("--verbose", "--data-binary", f"@{tmp_path / 'body'}", f"{address}/{mq}?cmd=produce")
    assert len(posted) == 13
    assert run_curl(f"{address}/{mq}?cmd=consume") == body


def test_curl_that_asks_first_is_told_to_continue_at_once(address: str, mq: str) -> None:
    expect = ("--header", "Expect: 100-continue", "--expect100-timeout", str(CURL_S - 1))
    took = run_curl(
        *expect, "--write-out", " %{time_total}", "--data-binary", "small", f"{address}/{mq}?cmd=produce"
    ).split()[1]
    assert float(took) < CURL_S / 4


def test_curl_is_told_that_a_body_is_too_large_before_it_sends_it(address: str, mq: str, tmp_path: Path) -> None:
    with (tmp_path / "body").open("wb") as file:
        file.truncate(64 * ONE_MIB + 1)
    command = ["--expect100-timeout", str(CURL_S - 1), "--write-out", "%{http_code} %{size_upload}"]
    command += ["--output", "/dev/null", "--upload-file", str(tmp_path / "body"), "--request", "POST"]
    assert run_curl(*command, f"{address}/{mq}?cmd=produce") == b"413 0"


def test_curl_asks_a_service(address: str, mq: str, dial: Dial) -> None:
    service = dial()
    for code in (200, 500):
        url = f"{address}/{mq}?cmd=request&&msgid=r-{code}&&body=1%2B1"
        command = ["curl", "--silent", "--noproxy", "*", "--max-time", str(CURL_S), "--write-out", " %{http_code}", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as asking:
            delivery = service.take(mq)
            assert delivery.body == b"1+1"
            service.answer(delivery, "two", reply_code=str(code))
            assert asking.communicate(timeout=CURL_S)[0] == b"two %d" % code


def test_curl_sees_refusals_as_http_status(address: str) -> None:
    def status(uri: str) -> bytes:
        return run_curl("--output", "/dev/null", "--write-out", "%{http_code}", address + uri)

    assert status(f"/{fresh_name()}?cmd=produce") == b"404"
    assert status("/?cmd=fly") == b"400"
    assert status("/?method=fly") == b"404"


# ---- a browser -------------------------------------------------------------------------------------------------------

Browse = Callable[[str], str]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    """Opens a URL in headless Chromium; the document that it ends up with."""
    browser = installed("chromium", "chromium")
    profile = tmp_path_factory.mktemp("profile")

    def open_url(url: str) -> str:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        command += ["--no-proxy-server", "--disable-background-networking", f"--user-data-dir={profile}"]
        command += ["--timeout=10000", "--dump-dom", url]
        env = os.environ | {"HOME": str(profile)}
        done = subprocess.run(command, check=True, capture_output=True, timeout=BROWSER_S, env=env)
        return done.stdout.decode()

    return open_url


@pytest.mark.timeout(2 * INSTALL_S + BROWSER_S)
def test_a_browser_shows_the_page(browse: Browse, address: str, mq: str) -> None:
    shown = browse(address + "/")
    assert mq in shown
    assert "<script" not in shown.lower()


@pytest.mark.timeout(2 * INSTALL_S + 2 * BROWSER_S)
def test_a_browser_produces_and_consumes(browse: Browse, address: str, mq: str) -> None:
    assert browse(f"{address}/{mq}?cmd=produce&&msgid=b-1&&body=from%20a%20browser")
    assert "from a browser" in browse(f"{address}/{mq}?cmd=consume&&msgid=b-2")


@pytest.mark.timeout(2 * INSTALL_S + BROWSER_S)
def test_a_message_runs_no_script_in_the_browser_that_opens_it(
    browse: Browse, address: str, mq: str, client: Client
) -> None:
    page = "<html><body>good<script>document.body.innerText = 'bad'</script></body></html>"
    client.produce(mq, page, encoding="utf-8", content_type="text/html")
    shown = browse(f"{address}/{mq}?cmd=consume")
    assert "good" in shown
    assert "<body>bad" not in shown


@pytest.mark.parametrize(("agent", "is_told"), [("Mozilla/5.0 (X11) Gecko/20100101", False), ("curl/8", True)])
def test_headers_of_a_message_make_no_browser_act(address: str, mq: str, agent: str, is_told: bool) -> None:
    sent = ("--header", "Set-Cookie: a=b", "--header", "X-Shop: Nord", "--data-binary", "x")
    assert run_curl(*sent, f"{address}/{mq}?cmd=produce")
    head = run_curl("--include", "--user-agent", agent, f"{address}/{mq}?cmd=consume").decode().lower()
    assert "x-shop: nord" in head
    assert ("set-cookie" in head) is is_told
    assert ("content-security-policy: sandbox" not in head) is is_told


@pytest.mark.timeout(2 * INSTALL_S + BROWSER_S)
def test_a_page_from_elsewhere_cannot_make_the_browser_produce(
    browse: Browse, address: str, mq: str, client: Client, tmp_path: Path
) -> None:
    evil = tmp_path / "evil.html"
    attack = f"{address}/{mq}?cmd=produce&body=forged"
    evil.write_text(
        f"<html><script src='{attack}'></script><link rel=stylesheet href='{attack}'>"
        f"<img src='{attack}' onerror='document.title = `tried`'></html>"
    )
    assert "<title>tried</title>" in browse(evil.as_uri())
    client.arm(mq)
    assert client.settled() == []
