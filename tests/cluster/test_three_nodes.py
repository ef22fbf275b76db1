"""Three nodes behind the balancer of `deploy/docker/haproxy.cfg`, and what the console and `cluster status` show."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.client.sync import connect
from raceway.cluster.place import ClusterPlace
from tests.deploy.files import DEPLOY
from tests.rigs.browser import LOOKS, barriers, running_browser, visiting
from tests.rigs.cluster import Node, Publisher, place_of, published, running_nodes, until, wait_for_owner
from tests.rigs.manual import BUS_PORTS
from tests.rigs.ports import free_port_base
from tests.rigs.tools import installed
from tools.kafka import Kafka

BALANCER = DEPLOY / "docker" / "haproxy.cfg"


@pytest.fixture(scope="module")
def three(brokers: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterPlace, list[Node]]]:
    place = place_of(brokers, "orders")
    place.init(1, brokers.count)
    with running_nodes(place, tmp_path_factory.mktemp("nodes"), 3) as nodes:
        yield place, nodes


class Address:
    """What a publisher needs of a node, at the address of the balancer."""

    def __init__(self, base: int) -> None:
        self.base = base

    def port(self, number: str) -> int:
        """The port that stands for one of the manual."""
        return self.base + BUS_PORTS[number]

    def publish(self, topic: str, payload: str) -> int:
        return published(self.port("8600"), topic, payload)


@contextmanager
def balancer(nodes: list[Node], folder: Path) -> Iterator[Address]:
    """HAProxy with the file of the compose file, on free ports, for these nodes."""
    base, text = free_port_base(), BALANCER.read_text("utf-8")
    text = re.sub(r"bind :(\d+)", lambda found: f"bind 127.0.0.1:{base + BUS_PORTS[found[1]]}", text)
    text = text.replace("check port 8600", "check").replace(" init-addr libc,none resolvers names", "")
    bases = [node.port("console") - BUS_PORTS["8600"] for node in nodes]

    def server(found: re.Match[str]) -> str:
        here = bases[int(found[1]) - 1]
        return f"node{found[1]} 127.0.0.1:{here + BUS_PORTS[found[2]]} port {here + BUS_PORTS['8600']}"

    (folder / "haproxy.cfg").write_text(re.sub(r"node(\d) node\d:(\d+)", server, text), "utf-8")
    program = installed("haproxy", "haproxy")
    with (folder / "haproxy.log").open("wb") as log:
        process = subprocess.Popen([program, "-db", "-f", str(folder / "haproxy.cfg")], stdout=log, stderr=log)
    try:
        yield Address(base)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_the_balancers_file_is_one() -> None:
    """As it is: names of nodes are looked up when it runs."""
    done = subprocess.run(
        [installed("haproxy", "haproxy"), "-c", "-f", str(BALANCER)], capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_nodes_are_shown_with_who_serves(
    three: tuple[ClusterPlace, list[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, nodes = three
    owner, standby = nodes[0], nodes[2]
    addresses = [f"http://127.0.0.1:{node.port('console')}" for node in nodes]
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["cluster", "status", place.url])
    assert shown.exit_code == 0, shown.stderr
    roles = dict(re.findall(r"(http://\S+) +\S+ +(owner|standby)\b", shown.stdout))
    assert roles == {addresses[0]: "owner", addresses[1]: "standby", addresses[2]: "standby"}
    again = CliRunner().invoke(app, ["cluster", "init", place.url, "--if-not-exists", "--json"])
    assert json.loads(again.stdout)["name"] == place.name
    with running_browser() as browser:
        for look in LOOKS:
            with visiting(browser, owner, *look) as visitor:
                page = visitor.go("cluster")
                rows = page.get_by_role("table", name="Nodes").locator("tbody tr")
                expect(rows).to_have_count(3)
                expect(rows.filter(has_text="owner")).to_contain_text(addresses[0])
                expect(page.get_by_role("table", name="Brokers").locator("tbody tr")).to_have_count(3)
                expect(page.get_by_role("table", name="Topics in Kafka").locator(".badge.good").first).to_be_visible()
                expect(page.locator(".tile", has_text="nodes")).to_contain_text("3")
                assert barriers(page) == []
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        with visiting(browser, owner) as visitor:
            page = visitor.go("cluster")
            expect(page.get_by_role("table", name="Nodes").locator("tbody tr")).to_have_count(3)
            visitor.picture("cluster")
            page.goto(f"http://127.0.0.1:{standby.port('console')}/")
            expect(page.get_by_role("heading", name="Standby")).to_be_visible()
            expect(page.locator("main")).to_contain_text("owns the lane")
            assert barriers(page) == []
            page.get_by_role("link", name=addresses[0]).click()
            expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            visitor.forgive(503)


def test_one_address_leads_to_the_node_that_serves(three: tuple[ClusterPlace, list[Node]], tmp_path: Path) -> None:
    _, nodes = three
    with balancer(nodes, tmp_path) as address:
        until(lambda: address.publish("a.http", "0") == 201, "the balancer knows who serves")
        with connect(f"zbus://127.0.0.1:{address.port('15555')}", wire="zbus") as zbus:
            zbus.create_queue("a.zbus")
        for wire, port in (("mb", "3001"), ("danube", "6650"), ("zbus", "15555")):
            with connect(f"{wire}://127.0.0.1:{address.port(port)}") as bus:
                bus.publish(f"a.{wire}", b"1")
        with Publisher([address], "a.b") as publisher:
            publisher.wait_for(20)
            nodes[0].kill()
            owner = wait_for_owner(nodes, but=nodes[0])
            publisher.wait_for(20)
            publisher.__exit__()
        publisher.check(owner)
        assert [len(owner.stored(f"a.{wire}")) for wire in ("mb", "danube", "zbus")] == [1, 1, 1]
