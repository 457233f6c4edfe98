"""Starting worker processes: as many at a time as there are processors."""

from __future__ import annotations

import signal

from tests.runtime.conftest import MakeFleet
from tests.support.fleet import Fleet, until

PROCESSES = 4
TASKS = """
if "duly.runtime.child" in sys.orig_argv:
    effect("starts", os.getpid())
    hold()
else:
    import duly.runtime.supervisor
    duly.runtime.supervisor.LONGEST_START = {longest}
    os.cpu_count = lambda: 2


@app.task
def work() -> int:
    return os.getpid()
"""


def starts(fleet: Fleet) -> int:
    return len(fleet.lines("starts"))


def wait_for_a_heartbeat(fleet: Fleet) -> None:
    """Until the supervisor has renewed a lease: whatever it had to do before that is done."""
    seen = [min(each.lease_left for each in fleet.registered())]

    def renewed() -> bool:
        left = min(each.lease_left for each in fleet.registered())
        before, seen[0] = seen[0], left
        return bool(left > before)

    until(renewed)


def test_no_more_start_than_there_are_processors_until_these_are_up(fleet: MakeFleet) -> None:
    made = fleet(TASKS.format(longest=60), lease=3)
    worker = made.start("--processes", PROCESSES, ready=False)
    until(lambda: starts(made) == 2)
    wait_for_a_heartbeat(made)
    assert starts(made) == len(made.registered()) == len(worker.children()) == 2
    made.go()
    until(lambda: starts(made) == PROCESSES)
    assert made.tasks.work.enqueue().result(timeout=60)


def test_one_that_takes_long_to_start_does_not_hold_up_others(fleet: MakeFleet) -> None:
    made = fleet(TASKS.format(longest=0.01))
    made.start("--processes", PROCESSES)
    until(lambda: starts(made) == PROCESSES)
    made.go()


def test_whoever_waits_to_start_does_not_after_a_stop(fleet: MakeFleet) -> None:
    made = fleet(TASKS.format(longest=60), lease=3)
    worker = made.start("--processes", PROCESSES, ready=False)
    until(lambda: starts(made) == 2)
    worker.process.send_signal(signal.SIGTERM)
    worker.said("stopping")
    made.go()
    assert worker.process.wait(60) == 0
    assert starts(made) == 2
