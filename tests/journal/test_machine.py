from __future__ import annotations

import sys
import time

from raceway.journal.machine import Machine


def test_a_thread_runs_and_hands_over_through_a_queue() -> None:
    machine, said = Machine(), []
    queue = machine.queue()
    thread = machine.thread(lambda: queue.put("from the thread"), "tests-machine")
    assert (thread.name, thread.daemon) == ("tests-machine", True)
    thread.start()
    said.append(queue.get(timeout=10))
    thread.join(10)
    assert said == ["from the thread"]


def test_a_child_gets_its_input_and_its_output_is_read() -> None:
    with Machine().spawn([sys.executable, "-c", "print(input()[::-1])"]) as child:
        said, _ = child.communicate(b"level\nrest", timeout=30)
    assert (said, child.returncode) == (b"level\n", 0)


def test_its_clock_is_that_of_the_process() -> None:
    before = time.monotonic()
    assert before <= Machine().monotonic() <= time.monotonic()
