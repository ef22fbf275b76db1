"""A command of the pipeline that stops at each point of its work until it may go on.

    python -m tests.pipeline.pausing TO FROM WORD…

It writes a line with the name of the point to the descriptor TO, and waits for a byte from FROM. Points are where work
is given to Spark's workers (`work …`), before and after a commit (`commit TABLE`, `committed TABLE`), before files are
deleted (`vacuum …`) and before the journal is written anew (`blank`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from raceway.cli.app import main
from raceway.pipeline import forgetting, jobs, keeping, migrating, taking
from raceway.pipeline.imports import pieces
from raceway.pipeline.lake import Lake
from raceway.pipeline.snapshot import Snapshot


class Points:
    """Tables are computed in several threads; one after the other is at a point."""

    def __init__(self, told: int, asked: int) -> None:
        self._told, self._asked, self._lock = told, asked, threading.Lock()

    def wait(self, name: str) -> None:
        with self._lock:
            os.write(self._told, f"{name}\n".encode())
            os.read(self._asked, 1)

    def before(self, owner: Any, method: str, name: Callable[..., str]) -> None:
        """Make each call of a function or method a point."""
        real = getattr(owner, method)

        def waiting(*args: Any, **named: Any) -> Any:
            self.wait(name(*args))
            return real(*args, **named)

        setattr(owner, method, waiting)

    def after(self, owner: Any, method: str, name: Callable[..., str]) -> None:
        """Make the end of each call a point."""
        real = getattr(owner, method)

        def waiting(*args: Any, **named: Any) -> Any:
            done = real(*args, **named)
            self.wait(name(*args))
            return done

        setattr(owner, method, waiting)


def place(points: Points) -> None:
    for module in (taking, pieces, migrating):
        points.before(module, "in_workers", lambda *_: "work")
    points.before(Lake, "write", lambda _, table, *__: f"work {table.name}")
    points.after(Lake, "commit", lambda _, table, *__: f"committed {table}")
    points.before(Lake, "commit", lambda _, table, *__: f"commit {table}")
    points.before(Snapshot, "vacuum", lambda found, *_: f"vacuum {found.table}")
    points.before(forgetting, "blank_folder", lambda *_: "blank")


def vacuum_at_once() -> None:
    """Let a run delete files after each batch, whatever their age."""
    jobs._VACUUM_S = -1.0
    vacuum = keeping.vacuum
    keeping.vacuum = lambda lake, hours, **more: vacuum(lake, 0, **more)


if __name__ == "__main__":
    told, asked, *words = sys.argv[1:]
    place(Points(int(told), int(asked)))
    vacuum_at_once()
    sys.argv = ["raceway", *words]
    main()
