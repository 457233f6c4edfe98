"""Thousands of short jobs while processes are killed and stopped at random.

What must hold is judged by three records: what was submitted, what the store says, and what the
tasks wrote to a file of their own.
"""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from duly import Job, State
from tests.chaos.conftest import MakeFleet, Storm
from tests.support.fleet import Fleet, WorkerProcess, long_only, send, until

TASKS = """
@app.task(retries=0, backoff=0.05)
def block(number: int) -> int:
    ran("begins")
    time.sleep(0.1)
    ran("ends")
    return number


@app.task(retries=0, backoff=0.05)
async def wait(number: int) -> int:
    ran("begins")
    await asyncio.sleep(0.1)
    ran("ends")
    return number
"""


def _submit(site: Fleet, jobs: list[Job[int]], count: int) -> None:
    tasks = (site.tasks.block, site.tasks.wait)
    numbers = range(len(jobs), len(jobs) + count)
    jobs += site.app.enqueue_many(tasks[number % 2].job(number) for number in numbers)


def _check(site: Fleet, jobs: list[Job[int]]) -> None:
    """Nothing is lost, nothing finishes twice, nobody is charged for the death of another."""
    records = site.settled(jobs, 300)
    assert Counter(record.state for record in records) == {State.SUCCEEDED: len(jobs)}
    assert {(record.attempt, record.crashes) for record in records} == {(1, 0)}
    assert [record.result for record in records] == [str(number) for number in range(len(jobs))]
    ends = Counter(effect.key for effect in site.effects("ends"))
    assert set(ends) == {str(job.id) for job in jobs}, "each effect happened, under its key"
    begins = Counter((effect.key, effect.token) for effect in site.effects("begins"))
    assert max(begins.values()) == 1, "one begin for each claim"
    repeats = sum(count - 1 for count in ends.values())
    crashed = 0
    for job, record in zip(jobs, records, strict=True):
        if record.token > 1:
            outcomes = site.outcomes(job)
            assert outcomes[-1] == "succeeded"
            assert outcomes.count("succeeded") == 1
            assert set(outcomes[:-1]) <= {"crashed", "released"}
            crashed += outcomes.count("crashed")
    print(f"{len(jobs)} jobs, {crashed} attempts cut short, {repeats} effects repeated")


@pytest.mark.parametrize(
    "victims",
    [
        "children",
        pytest.param("supervisors", marks=long_only),
        pytest.param("trees", marks=long_only),
    ],
)
def test_kill(fleet: MakeFleet, url: str, storm: Storm, victims: str) -> None:
    site = fleet(url, TASKS, lease=5.0)
    options = ("--processes", 2, "--concurrency", 8)
    workers = [site.start(*options) for _ in range(2)]
    jobs: list[Job[int]] = []
    killed = 0
    deadline = time.monotonic() + storm.seconds
    while time.monotonic() < deadline:
        _submit(site, jobs, storm.jobs // 6)
        time.sleep(storm.chance.uniform(0.05, 0.5))
        chosen = storm.chance.randrange(len(workers))
        worker = workers[chosen]
        killed += 1
        if victims == "children":
            for child in worker.children()[:1]:
                send(child.pid, signal.SIGKILL)
        else:
            if victims == "trees":
                worker.signal_tree(signal.SIGKILL)
            worker.kill()
            workers[chosen] = site.start(*options, ready=False)
        time.sleep(storm.chance.uniform(0.1, 1.0))
    print(f"{killed} {victims} killed in {storm.seconds:g} s")
    _check(site, jobs)
    until(lambda: all(len(worker.children()) == 2 for worker in workers), why="all are there")
    until(lambda: len(site.registered()) == 4, why="and nobody else")
    for worker in workers:
        assert worker.terminate() == 0
    until(lambda: not site.survivors(), why="nothing is left")


def test_stop_and_continue(fleet: MakeFleet, url: str, storm: Storm) -> None:
    """Workers that sleep through their lease, and wake."""
    site = fleet(url, TASKS, lease=5.0)
    options = ("--processes", 2, "--concurrency", 8)
    workers = [site.start(*options) for _ in range(2)]
    jobs: list[Job[int]] = []
    deadline = time.monotonic() + storm.seconds
    while time.monotonic() < deadline:
        _submit(site, jobs, storm.jobs // 4)
        worker = storm.chance.choice(workers)
        time.sleep(storm.chance.uniform(0.05, 0.3))
        _stop_for(worker, storm.chance.uniform(1.0, 9.0))
        time.sleep(storm.chance.uniform(0.1, 0.5))
    _check(site, jobs)
    for worker in workers:
        assert worker.terminate() == 0


def _stop_for(worker: WorkerProcess, seconds: float) -> None:
    stopped = worker.tree()
    for pid in stopped:
        send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    for pid in reversed(stopped):
        send(pid, signal.SIGCONT)
