from __future__ import annotations

from starlette.applications import Starlette

from raceway import config
from raceway.broker.broker import Broker
from raceway.model.security import Principal
from raceway.web.app import build_app
from raceway.wires.danube.settings import DanubeWire
from tests.rigs.danube_tokens import ISSUER, SECRET, token
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import Answer, ask

NUMBERS = {"mb": 3001, "danube": 6650, "zbus": 15555, "tracker": 16666, "console": 8600}


def asked(app: Starlette, who: str = "", host: str = "localhost:8600") -> Answer:
    return ask(app, "/api/doors", headers={"host": host} | ({"authorization": f"Bearer {who}"} if who else {}))


def test_doors_are_urls_with_the_host_that_the_caller_used() -> None:
    app = build_app(DOOR(Bench().broker), ("bus.example",), doors=NUMBERS)
    assert asked(app, host="bus.example:8600").json()["doors"] == {
        "console": "http://bus.example:8600", "mb": "mb://bus.example:3001", "danube": "danube://bus.example:6650",
        "zbus": "zbus://bus.example:15555", "zbus+track": "zbus+track://bus.example:16666",
    }  # fmt: skip
    assert asked(app, host="[::1]:8600").json()["doors"]["mb"] == "mb://[::1]:3001"


def test_an_advertised_address_is_told_instead() -> None:
    listen = config.Listen(wires=(DanubeWire(advertised="queue.example:443"),))
    app = build_app(DOOR(Bench().broker), (), listen=listen, doors=NUMBERS)
    assert asked(app).json()["doors"]["danube"] == "danube://queue.example:443"


def test_with_security_only_those_who_may_use_the_bus_are_told() -> None:
    bench = Bench()
    security = config.SecuritySettings(enabled=True, token_secret=SECRET, token_issuer=ISSUER, super_admins=("root",))
    broker = Broker(config.BrokerSettings(), bench.journal, bench.loop, bench.clock_us, security)
    app = build_app(DOOR(broker), (), doors=NUMBERS)
    assert [asked(app).status, asked(app, "nonsense").status, asked(app, token("till")).status] == [403, 401, 403]
    assert b"3001" not in asked(app).body
    broker.security.put_role("seller", ["Produce"])
    broker.security.bind(Principal("service_account", "till"), "seller", "topic", "orders")
    assert asked(app, token("till")).json()["doors"]["mb"] == "mb://localhost:3001"
