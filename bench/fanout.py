"""One publisher, fifty subscribers: the effect of a stalled and of a very slow subscriber on the others.

    python -m bench.fanout [--count 200000] [--only Raceway,NATS]

Each system is measured twice in one run: with fifty healthy subscribers, and with forty-eight plus one that reads
nothing and one that reads a byte per second. Only healthy ones are counted. Compare ratios, not rates.
"""

from __future__ import annotations

import selectors
import shutil
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import Console
from rich.table import Table

from bench import load, options, systems
from bench.path import is_chosen
from bench.systems import Start, System
from bench.wires import END, TIMEOUT_S, Publishing
from tests.rigs.ports import free_port_base

SUBSCRIBERS = 50
RECEIVE_BYTES = 64 * 1024
LONGEST_S = 120.0
STARTS: dict[str, Start] = {"Raceway": systems.raceway, "Mosquitto QoS 0": systems.mosquitto, "NATS core": systems.nats}


def main(count: Annotated[int, typer.Option(help="Messages of 200 bytes.")] = 20_000, only: options.Only = "") -> None:
    """Measure the fan-out of Raceway and of the installed peers."""
    table = Table("system", "healthy alone, deliveries/s", "with two slow ones", "ratio", "disconnected")
    folder = Path(tempfile.mkdtemp(prefix="fanout-"))
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, folder)
        port = free_port_base()
        for number, (name, start) in enumerate(STARTS.items()):
            if not is_chosen(name, only):
                continue
            own = folder / str(number)
            own.mkdir()
            system = start(name, own, port + number)
            if system is None:
                table.add_row(name, "not present")
                continue
            undo.callback(system.stop)
            alone, lost = measure(system, b"bench.alone", count, SUBSCRIBERS, slow=False)
            beside, lost_beside = measure(system, b"bench.beside", count, SUBSCRIBERS - 2, slow=True)
            ratio = f"{beside / alone:.2f}" if alone else "-"
            table.add_row(name, f"{alone:,.0f}", f"{beside:,.0f}", ratio, str(lost + lost_beside))
    Console(width=110).print(table)


def measure(system: System, topic: bytes, count: int, healthy: int, *, slow: bool) -> tuple[float, int]:
    """Deliveries per second to healthy subscribers, and how many of them were disconnected early."""
    wire = system.publishing
    assert wire is not None
    buffer, _ = load.encode(count, wire.publishes, topic)
    with ExitStack() as undo:
        over = threading.Event()
        if slow:
            undo.enter_context(subscriber(system.port, wire, topic))
            crawling = undo.enter_context(subscriber(system.port, wire, topic))
            threading.Thread(target=crawl, args=(crawling, over), daemon=True).start()
        undo.callback(over.set)
        peers = [undo.enter_context(subscriber(system.port, wire, topic)) for _ in range(healthy)]
        publisher = load.Client(load.flood, wire, system.port, buffer)
        undo.callback(publisher.stop)
        began = time.monotonic()
        publisher.go()
        lost = read_all(peers, count)
        return (healthy - lost) * count / (time.monotonic() - began), lost


def subscriber(port: int, wire: Publishing, topic: bytes) -> socket.socket:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    peer.settimeout(TIMEOUT_S)
    peer.connect(("127.0.0.1", port))
    wire.greet(peer)
    wire.subscribe(peer, topic)
    return peer


def crawl(peer: socket.socket, over: threading.Event) -> None:
    while not over.wait(1) and peer.recv(1):
        pass


def read_all(peers: list[socket.socket], count: int) -> int:
    """Read until each subscriber has received every message or is disconnected; return how many were."""
    left, lost, end = dict.fromkeys(peers, count), 0, time.monotonic() + LONGEST_S
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_READ)
        while left and time.monotonic() < end:
            for key, _ in selector.select(1.0):
                peer = cast(socket.socket, key.fileobj)
                data = peer.recv(1 << 18)
                left[peer] -= data.count(END)
                if not data or left[peer] <= 0:
                    lost += not data
                    del left[peer]
                    selector.unregister(peer)
    return lost + len(left)


if __name__ == "__main__":
    typer.run(main)
