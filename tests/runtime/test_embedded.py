"""Workers inside the user's own program: their start, their stop, and the program's death."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import psutil
import pytest

from duly import App, ConfigurationError, Job, State
from duly.model.settlement import Settlement, release
from duly.runtime import embedded
from duly.runtime.settler import Settler
from duly.runtime.worker import Worker
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import running, until


def _guardians(pid: int | None = None) -> list[psutil.Process]:
    return running("duly.runtime.guardian", psutil.Process(pid).children())


def test_start_and_stop_and_start_again(app: App) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    for _ in range(2):
        app.start(workers=2)
        with pytest.raises(ConfigurationError, match="running already"):
            app.start()
        assert double.enqueue(21).result(timeout=30) == 42
        assert len(_guardians()) == 1
        app.stop()
        app.stop()
        assert _guardians() == []
    assert app.store.run(app.store.workers()) == []


def test_a_block_stops_its_worker_whatever_happens(app: App) -> None:
    @app.task
    def slow() -> str:
        started.set()
        time.sleep(0.3)
        return "finished in the grace period"

    started = threading.Event()
    jobs = []

    def program() -> None:
        with app.running():
            jobs.append(slow.enqueue())
            assert started.wait(30)
            raise KeyError

    with pytest.raises(KeyError):
        program()
    assert jobs[0].refresh().state is State.SUCCEEDED
    assert app.store.run(app.store.workers()) == []
    assert not [each for each in threading.enumerate() if each.name == "duly-worker"]


def test_inside_a_running_event_loop(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        await asyncio.sleep(0.01)
        return number * 2

    async def program() -> list[int]:
        async with app.arunning(workers=3):
            jobs = [await double.aenqueue(number) for number in range(5)]
            return [await job.aresult(timeout=30) for job in jobs]

    assert asyncio.run(program()) == [0, 2, 4, 6, 8]


def test_stop_without_waiting_releases_what_runs(app: App) -> None:
    @app.task(retries=0)
    def long() -> None:
        started.set()
        go.wait(30)

    started, go = threading.Event(), threading.Event()
    app.start()
    job = long.enqueue()
    assert started.wait(30)
    before = time.monotonic()
    app.stop(wait=False)
    assert time.monotonic() - before < 8
    go.set()
    record = job.refresh().record
    assert (record.state, record.attempt, record.alone) == (State.PENDING, 0, False), record.error
    assert [attempt.outcome.value for attempt in job.attempts()] == ["released"]
    assert app.run_until_idle() == 1
    assert job.refresh().state is State.SUCCEEDED


def test_stop_does_not_wait_for_a_coroutine_that_cannot_be_cancelled(app: App) -> None:
    @app.task
    async def stubborn() -> None:
        started.set()
        while not go.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    started, go = threading.Event(), threading.Event()
    app.start()
    job = stubborn.enqueue()
    assert started.wait(30)
    before = time.monotonic()
    app.stop(wait=False)
    assert time.monotonic() - before < 12
    go.set()
    assert job.refresh().state is State.PENDING


def test_run_until_idle_leaves_what_is_not_due(app: App) -> None:
    @app.task
    def first() -> None:
        second.enqueue()

    @app.task
    def second() -> None:
        return None

    first.enqueue()
    later = second.using(delay=3600).enqueue()
    assert app.run_until_idle() == 2
    assert later.refresh().state is State.PENDING


def test_run_until_idle_gives_up_after_its_time(app: App) -> None:
    @app.task
    def endless() -> None:
        go.wait(30)

    go = threading.Event()
    endless.enqueue()
    with pytest.raises(TimeoutError):
        app.run_until_idle(timeout=0.5)
    go.set()


def test_a_dead_guardian_is_replaced_and_the_lease_is_kept(app: App) -> None:
    @app.task
    def long() -> str:
        started.set()
        go.wait(60)
        return "still mine"

    started, go = threading.Event(), threading.Event()
    with app.running():
        job = long.enqueue()
        assert started.wait(30)
        until(lambda: _lease_left(app) <= app.config.lease, why="the guardian has begun")
        (before,) = app.store.run(app.store.workers())
        (guardian,) = _guardians()
        guardian.kill()
        until(lambda: _guardians() and guardian.pid not in [each.pid for each in _guardians()])
        left = _lease_left(app)
        until(lambda: _lease_left(app) > left, why="its successor renews the lease")
        (after,) = app.store.run(app.store.workers())
        assert after.id == before.id
        go.set()
        assert job.result(timeout=30) == "still mine"
    assert job.record.attempt == 1


def test_the_first_lease_lasts_until_the_guardian_has_begun(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts slowly on a busy machine; the first job may hold the interpreter's lock."""
    app = App(url, lease=2)
    app.migrate()
    monkeypatch.setattr(embedded, "_spawn_guardian", _spawn_nobody)

    @app.task
    def long() -> str:
        time.sleep(5)
        return "kept"

    with app.running():
        job = long.enqueue()
        assert job.result(timeout=60) == "kept"
    assert [attempt.outcome.value for attempt in job.attempts()] == ["succeeded"]
    app.close()


