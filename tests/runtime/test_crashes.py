"""Deaths of worker processes: who notices, how soon, and who is charged."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from duly import State
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import long_only, send, until

TASKS = """
import ctypes
import signal


@app.task
def work(number: int = 0) -> int:
    ran()
    hold()
    return number


@app.task(retries=0)
def neighbour() -> int:
    ran()
    time.sleep(0.02)
    return 1


@app.task(retries=5)
def poison(how: str) -> None:
    ran()
    time.sleep(0.1)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "exit_well":
        os._exit(0)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(transactional=True)
def poison_in_transaction() -> None:
    ran()
    os._exit(3)


@app.task
def holds_the_lock() -> str:
    ran("begins")
    ctypes.PyDLL(None).sleep(12)
    return "kept"


@app.task
async def blocks_the_loop(seconds: int) -> str:
    ran("begins")
    time.sleep(seconds)
    return "kept"


@app.task
def waits_for_its_turn() -> int:
    ran()
    token = duly.current().job.token
    hold(f"go{token}")
    return token


@app.task
def leaves_a_process() -> int:
    ran()
    copy = os.fork()
    if copy == 0:
        time.sleep(60)
        os._exit(0)
    hold()
    return copy
"""


def test_a_dead_child_is_noticed_at_once(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start()
    jobs = [site.tasks.work.enqueue(number) for number in range(3)]
    for job in jobs:
        site.started(job)
    (child,) = worker.children()
    child.kill()
    killed = time.monotonic()
    until(
        lambda: all(job.refresh().record.token != 1 or job.state is State.PENDING for job in jobs)
    )
    back = time.monotonic() - killed
    for job in jobs:
        site.started(job, times=2)
    again = time.monotonic() - killed
    print(
        f"kill -9 of a child: jobs back after {back:.2f} s, all started again after {again:.2f} s"
    )
    site.go()
    records = site.settled(jobs)
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert [(record.crashes, record.attempt) for record in records] == [(0, 1)] * 3
    assert all(site.outcomes(job) == ["crashed", "succeeded"] for job in jobs)
    first = site.attempts(jobs[0])[0]
    assert first.error is not None
    assert first.error.message == "the process was killed by SIGKILL, likely out of memory"
    assert back < 5


def test_a_supervisor_without_descriptors_waits_for_some(fleet: MakeFleet) -> None:
    site = fleet(TASKS, lease=60.0)
    worker = site.start()
    job = site.tasks.work.enqueue(1)
    site.started(job)
    supervisor = psutil.Process(worker.pid)
    few, many = supervisor.rlimit(psutil.RLIMIT_NOFILE)
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (3, many))
    (child,) = worker.children()
    child.kill()
    worker.said("a worker process cannot be started")
    supervisor.rlimit(psutil.RLIMIT_NOFILE, (few, many))
    site.go()
    assert site.settled([job])[0].state is State.SUCCEEDED
    assert worker.terminate() == 0


def test_children_die_with_their_supervisor_and_the_next_one_takes_over(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    worker = site.start("--processes", 2)
    jobs = [site.tasks.work.enqueue() for _ in range(4)]
    for job in jobs:
        site.started(job)
    children = worker.children()
    assert len(children) == 2
    worker.kill()
    killed = time.monotonic()
    until(lambda: not any(psutil.pid_exists(child.pid) for child in children), 10)
    print(f"children gone {time.monotonic() - killed:.2f} s after kill -9 of their supervisor")
    assert {job.refresh().state for job in jobs} == {State.RUNNING}
    site.go()
    site.start(ready=False)
    records = site.settled(jobs)
    print(f"done by the next worker after {time.monotonic() - killed:.2f} s")
    assert {record.state for record in records} == {State.SUCCEEDED}
    assert {record.crashes for record in records} == {0}
    assert all(len(site.attempts(job)) == 2 for job in jobs)


def test_a_child_that_does_not_listen_dies_with_its_supervisor_all_the_same(
    fleet: MakeFleet,
) -> None:
    """The kernel sees to it: a blocked event loop cannot notice that the supervisor hung up."""
    site = fleet(TASKS)
    worker = site.start()
    job = site.tasks.blocks_the_loop.enqueue(60)
    pid = site.started(job, word="begins").pid
    worker.kill()
    until(lambda: not psutil.pid_exists(pid), 15, "the child is gone")


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("segfault", "killed by SIGSEGV"),
        pytest.param("exit", "exited with code 3", marks=long_only),
        ("exit_well", "exited with code 0"),
        pytest.param("kill", "killed by SIGKILL", marks=long_only),
    ],
)
def test_poison_dies_of_its_own_budget_and_its_neighbours_are_not_charged(
    fleet: MakeFleet, how: str, cause: str
) -> None:
    site = fleet(TASKS)
    site.start("--concurrency", 8)
    neighbours = list(site.app.enqueue_many(site.tasks.neighbour.job() for _ in range(40)))
    bad = site.tasks.poison.enqueue(how)
    neighbours += site.app.enqueue_many(site.tasks.neighbour.job() for _ in range(160))
    record = site.finished(bad)
    assert (record.state, record.reason, record.crashes) == (State.DEAD, "crashed", 3)
    assert record.error is not None
    assert cause in record.error.message
    assert site.outcomes(bad) == ["crashed"] * 4
    records = site.settled(neighbours)
    assert {each.state for each in records} == {State.SUCCEEDED}
    assert {(each.crashes, each.attempt) for each in records} == {(0, 1)}


def test_poison_in_a_transaction_dies_too(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    site.start()
    bad = site.tasks.poison_in_transaction.enqueue()
    neighbours = site.app.enqueue_many(site.tasks.neighbour.job() for _ in range(50))
    record = site.finished(bad)
    assert (record.state, record.reason, record.crashes) == (State.DEAD, "crashed", 3)
    assert {each.state for each in site.settled(neighbours)} == {State.SUCCEEDED}


def test_code_that_lets_nothing_else_run_keeps_its_lease(fleet: MakeFleet) -> None:
    """It holds the interpreter's lock, or the event loop, without using the processor."""
    site = fleet(TASKS, lease=8.0)
    site.start("--processes", 2, "--concurrency", 1)
    jobs = [site.tasks.holds_the_lock.enqueue(), site.tasks.blocks_the_loop.enqueue(12)]
    for job in jobs:
        assert job.result(timeout=60) == "kept"
        assert site.outcomes(job) == ["succeeded"], site.logs()
    assert len(site.effects("begins")) == 2


