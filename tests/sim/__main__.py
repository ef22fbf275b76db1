"""`python -m tests.sim`: run histories, and print the first that breaks a promise.

--seed N --histories N    seeds N, N+1, …; without --seed from a random one
--minutes N               as many as fit into the time, instead of --histories
--steps N                 steps of a history
--cores N                 processes
--switches TEXT           what may happen, as in the patches: `wires=mb,zbus weights.power=5 settings.KEY=VALUE`
--only 1-3,7              of one seed, only these steps: what a finding prints
--lines                   print the whole history
--no-shrink               print the first finding as it is
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Iterator

from tests.sim.history import Outcome, make_plan, run_plan
from tests.sim.shrink import parse, shrink, spell
from tests.sim.switches import read_switches

STEPS = 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run histories of the simulated bus.")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--histories", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--switches", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--no-shrink", action="store_true")
    chosen = parser.parse_args()
    if chosen.only or chosen.lines:
        return _replay(chosen)
    begin, count, calls = time.monotonic(), 0, 0
    first = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1 << 31)
    for outcome in _outcomes(chosen, first):
        count, calls = count + 1, calls + outcome.calls
        if outcome.broken:
            _tell(chosen, outcome)
            print(f"{count} histories, the last of which is broken")
            return 1
        if chosen.minutes and time.monotonic() - begin > 60 * chosen.minutes:
            break
    seconds, cpu_s = time.monotonic() - begin, _cpu_s()
    print(
        f"{count} histories of {chosen.steps} steps ({calls} calls of clients) from seed {first} on, all clean, in "
        f"{seconds:.0f} s: {60 * count / cpu_s:.0f} histories, {60 * calls / cpu_s:.0f} calls a minute of a core"
    )
    return 0


def _cpu_s() -> float:
    """Return what this process and its children have taken of processors: others may be busy, too."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _outcomes(chosen: argparse.Namespace, first: int) -> Iterator[Outcome]:
    """Outcomes of one seed after the other, on several cores if wanted."""
    count = chosen.histories or (1 if chosen.seed is not None and not chosen.minutes else 1 << 31)
    work = ((seed, chosen.steps, chosen.switches) for seed in range(first, first + count))
    if chosen.cores == 1:
        yield from map(_run, work)
        return
    # Fresh processes now and then: what a history leaves to the garbage collector is not kept for ever.
    with multiprocessing.get_context("spawn").Pool(chosen.cores, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(_run, work)


def _run(asked: tuple[int, int, str]) -> Outcome:
    seed, steps, switches = asked
    if not gc.get_freeze_count():
        gc.freeze()  # what was imported stays, and need not be looked at again
    return run_plan(make_plan(seed, steps, read_switches(switches)))


def _tell(chosen: argparse.Namespace, found: Outcome) -> None:
    """Print seed, shrunk history and the command that replays it."""
    print(f"seed {found.seed}: {found.broken}", flush=True)
    if chosen.no_shrink:
        return
    print("shrinking ...", flush=True)
    plan = make_plan(found.seed, chosen.steps, read_switches(chosen.switches))
    kept, best = shrink(plan, found)
    print("\n".join(best.lines))
    switches = f" --switches '{chosen.switches}'" if chosen.switches else ""
    print(
        f"\n{len(kept)} of {len(plan.steps)} steps. Replay it with:\n"
        f"  {os.path.relpath(sys.executable)} -m tests.sim --seed {found.seed} --steps {chosen.steps}"
        f"{switches} --only {spell(kept)}"
    )


def _replay(chosen: argparse.Namespace) -> int:
    plan = make_plan(chosen.seed or 0, chosen.steps, read_switches(chosen.switches))
    outcome = run_plan(plan, parse(chosen.only) if chosen.only else None)
    print("\n".join(outcome.lines))
    print(f"digest {outcome.digest}")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
