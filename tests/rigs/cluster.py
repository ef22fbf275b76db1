"""Nodes of a cluster as processes, publishers that nobody tells of takeovers, and what must be true afterwards."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from raceway import config
from raceway.cluster.place import ClusterPlace, ClusterRecord
from tests.rigs.server import Server, wait_until
from tools.kafka import Kafka

_numbers = itertools.count()
SESSION_S = 3.0
# A busy machine, with three brokers and the nodes beside other tests.
PATIENCE_S = 90.0


def new_cluster(kafka: Kafka, **settings: Any) -> tuple[ClusterPlace, ClusterRecord]:
    """A cluster of a name of its own."""
    place = place_of(kafka, f"test-{next(_numbers)}", **settings)
    return place, place.init(1, kafka.count)


def place_of(kafka: Kafka, name: str, **settings: Any) -> ClusterPlace:
    return ClusterPlace(config.ClusterSettings(url=f"kafka://{kafka.bootstrap}/{name}", **settings), timeout_s=20)


class Node(Server):
    """One node of a cluster."""

    def __init__(self, place: ClusterPlace, folder: Path, **env: object) -> None:
        folder.mkdir()
        given = {
            "RACEWAY_CLUSTER__URL": place.url, "RACEWAY_CLUSTER__ADVERTISE": "127.0.0.1",
            "RACEWAY_CLUSTER__SESSION_TIMEOUT_S": SESSION_S, "RACEWAY_CLUSTER__COMMIT_TIMEOUT_S": 10,
            "RACEWAY_CLUSTER__LOOK_S": 0.5, **env,
        }  # fmt: skip
        super().__init__(folder / "data", folder, given)

    def readiness(self) -> tuple[int, str]:
        """Status of `/readyz` and its reason; 0 if nobody answers."""
        try:
            status, text = self.http("/readyz")
            return status, json.loads(text)["reason"]
        except (OSError, ValueError):
            return 0, ""

    def is_owner(self) -> bool:
        return self.is_running() and self.readiness()[0] == 200

    def is_standby(self) -> bool:
        return self.is_running() and self.readiness()[0] == 503

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def publish(self, topic: str, payload: str, timeout_s: float = 15.0) -> int:
        """The status of a publish over HTTP; 0 if there was no answer."""
        return published(self.port("console"), topic, payload, timeout_s)

    def stored(self, topic: str) -> list[dict[str, Any]]:
        """All messages of a topic."""
        found: list[dict[str, Any]] = []
        while True:
            status, text = self.http(f"/topics/{topic}?from={len(found)}&limit=1000")
            assert status == 200, text
            page = json.loads(text)["messages"]
            if not page:
                return found
            found += page


def published(port: int, topic: str, payload: str, timeout_s: float = 15.0) -> int:
    """The status of a publish over HTTP; 0 if there was no answer."""
    url = f"http://127.0.0.1:{port}/topics/{topic}"
    request = urllib.request.Request(url, payload.encode(), {"content-type": "text/plain"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout_s) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code
    except (OSError, http.client.HTTPException):
        return 0


class Publishes(Protocol):
    """A node, or an address that leads to one."""

    def publish(self, topic: str, payload: str) -> int: ...


@contextmanager
def running_nodes(place: ClusterPlace, folder: Path, count: int = 2, **env: object) -> Iterator[list[Node]]:
    """Nodes of which the first owns the lane."""
    nodes = [Node(place, folder / f"node-{number}", **env) for number in range(count)]
    try:
        nodes[0].spawn()
        wait_until(nodes[0].is_owner, PATIENCE_S, "the first node serves")
        for node in nodes[1:]:
            node.spawn()
            wait_until(node.is_standby, PATIENCE_S, "another waits")
        yield nodes
    except BaseException:
        for number, node in enumerate(nodes):  # pytest shows it
            print(f"---- node {number}, {'running' if node.is_running() else 'ended'}:\n{node.stderr[-8000:]}")
        raise
    finally:
        for node in nodes:
            if node._process is not None:
                if node.is_running():
                    node.resume()
                node.kill()


def wait_for_owner(nodes: list[Node], but: Node | None = None) -> Node:
    """The node that serves, other than `but`."""
    return wait_until(
        lambda: next((node for node in nodes if node is not but and node.is_owner()), None), PATIENCE_S, "an owner"
    )


class Publisher:
    """Publishes numbers to a topic in its own thread, at whatever node takes them; never the same twice."""

    def __init__(self, nodes: Sequence[Publishes], topic: str) -> None:
        self._nodes, self.topic = nodes, topic
        self.acknowledged: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        nodes = itertools.cycle(self._nodes)
        node = next(nodes)
        for number in itertools.count():
            if self._stop.is_set():
                return
            if node.publish(self.topic, str(number)) in (200, 201):
                self.acknowledged.append(number)
            else:
                node = next(nodes)
                time.sleep(0.02)

    def wait_for(self, more: int, deadline_s: float = PATIENCE_S) -> None:
        """Return when so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= wanted, deadline_s, f"{more} more acknowledged messages")

    def check(self, node: Node) -> None:
        """Every acknowledged message once, in order, and offsets without gaps."""
        rows = node.stored(self.topic)
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        numbers = [int(row["payload"]) for row in rows]
        assert numbers == sorted(set(numbers))
        assert set(self.acknowledged) <= set(numbers)


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, PATIENCE_S, what)