def test_an_outcome_that_is_late_is_refused_aloud(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the worker learns meanwhile, from its next claim, that it was taken for dead."""
    app = App(url, lease=600)
    app.migrate()
    started, go, lost = threading.Event(), threading.Event(), threading.Event()
    write, lose = Settler._write, Worker.lose_lease

    async def write_late(settler: Settler, batch: list[Settlement]) -> None:
        await asyncio.to_thread(lost.wait, 30)
        await write(settler, batch)

    def lose_aloud(worker: Worker) -> None:
        lose(worker)
        lost.set()

    monkeypatch.setattr(Settler, "_write", write_late)
    monkeypatch.setattr(Worker, "lose_lease", lose_aloud)

    @app.task
    def long() -> None:
        started.set()
        go.wait(60)

    with app.running(workers=1):
        job = long.enqueue()
        assert started.wait(60)
        (worker,) = app.store.run(app.store.workers())
        app.store.run(app.store.reap([worker.id], "taken for dead", expired_only=False))
        go.set()
        job.result(timeout=60)
    assert [attempt.outcome.value for attempt in job.attempts()] == ["crashed", "succeeded"]
    assert f"refused: the outcome succeeded of job {job.id} under token 1" in caplog.text
    app.close()


def test_a_job_that_comes_back_while_its_first_attempt_runs(app: App) -> None:
    """Somebody has taken it from its worker by mistake: each attempt has its own end."""
    held = [threading.Event(), threading.Event()]
    numbers = itertools.count(1)
    started: list[int] = []

    @app.task
    def long() -> int:
        number = next(numbers)
        started.append(number)
        if number <= len(held):
            held[number - 1].wait(60)
        return number

    with app.running(workers=2):
        job = long.enqueue()
        until(lambda: len(started) == 1)
        app.store.run(app.store.settle([release(job.id, job.refresh().record.token)]))
        until(lambda: len(started) == 2)
        held[0].set()
        held[1].set()
        assert job.result(timeout=60) == 2
        assert long.enqueue().result(timeout=60) == 3
    assert [each.outcome.value for each in job.attempts()] == ["released", "succeeded"]


def _lease_left(app: App) -> float:
    (worker,) = app.store.run(app.store.workers())
    return worker.lease_left


def _spawn_nobody(descriptor: int, board: int) -> subprocess.Popen[bytes]:
    """A process that listens and never renews."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import os\nwhile os.read({descriptor}, 1000): pass"],
        pass_fds=[descriptor, board],
    )


@pytest.mark.parametrize("code", ["holds_the_lock", "blocks_the_loop"])
def test_code_that_lets_nothing_else_run_keeps_the_lease(url: str, code: str) -> None:
    """Neither uses the processor meanwhile."""
    app = App(url, lease=8)
    app.migrate()

    @app.task
    def holds_the_lock() -> str:
        ctypes.PyDLL(None).sleep(12)
        return "kept"

    @app.task
    async def blocks_the_loop() -> str:
        time.sleep(12)  # noqa: ASYNC251
        return "kept"

    with app.running():
        job = app.named(code).enqueue()
        assert job.result(timeout=60) == "kept"
    assert [attempt.outcome.value for attempt in job.attempts()] == ["succeeded"]
    app.close()


def test_a_database_in_memory_needs_no_guardian() -> None:
    app = App("sqlite://")

    @app.task
    def one() -> int:
        return 1

    with app.running():
        assert one.enqueue().result(timeout=30) == 1
        assert _guardians() == []
    app.close()


TASKS = """
@app.task
def work() -> str:
    ran()
    hold()
    return "done"
"""

# No `if __name__ == "__main__"`: it must not be needed. The tasks are the script's own.
SCRIPT = """
import os, time
import duly
from tasks import HERE, app, effect, hold, ran

if os.environ.get("FORK"):
    holder = os.fork()
    if holder == 0:
        time.sleep(60)
        os._exit(0)

@app.task(name="own")
def own() -> str:
    ran()
    hold()
    return "done"

app.start(workers=4)
effect("program", os.getpid())
if os.environ.get("FORK"):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
while not (HERE / "end").exists():
    time.sleep(0.02)
app.stop()
"""


