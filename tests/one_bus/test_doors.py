"""Doors: what holds at the entrance of every wire alike."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raceway import config
from raceway.errors import ConfigError
from raceway.wires import sections
from tests.rigs.mb_wire import RawWebSocket
from tests.rigs.one_bus import OneBus, Place
from tests.rigs.seneca_wire import JSON, console, post, seed
from tests.rigs.server import Server, running_server
from tests.rigs.zbus_wire import compose, dial_server

FOREIGN = [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}]


def listening(server: Server) -> set[str]:
    """Addresses of the server's doors, as the kernel has them."""
    rows = [line.split() for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]]
    ports = range(server.port_base, server.port_base + 10)
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) in ports}


def test_every_door_is_on_loopback_unless_told(bus: OneBus) -> None:
    """D1."""
    assert listening(bus.server) == {"0100007F"}
    with pytest.raises(ConfigError, match=r"listen\.host"):
        config.load(None, environment={}, flags={"listen.host": "0.0.0.0"}, sections={})
    tls = {"listen.tls_certificate": "chain.pem", "listen.tls_key": "key.pem"}
    assert (
        config.load(None, environment={}, flags={"listen.host": "0.0.0.0", **tls}, sections={}).config.listen.host
        == "0.0.0.0"
    )


@pytest.fixture(scope="module")
def exposed() -> Iterator[Server]:
    """Reachable from elsewhere, by its owner's word, and under a name; with a tracker to report to, if it might."""
    with running_server(
        RACEWAY_LISTEN__HOST="0.0.0.0", RACEWAY_LISTEN__INSECURE="true", RACEWAY_LISTEN__HOSTS='["bus.example"]',
        RACEWAY_LISTEN__MB__ORIGINS='["https://shop.example"]', RACEWAY_LISTEN__ZBUS__TRACKERS='["127.0.0.1:9"]',
    ) as server:  # fmt: skip
        yield server


def test_another_address_without_tls_warns_at_each_start(exposed: Server) -> None:
    """D1."""
    assert "insecure" in exposed.stderr
    exposed.restart()
    assert exposed.stderr.count("anyone who can connect may use the bus") == 2


def test_only_our_own_variables_are_read() -> None:
    """D2. Those of other implementations of a wire are history."""
    env = {"PORT": "1", "HOST": "0.0.0.0", "MB_PORT": "7", "ZBUS_PORT": "7", "RACEWAY_LISTEN__MB__TCP_PORT": "3999"}
    found = config.load(None, environment=env, flags={}, sections=sections())
    changed = {key for key, origin in found.origins.items() if origin != "default"}
    assert changed == {"listen.mb.tcp_port"}


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("http://localhost:8080", 101),
        ("http://127.0.0.1", 101),
        ("http://evil.example", 403),
        ("null", 403),
    ],
)
def test_mb_over_websocket_admits_pages_from_loopback_alone(bus: OneBus, origin: str | None, status: int) -> None:
    """D3. Without an origin it is no browser."""
    headers = {} if origin is None else {"Origin": origin}
    with RawWebSocket(bus.server.port("websocket"), **headers) as websocket:
        assert websocket.status == status


@pytest.mark.parametrize(("origin", "status"), [("https://shop.example", 101), ("https://evil.example", 403)])
def test_mb_over_websocket_admits_pages_that_the_settings_name(exposed: Server, origin: str, status: int) -> None:
    """D3. `listen.mb.origins`."""
    with RawWebSocket(exposed.port("websocket"), Origin=origin) as websocket:
        assert websocket.status == status


@pytest.mark.parametrize(
    ("host", "admitted"), [("bus.example", True), ("bus.example:1", True), ("evil.example", False)]
)
def test_a_host_may_be_one_that_the_settings_name(exposed: Server, host: str, admitted: bool) -> None:
    """D5. `listen.hosts`."""
    with dial_server(exposed) as client:
        client.write(compose({"cmd": "produce", "mq": "nowhere", "msgid": "p", "Host": host}, b"x"))
        assert client.reply("p").status == (404 if admitted else 403)
    refused = post(exposed, seed({"role": "nobody"}), {**JSON, "Host": host}).status == 403
    assert (exposed.http("/metrics", Host=host)[0] == 200, refused) == (admitted, not admitted)


