"""Administrators on the console port: they purge a queue, move and remove subscriptions, send dead letters on their way
again, and loosen and tighten the schema of a topic, while others use them."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.sim.clients.client import QUEUES
from tests.sim.clients.http import OverHttp
from tests.sim.clients.operator import BOUND, REDRIVEN
from tests.sim.messages import Broken
from tests.sim.receivers import Durable

# How long a change may still come into force whose answer is lost.
_UNTOLD_S = 15.0


class AdminClient(OverHttp):
    wire, port = "admin", 6

    def do(self, dice: random.Random) -> None:
        choice, rules = dice.random(), self.history.plan.rules
        if choice < 0.4 and "letters" in rules:
            self._look()
        elif choice < 0.7 and "schema" in rules:
            self._change_schema()
        elif choice < 0.85:
            self._purge(dice.choice(QUEUES))
        elif self.model.durable:
            self._change_subscription(self.model.durable[dice.choice(sorted(self.model.durable))], dice)

    def answered(self, kind: str, what: Any, status: int, body: bytes) -> None:
        if status < 300 and (self.is_guest or not self.may):
            raise Broken(f"{self.name}: {kind} is answered, and not permitted")
        if status >= 500 and status != 503:
            raise Broken(f"{self.name}: {kind} is answered with {status}: {body[:200]!r}")
        if kind == "purge":
            self._purged(what, status)
        elif kind == "letters" and status == 200:
            rows = json.loads(body)["rejected"]
            self.world.soon(lambda: self._send_again(rows))
        elif kind == "redrive" and status == 200:
            self.model.note_redriven(json.loads(body)["offset"])
        elif kind == "schema":
            self._schema_changed(what, status)
        elif kind == "subscription":
            what.end_change(self.world.now)

    # ---- queues ------------------------------------------------------------------------------------------------------

    def _purge(self, name: str) -> None:
        queue = self.model.queues.get(name)
        if queue is not None and queue.purged != float("inf"):
            self.say(f"purges {name}")
            if self.may and not self.is_guest:
                queue.begin_purge()
            self._call("purge", name, f"/api/queues/{name}/messages", "DELETE")

    def _purged(self, name: str, status: int) -> None:
        queue = self.model.queues[name]
        if queue.purged == float("inf"):
            queue.end_purge(self.world.now, is_done=status == 200)

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    def _change_subscription(self, durable: Durable, dice: random.Random) -> None:
        """Remove it, which is refused while it is used, or move its cursor."""
        if durable.changes_until == float("inf") or not self.may or self.is_guest:  # guests may move some
            return
        name = durable.name.removesuffix(f" on {durable.topic}")
        durable.begin_change()
        if dice.random() < 0.5:
            self.say(f"removes the subscription {durable.name}")
            path = f"/api/subscriptions?topic={durable.topic}&name={name}"
            self._call("subscription", durable, path, "DELETE")
            return
        begin = dice.choice(("first", "0", "3", "end"))
        self.say(f"moves the subscription {durable.name} to {begin}")
        wanted = {"topic": durable.topic, "subscription": name, "from": begin}
        self._call("subscription", durable, "/api/replay", "POST", wanted)

    # ---- dead letters ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._call("letters", None, "/api/rejected?source=dead_letter&limit=20", "GET")

    def _send_again(self, rows: list[dict[str, Any]]) -> None:
        """Send the newest, and the oldest of those shown."""
        for row in {row["position"]: row for row in (*rows[:1], *rows[-1:])}.values():
            self.say(f"sends the dead letter at {row['position']} to {REDRIVEN}")
            self.model.redrives += 1
            self._call(
                "redrive", row["position"], f"/api/rejected/{row['position']}/redrive", "POST", {"topic": REDRIVEN}
            )

    # ---- schemas -----------------------------------------------------------------------------------------------------

    def _change_schema(self) -> None:
        """Loosen or tighten, one change after the other. Until it is answered, both may be in force."""
        if self.world.now < self.model.schema_changes_until or not self.may or self.is_guest:
            return
        policy = "none" if BOUND in self.model.bound else "enforce"
        self.model.schema_changes_until = float("inf")
        if policy == "none":
            self.model.loosen(BOUND)
        self.say(f"sets the schema policy of {BOUND} to {policy}")
        self._call("schema", policy, f"/api/topic-schemas/{BOUND}", "PUT", {"policy": policy})

    def _schema_changed(self, policy: str, status: int) -> None:
        self.model.schema_changes_until = -1.0 if status == 200 else self.world.now + _UNTOLD_S
        if status == 200 and policy == "enforce":
            self.model.bound.add(BOUND)

    def _call(self, kind: str, what: Any, path: str, method: str, body: dict[str, Any] | None = None) -> None:
        head = [*self.bearer(), ("content-type", "application/json")]
        self.call(kind, what, path, b"" if body is None else json.dumps(body).encode(), head, method)

    def unanswered(self) -> list[str]:
        return [kind for kind, _ in self.open_calls()[:1]]

    def lost(self) -> None:
        for kind, what in self.open_calls():
            if kind == "purge":
                queue = self.model.queues[what]
                if queue.purged == float("inf"):
                    queue.end_purge(self.world.now + _UNTOLD_S, is_done=False)
            elif kind == "schema":
                self.model.schema_changes_until = self.world.now + _UNTOLD_S
            elif kind == "subscription" and what.changes_until == float("inf"):
                what.end_change(self.world.now + _UNTOLD_S)
        super().lost()