def test_a_stopped_child_is_replaced_and_its_late_word_refused(fleet: MakeFleet) -> None:
    """Two workers, because a supervisor would kill its stopped child before it can speak."""
    site = fleet(TASKS, lease=5.0)
    first = site.start()
    job = site.tasks.work.enqueue(1)
    site.started(job)
    (child,) = first.children()
    child.suspend()
    until(lambda: job.refresh().state is State.PENDING or job.record.token > 1, 30)
    site.go()
    record = site.finished(job)
    assert (record.state, record.crashes) == (State.SUCCEEDED, 0)
    assert "it was stopped for 5 s" in first.log
    assert not psutil.pid_exists(child.pid)


def test_a_stopped_worker_is_taken_over_and_finishes_nothing_twice(fleet: MakeFleet) -> None:
    site = fleet(TASKS, lease=5.0)
    first = site.start()
    jobs = [site.tasks.work.enqueue(number) for number in range(4)]
    for job in jobs:
        site.started(job)
    first.signal_tree(signal.SIGSTOP)
    stopped = time.monotonic()
    second = site.start()
    site.go()
    records = site.settled(jobs)
    print(f"a stopped worker's jobs were done by another after {time.monotonic() - stopped:.1f} s")
    assert {record.state for record in records} == {State.SUCCEEDED}
    finished = [record.finished_at for record in records]
    first.signal_tree(signal.SIGCONT)
    until(lambda: "lost its lease" in first.log or "refused" in first.log)
    assert [each.finished_at for each in site.settled(jobs)] == finished
    assert all(site.outcomes(job) == ["crashed", "succeeded"] for job in jobs)
    assert site.tasks.neighbour.enqueue().result(timeout=60) == 1
    assert second.terminate() == 0
    assert first.terminate() == 0
    for effect in site.effects("ran")[:4]:
        send(effect.pid, signal.SIGKILL)


def test_the_late_word_of_a_worker_that_was_taken_for_dead_does_not_count(fleet: MakeFleet) -> None:
    """It speaks while its successor runs the job: the token is not the latest any more.

    Its lease is long and it has no room for another claim, so nothing but the token can tell.
    """
    site = fleet(TASKS, lease=600.0)
    first = site.start("--concurrency", 1)
    job = site.tasks.waits_for_its_turn.enqueue()
    site.started(job)
    (taken_for_dead,) = site.registered()
    site.start()
    store = site.app.store
    store.run(store.reap([taken_for_dead.id], "taken for dead", expired_only=False))
    site.started(job, times=2)
    site.go("go1")
    first.said("refused")
    assert job.refresh().state is State.RUNNING
    assert job.record.token == 2
    site.go("go2")
    assert job.result(timeout=60) == 2
    assert site.outcomes(job) == ["crashed", "succeeded"]


def test_what_a_task_has_forked_does_not_hide_the_death_of_its_process(fleet: MakeFleet) -> None:
    """It holds a copy of the socket by which the supervisor listens."""
    site = fleet(TASKS)
    worker = site.start()
    job = site.tasks.leaves_a_process.enqueue()
    site.started(job)
    (child,) = [each for each in worker.children() if each.ppid() == worker.pid]
    child.kill()
    site.started(job, times=2)
    site.go()
    assert site.finished(job).state is State.SUCCEEDED
