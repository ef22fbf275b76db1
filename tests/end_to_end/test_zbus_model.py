"""Random plays on zbus queues, held against the simplest thing that can be a queue: two lists.

After each step every connection is settled, so the model knows exactly who must have received what.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from contextlib import ExitStack

import pytest

from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, wait_until
from tests.rigs.zbus_wire import Client, dial_server, new_id

STEPS = 120
CONNECTIONS, QUEUES = 4, 2


class Model:
    """Messages wait in order; so do consumers. A further consume of a waiting one changes its terms, not its place."""

    def __init__(self) -> None:
        self.messages: dict[str, deque[str]] = defaultdict(deque)
        self.line: dict[str, dict[Client, tuple[str, int]]] = defaultdict(dict)
        # What each connection must receive next: id of the consume and id of the message.
        self.due: dict[Client, list[tuple[str, str]]] = defaultdict(list)

    def produce(self, mq: str, msgid: str) -> None:
        self.messages[mq].append(msgid)
        self._hand_out(mq)

    def consume(self, client: Client, mq: str, msgid: str, window: int) -> None:
        self.line[mq][client] = (msgid, window)
        self._hand_out(mq)

    def leave(self, client: Client) -> None:
        for line in self.line.values():
            line.pop(client, None)

    def _hand_out(self, mq: str) -> None:
        line = self.line[mq]
        while self.messages[mq] and line:
            client, (msgid, window) = next(iter(line.items()))
            self.due[client].append((msgid, self.messages[mq].popleft()))
            del line[client]
            if window != 1:  # the rest of a window waits behind the others
                line[client] = (msgid, window - 1 if window > 0 else window)


class Play:
    """One run of random steps."""

    def __init__(self, server: Server, chosen: random.Random, stack: ExitStack) -> None:
        self._server, self._chosen, self._stack = server, chosen, stack
        self._model = Model()
        self._clients = [self._dial() for _ in range(CONNECTIONS)]
        self._queues = [self._clients[0].create() for _ in range(QUEUES)]
        self.steps: list[str] = []

    def _dial(self) -> Client:
        return self._stack.enter_context(dial_server(self._server))

    def step(self) -> None:
        client, mq = self._chosen.choice(self._clients), self._chosen.choice(self._queues)
        action = self._chosen.choices([self._produce, self._consume, self._leave], [6, 5, 1])[0]
        action(client, mq)
        for each in self._clients:
            received = [(message.msgid, message.raw_id) for message in each.settled()]
            assert received == self._model.due.pop(each, []), "\n".join(self.steps)

    def _produce(self, client: Client, mq: str) -> None:
        for _ in range(self._chosen.choice([1, 1, 1, 5])):
            msgid = new_id()
            self.steps.append(f"{self._clients.index(client)} produces {msgid} into {mq}")
            client.send("produce", mq=mq, msgid=msgid, ack="0")
            client.synchronise()
            self._model.produce(mq, msgid)

    def _consume(self, client: Client, mq: str) -> None:
        msgid, window = new_id(), self._chosen.choice([1, 1, 1, 2, 3, -1])
        self.steps.append(f"{self._clients.index(client)} consumes {mq}, window {window}")
        client.send("consume", mq=mq, msgid=msgid, window=str(window))
        client.synchronise()
        self._model.consume(client, mq, msgid, window)

    def _leave(self, client: Client, mq: str) -> None:
        self.steps.append(f"{self._clients.index(client)} leaves")
        self._model.leave(client)
        name = "{}:{}".format(*client.socket.getsockname())
        self._chosen.choice([Client.close, Client.reset])(client)
        self._clients[self._clients.index(client)] = fresh = self._dial()
        wait_until(lambda: name not in consumers(fresh), what="the server to notice that a consumer has left")


def consumers(client: Client) -> set[str]:
    """Addresses of all connections that consume from some queue."""
    return {one["remoteAddr"] for queue in client.data()["mqTable"].values() for one in queue["consumerInfoList"]}


@pytest.mark.timeout(60 + 5 * rounds(4))
def test_random_plays_agree_with_the_model(server: Server) -> None:
    chosen = seeded("zbus model")
    for _ in range(rounds(4)):
        with ExitStack() as stack:
            play = Play(server, chosen, stack)
            for _ in range(STEPS):
                play.step()