def test_an_unguarded_script_and_its_death(fleet: MakeFleet, tmp_path: Path) -> None:
    """After kill -9 its jobs are back at once, and the next run of the script does them."""
    site = fleet(TASKS)
    program = site.script(SCRIPT)
    until(lambda: site.lines("program") or program.poll() is not None, why="it starts")
    assert program.poll() is None, site.output()
    jobs = [site.app.named("own", unchecked=True).enqueue() for _ in range(3)]
    jobs.append(site.tasks.work.enqueue())
    for job in jobs:
        site.started(job)
    program.kill()
    killed = time.monotonic()
    program.wait()
    until(lambda: all(job.refresh().state is State.PENDING for job in jobs), 10)
    print(f"back after kill -9 of the program: {time.monotonic() - killed:.2f} s")
    until(lambda: not site.survivors(), 10, "the guardian ends")
    site.go()
    second = site.script(SCRIPT, "second.py")
    records = site.settled(jobs)
    assert {record.state for record in records} == {State.SUCCEEDED}, site.output("second.py")
    assert {record.crashes for record in records} == {0}
    site.go("end")
    assert second.wait(60) == 0, site.output("second.py")
    until(lambda: not site.survivors(), 10, "nothing is left")
    assert "Traceback" not in site.output("second.py")


def test_a_forked_process_does_not_hide_the_death_of_the_program(
    fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a copy of the socket by which the guardian would notice."""
    monkeypatch.setenv("FORK", "1")
    site = fleet(TASKS)
    program = site.script(SCRIPT)
    until(lambda: site.lines("program"), why="it starts")
    job = site.tasks.work.enqueue()
    site.started(job)
    program.kill()
    program.wait()
    until(lambda: job.refresh().state is State.PENDING, 10)


def test_a_stopped_program_loses_its_jobs_after_a_lease(fleet: MakeFleet) -> None:
    """Its guardian lives, and must not keep the lease for it."""
    site = fleet(TASKS, lease=5.0)
    program = site.script(SCRIPT)
    until(lambda: site.lines("program"), why="it starts")
    job = site.tasks.work.enqueue()
    site.started(job)
    _stop_between_writes(program, site.url)
    until(lambda: job.refresh().state is State.PENDING)
    site.go()
    program.send_signal(signal.SIGCONT)
    record = site.finished(job)
    assert (record.state, record.attempt) == (State.SUCCEEDED, 1)
    assert site.outcomes(job) == ["crashed", "succeeded"]
    site.go("end")
    assert program.wait(60) == 0, site.output()


def test_the_signals_of_the_program_are_its_own(app: App) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with app.running():
        after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert before == after
    assert os.getpid() == psutil.Process().pid


def _stop_between_writes(program: subprocess.Popen[bytes], url: str) -> None:
    """Stop the program, but not with SQLite's only write lock in its hands: nobody could take
    anything back before it goes on."""
    while True:
        program.send_signal(signal.SIGSTOP)
        until(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
        if not url.startswith("sqlite") or _can_be_written(url):
            return
        program.send_signal(signal.SIGCONT)


def _can_be_written(url: str) -> bool:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(500)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    except apsw.BusyError:
        return False
    finally:
        connection.close()
    return True


def test_what_a_job_makes_due_at_its_end_is_not_overlooked(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker hears late that nothing was due: the job has ended since, and made another."""
    asked = threading.Event()
    done: list[str] = []
    jobs: list[Job[None]] = []

    @app.task
    def second() -> None:
        done.append("second")

    @app.task
    def first() -> None:
        assert asked.wait(60)
        second.enqueue()
        done.append("first")

    store, arun, next_due = app.store, app.store.arun, app.store.next_due
    questions: list[object] = []

    def remembered(*args: Any, **kwargs: Any) -> Any:
        questions.append(next_due(*args, **kwargs))
        return questions[-1]

    async def late(operation: Any) -> Any:
        answer = await arun(operation)
        if operation in questions and not asked.is_set():
            asked.set()
            await jobs[0].aresult(timeout=60)
        return answer

    monkeypatch.setattr(store, "next_due", remembered)
    monkeypatch.setattr(store, "arun", late)
    jobs.append(first.enqueue())
    app.run_until_idle(timeout=60)
    assert done == ["first", "second"]
