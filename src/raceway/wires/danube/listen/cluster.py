"""Danube's cluster administration, answered for a cluster of one broker.

The broker is leader and only voter and has all topics, so there is nothing to move. There is no Raft transport, so its
address is empty.
"""

from __future__ import annotations

from raceway.net.grpc import Methods
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    BrokerLoadInfo,
    ClusterBalanceRequest,
    ClusterBalanceResponse,
    ClusterStatusResponse,
    Empty,
    RebalanceRequest,
    RebalanceResponse,
)
from raceway.wires.danube.listen.admin import BROKER_ID
from raceway.wires.danube.listen.calls import Caller, DanubeCalls, Handlers

NODE_ID = int(BROKER_ID)
# The Raft term counts elections; a single broker has had one.
TERM = 1


class ClusterCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls

    def join(self, methods: Methods) -> None:
        cluster: Handlers = {"ClusterStatus": (Empty, self._status)}
        self._calls.serve(methods, "danube_admin.ClusterAdmin", cluster)
        balance: Handlers = {
            "GetClusterBalance": (ClusterBalanceRequest, self._balance),
            "TriggerRebalance": (RebalanceRequest, self._rebalance),
        }
        self._calls.serve(methods, "danube_admin.BrokerAdmin", balance)

    def _status(self, caller: Caller, request: Empty) -> ClusterStatusResponse:
        """Return the cluster's status. The journal stands for the Raft log: `last_applied` is its last position."""
        self._calls.check(caller, "ManageCluster")
        applied = max(self._calls.door.view.administration.next_sequence - 1, 0)
        return ClusterStatusResponse(
            leader_id=NODE_ID, current_term=TERM, last_applied=applied, voters=[NODE_ID], self_node_id=NODE_ID
        )

    def _balance(self, caller: Caller, request: ClusterBalanceRequest) -> ClusterBalanceResponse:
        """Return the load of the broker: its number of topics, as in Danube's strategy `fair`."""
        self._calls.check(caller, "ManageBroker")
        topics = len(self._calls.door.view.administration.topics())
        broker = BrokerLoadInfo(broker_id=NODE_ID, load=topics, topic_count=topics)
        return ClusterBalanceResponse(
            mean_load=topics, max_load=topics, min_load=topics, broker_count=1, brokers=[broker],
            assignment_strategy="fair",
        )  # fmt: skip

    def _rebalance(self, caller: Caller, request: RebalanceRequest) -> RebalanceResponse:
        """Succeed without doing anything: one broker is always balanced."""
        self._calls.check(caller, "ManageCluster")
        return RebalanceResponse(success=True)