@pytest.mark.parametrize("headers", FOREIGN, ids=["origin", "site", "host"])
def test_pages_of_other_sites_and_other_names_are_refused_on_every_http_door(
    bus: OneBus, place: Place, headers: dict[str, str]
) -> None:
    """D4, D5."""
    with dial_server(bus.server) as client:
        client.write(compose({"cmd": "produce", "mq": place.topic, "msgid": "p"} | headers, b"x"))
        assert client.reply("p").status == 403
    assert post(bus.server, seed(place.keys), {**JSON, **headers}).status == 403
    assert bus.server.http("/metrics", **headers)[0] in (400, 403, 421)


def test_no_host_is_no_browser(bus: OneBus, place: Place) -> None:
    """D5. An absent one is allowed, on each door that speaks HTTP."""
    client = bus.zbus()
    client.create(place.topic)
    client.produce(place.topic, b"x")
    connection = http.client.HTTPConnection("127.0.0.1", bus.server.port("seneca"), timeout=10)
    connection.putrequest("POST", "/act", skip_host=True)
    body = b'{"role":"nobody"}'
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    assert connection.getresponse().status != 403
    connection.close()


def test_zbus_keeps_its_commands_by_get(bus: OneBus, place: Place) -> None:
    """D6. What is produced by a URL reaches a subscriber of another wire."""
    client, peer = bus.zbus(), bus.mb()
    peer.subscribe(place.topic)
    client.get(f"/{place.topic}?cmd=produce&msgid=g")
    assert client.reply("g").status == 200
    assert peer.receive().payload == b""


def test_a_repeated_key_takes_its_last_value(bus: OneBus, place: Place) -> None:
    """D7."""
    client = bus.zbus()
    client.create(place.topic)
    head = f"POST / HTTP/1.1\r\ncmd: heartbeat\r\ncmd: produce\r\nmq: nowhere\r\nmq: {place.topic}\r\nmsgid: p\r\n"
    client.write(f"{head}content-length: 1\r\n\r\nx".encode())
    assert client.reply("p").status == 200
    assert client.take(place.topic).body == b"x"


@pytest.mark.parametrize("lines", ["content-length: 1\r\ncontent-length: 2", "transfer-encoding: chunked"])
def test_a_message_whose_end_is_in_doubt_is_refused_and_the_connection_closed(bus: OneBus, lines: str) -> None:
    """D7."""
    client = bus.zbus()
    client.write(f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: x\r\n{lines}\r\n\r\n".encode())
    assert [message.status for message in client.until_closed()] == [400]


@pytest.mark.parametrize("url", ["http://192.0.2.1:80/act", "http://example.com/act", "tcp://10.0.0.1:1"])
def test_the_bus_connects_only_where_it_may(bus: OneBus, url: str) -> None:
    """D9. Loopback, while it listens on loopback only; and never to itself."""
    for target in (url, f"http://127.0.0.1:{bus.server.port('seneca')}/act"):
        answer = console(bus.server, "POST", "/api/seneca/services", {"pin": "role:far", "url": target})
        assert answer.status == 403, answer


def test_an_answer_is_returned_only_where_the_bus_may_connect(bus: OneBus, place: Place) -> None:
    """D9. `rtn.urn`: whoever names an address far away, or the bus, is told of the deadline, and the log names it."""
    urns = ["http://192.0.2.1:80/rtn", f"http://127.0.0.1:{bus.server.port('seneca')}/act"]
    bus.mb().subscribe(place.topic, "request")
    with ThreadPoolExecutor(2) as pool:
        documents = [seed(place.keys, rtn={"urn": urn}) for urn in urns]
        codes = [answer.json()["code"] for answer in pool.map(post, [bus.server] * 2, documents)]
    assert codes == ["action_timeout"] * 2
    assert all(urn in bus.server.stderr for urn in urns)


def test_a_bus_that_others_reach_connects_nowhere(exposed: Server) -> None:
    """D9. Neither to a service nor to a tracker."""
    wanted = {"pin": "role:near", "url": "http://127.0.0.1:9/act", "dialect": "W"}
    assert console(exposed, "POST", "/api/seneca/services", wanted).status == 403
    assert "tracker not allowed" in exposed.stderr
