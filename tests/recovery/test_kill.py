"""The process is killed under load: whatever was acknowledged is in the journal, once, in order.

Four connections publish on topics of their own and on one they share. The journal that one kill leaves behind is the
start of the next round, so later rounds also recover what earlier recoveries wrote.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from tests.rigs.ledger import Ledger, Publisher, Sink
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until

CONNECTIONS = 4
# A start after a kill should take under 2 s; ten times that on a machine that is busy with other tests.
START_S = 20.0
# Segments of a few blocks, sealed while the load runs, so that kills also fall into rolling and sealing.
ROLLING = {
    "RACEWAY_JOURNAL__SEGMENT_BYTES": 200_000,
    "RACEWAY_JOURNAL__SEGMENT_AGE_S": 0.2,
    "RACEWAY_JOURNAL__UPKEEP_S": 0.05,
    "RACEWAY_JOURNAL__SEAL_KEEP_S": 0,
    "RACEWAY_JOURNAL__ROW_GROUP_ROWS": 256,
}


def start_publishers(ledger: Ledger, server: Server, chosen: random.Random, window: int) -> list[Publisher]:
    return [
        Publisher(
            ledger.new_stream(), server.port("tcp"), [f"kill.own{n}", "kill.shared"], chosen.getrandbits(32), window
        )
        for n in range(CONNECTIONS)
    ]


def publish_until(ledger: Ledger, acknowledged: int) -> None:
    wanted = ledger.acknowledged + acknowledged
    wait_until(lambda: ledger.acknowledged >= wanted, 30, f"{acknowledged} acknowledgements")


@pytest.mark.timeout(60 + 30 * rounds(3))
def test_every_acknowledged_publish_survives_kills_at_random_moments(tmp_path: Path) -> None:
    chosen, ledger, starts = seeded("kill"), Ledger(), []
    with running_server(tmp_path / "data") as server:
        for number in range(rounds(3)):
            with Sink(server.port("tcp"), "kill.#"):
                publishers = start_publishers(ledger, server, chosen, chosen.choice([40, 200, 2000]))
                publish_until(ledger, chosen.randrange(1, 4000))
                server.kill()
                for publisher in publishers:
                    publisher.finish()
            server.env = ROLLING if number % 2 == 0 else {}
            starts.append(server.start(START_S))
            ledger.check(server.data)
        sealed = len(list(server.data.glob("*.parquet")))
        print(f"{len(starts)} kills, {ledger.acknowledged:,} acknowledged, {sealed} segments sealed meanwhile,")
        print(f"starts took {statistics.median(starts):.2f} s, at most {max(starts):.2f} s")
        server.stop()
    ledger.check(tmp_path / "data")


def test_sigterm_with_publishes_in_flight_exits_cleanly_and_loses_nothing(tmp_path: Path) -> None:
    chosen, ledger = seeded("stop"), Ledger()
    with running_server(tmp_path / "data") as server:
        for _ in range(rounds(1)):
            with Sink(server.port("tcp"), "kill.#"):
                publishers = start_publishers(ledger, server, chosen, window=200)
                publish_until(ledger, chosen.randrange(1000, 4000))
                server.stop()
                for publisher in publishers:
                    publisher.finish()
            ledger.check(server.data)
            server.start(START_S)
        ledger.check(server.data)
