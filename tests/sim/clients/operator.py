"""What an operator sets up before others come: roles, a schema, a policy for messages that fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from raceway.wires.danube.codec.pb import danube_admin_pb2 as pb
from tests.sim.bus import GUEST
from tests.sim.clients.client import OF_GUESTS, OPENED
from tests.sim.clients.danube import DanubeClient
from tests.sim.clients.http import HttpClient

if TYPE_CHECKING:
    from tests.sim.history import History

BOUND, LETTERS, OF_LETTERS, WITH_LETTERS = "t.s", "dead.a", "t.a", "orders"
# Where dead letters are sent to when they are sent again.
REDRIVEN = "v.a"
# A place whose client is an operator, and that no step names.
_SLOT = 97
# A status of gRPC.
_NOT_FOUND = "5"


class Roles(DanubeClient):
    """Who makes the role of guests, and opens a topic to them and closes it again while they use it."""

    def reset_state(self) -> None:
        super().reset_state()
        # The binding that opens the topic, if there is one and it is known.
        self._binding = ""

    def make(self) -> None:
        role = pb.Role(name=GUEST, permissions=["Produce", "Consume"])
        self._call("danube_admin.SecurityAdmin/CreateRole", role, "role", GUEST, pb.Empty)
        for topic in OF_GUESTS:
            self._bind("role", topic)
        self.model.closed[OPENED] = -1.0

    def change(self) -> None:
        """Open the topic, or close it. Until that is answered, both may be so."""
        if (self.line is None and not self.connect()) or self.unanswered():
            return
        if self._binding:
            self.say(f"closes {OPENED} to guests")
            request = pb.BindingRequest(id=self._binding)
            self._call("danube_admin.SecurityAdmin/DeleteBinding", request, "close", OPENED, pb.SecurityResponse)
        else:
            self.say(f"opens {OPENED} to guests")
            self.model.reopen(OPENED)
            self._bind("open", OPENED)

    def _bind(self, kind: str, topic: str) -> None:
        binding = pb.Binding(
            principal_type="service_account", principal_name=GUEST, role=GUEST, scope="topic",
            resource=f"/default/{topic}",
        )  # fmt: skip
        self._call("danube_admin.SecurityAdmin/CreateBinding", binding, kind, topic, pb.Binding)

    def _answered(self, kind: str, what: Any, status: str, reply: Any, began: float) -> None:
        self.say(f"is answered: {kind} {what} {status}")
        if kind == "open" and status == "0":
            self._binding = reply.id
        elif kind == "close" and status in ("0", _NOT_FOUND):
            self._binding = ""
            self.model.closed[OPENED] = self.world.now
        elif kind == "role":
            assert status == "0", f"the operator cannot make {what}: {status}"


class _Changes(HttpClient):
    def put(self, path: str, body: dict[str, Any], method: str = "PUT") -> None:
        head = [*self.bearer(), ("content-type", "application/json")]
        self.call("change", path, path, json.dumps(body).encode(), head, method)

    def answered(self, kind: str, what: Any, status: int, body: bytes) -> None:
        assert status < 300, f"the operator cannot change {what}: {status} {body[:200]!r}"


def set_up(history: History) -> Roles:
    """Set up what the plan wants, and wait until it is confirmed. Return who changes it later."""
    rules, model = history.plan.rules, history.model
    roles, changes = Roles(history, _SLOT), _Changes(history, _SLOT)
    for client in (roles, changes):
        client.connect()
    history.world.run_for(0.1)
    if "guests" in rules and history.is_secure:
        roles.make()
    if "schema" in rules:
        definition = json.dumps({"type": "object", "required": ["ok"]})
        changes.put("/api/schemas/fine/versions", {"type": "json_schema", "definition": definition}, "POST")
        changes.put("/api/topics", {"topic": BOUND, "reliable": True}, "POST")
        changes.put(f"/api/topic-schemas/{BOUND}", {"subject": "fine", "policy": "enforce", "validate_payload": True})
    if "letters" in rules:
        changes.put("/api/topics", {"topic": OF_LETTERS, "reliable": True}, "POST")
        policy = {
            "max_redelivery_count": 0,
            "poison": "dead_letter",
            "dead_letter_topic": LETTERS,
            "base_redelivery_delay_ms": 50,
        }
        changes.put(f"/api/subscriptions/policy?topic={OF_LETTERS}&name={WITH_LETTERS}", policy)
    is_done = history.world.run_until(
        lambda: not roles.unanswered() and not changes.open_calls(), history.world.now + 20.0
    )
    assert is_done, "the operator is not answered"
    if "schema" in rules:
        model.bound.add(BOUND)
    if "letters" in rules:
        model.letters |= {LETTERS: OF_LETTERS, REDRIVEN: OF_LETTERS}
        model.redriven_topic = REDRIVEN
        history.with_letters.add(f"{WITH_LETTERS} on {OF_LETTERS}")
    for client in (roles, changes):
        client.leave("close")
    return roles
