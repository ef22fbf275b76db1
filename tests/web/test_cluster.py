from __future__ import annotations

import msgspec
import pytest

from raceway.errors import UnreachableError
from raceway.model.clusters import BrokerStatus, ClusterStatus, LaneStatus, MemberStatus, TopicVerdict
from raceway.web import cluster
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import ask

FOUND = ClusterStatus(
    name="orders", url="kafka://k1:9092/orders", source="s", nodes=2,
    lanes=[LaneStatus(
        lane=0, node="one", address="http://one:8600", version="0.1.0", epoch=7, since_us=1, first_offset=0, end=9,
        behind_snapshot=2,
    )],
    members=[MemberStatus("http://one:8600", "10.0.0.1"), MemberStatus("http://two:8600", "10.0.0.2")],
    brokers=[BrokerStatus(1, "k1:9092")], topics=[TopicVerdict("ok", "orders.lanes", "replicas: 3")],
)  # fmt: skip


def test_a_bus_alone_belongs_to_no_cluster() -> None:
    app = build_app(DOOR(Bench().broker), ())
    assert ask(app, "/api/cluster").json() == {"cluster": None}
    app.state.desk.close()


def test_kafka_is_asked_once_for_all_who_look(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def status() -> ClusterStatus:
        asked.append(1)
        return FOUND

    app = build_app(DOOR(Bench().broker), (), cluster=status)
    for _ in range(3):
        assert ask(app, "/api/cluster").json() == {"cluster": msgspec.to_builtins(FOUND)}
    assert len(asked) == 1
    monkeypatch.setattr(cluster, "LEAST_S", 0.0)
    ask(app, "/api/cluster")
    assert len(asked) == 2
    app.state.desk.close()


def test_brokers_that_do_not_answer_are_said() -> None:
    def status() -> ClusterStatus:
        raise UnreachableError("kafka://k1:9092", "no broker answers")

    app = build_app(DOOR(Bench().broker), (), cluster=status)
    answer = ask(app, "/api/cluster")
    assert (answer.status, answer.json()["error"]["code"]) == (503, "unreachable")
    assert "kafka://k1:9092" in answer.json()["error"]["message"]
    app.state.desk.close()
