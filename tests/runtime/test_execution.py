"""What a worker does with one job: async, in threads, in processes; results and failures."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import duly
from duly import App, JobFailed, State
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import until

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@dataclass
class Order:
    """A typed argument."""

    number: int
    at: datetime


def test_async_and_blocking_tasks_return_typed_results(app: App) -> None:
    @app.task
    async def later(order: Order) -> Order:
        await asyncio.sleep(0)
        return Order(order.number + 1, order.at)

    @app.task
    def now(order: Order) -> Order:
        return Order(order.number + 2, order.at)

    order = Order(1, datetime(2030, 1, 1, tzinfo=UTC))
    jobs = [later.enqueue(order), now.enqueue(order)]
    assert app.run_until_idle() == 2
    assert [job.result(timeout=5) for job in jobs] == [Order(2, order.at), Order(3, order.at)]


def test_blocking_tasks_run_side_by_side_and_off_the_loop(app: App) -> None:
    together = threading.Barrier(4)

    @app.task
    def meet() -> str:
        together.wait(30)
        return threading.current_thread().name

    jobs = [meet.enqueue() for _ in range(4)]
    assert app.run_until_idle(workers=4) == 4
    assert {job.result(timeout=5) for job in jobs} == {"duly-task"}


def test_concurrency_is_the_limit(app: App) -> None:
    most, running, lock = 0, 0, threading.Lock()

    @app.task
    def count() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.005)
        with lock:
            running -= 1

    app.enqueue_many(count.job() for _ in range(30))
    assert app.run_until_idle(workers=3) == 30
    assert most <= 3


def test_context_variables_do_not_leak_from_job_to_job(app: App) -> None:
    @app.task
    def paint(colour: str) -> str:
        before = COLOUR.get()
        COLOUR.set(colour)
        return before

    @app.task
    async def paint_later(colour: str) -> str:
        before = COLOUR.get()
        COLOUR.set(colour)
        return before

    jobs = [task.enqueue("red") for task in (paint, paint_later) for _ in range(5)]
    app.run_until_idle(workers=1)
    assert {job.result(timeout=5) for job in jobs} == {"none"}


def test_the_context_tells_the_job(app: App) -> None:
    @app.task(name="ask", tags=["a"])
    async def ask() -> list[Any]:
        context = duly.current()
        return [str(context.id), context.attempt, context.idempotency_key, context.cancelled]

    job = ask.enqueue()
    app.run_until_idle()
    assert job.result(timeout=5) == [str(job.id), 1, str(job.id), False]
    with pytest.raises(duly.DulyError, match="no job is running"):
        duly.current()


class Unspeakable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("bad\x00 \ud800"), "ValueError"),
        (Unspeakable(), "Unspeakable"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
    ],
)
def test_whatever_a_task_raises_is_a_failure_of_that_attempt(
    app: App, error: BaseException, kind: str
) -> None:
    """And is worth another one: it may be the end of something that the task had started."""

    @app.task(retries=1, backoff=0.01)
    def block() -> None:
        raise error

    @app.task(retries=1, backoff=0.01)
    async def wait() -> None:
        raise error

    tasks = [block] if isinstance(error, GeneratorExit) else [block, wait]
    with app.running(workers=2):
        jobs = [task.enqueue() for task in tasks]
        for job in jobs:
            with pytest.raises(JobFailed):
                job.result(timeout=30)
    for job in jobs:
        attempts = job.attempts()
        assert [attempt.outcome.value for attempt in attempts] == ["failed", "failed"]
        assert {attempt.error and attempt.error.type for attempt in attempts} == {kind}
        assert job.record.reason == "attempts exhausted"


def test_a_result_that_cannot_be_stored_fails_the_attempt(app: App) -> None:
    @app.task(retries=0)
    def strange() -> Any:
        return object()

    @app.task(retries=0)
    def large() -> str:
        return "x" * (app.config.payload_limit + 1)

    @app.task(retries=0)
    def wrong() -> int:
        return "text"  # type: ignore[return-value]

    jobs = [task.enqueue() for task in (strange, large, wrong)]
    app.run_until_idle()
    assert {job.refresh().state for job in jobs} == {State.DEAD}
    assert jobs[1].record.error is not None
    assert "result" in jobs[1].record.error.message


def test_stored_arguments_that_do_not_fit_the_code_any_more(app: App) -> None:
    stale = app.named("renamed", unchecked=True).enqueue(text="one")

    @app.task(name="renamed", retries=5)
    def renamed(count: int) -> int:
        return count

    app.run_until_idle()
    assert stale.refresh().state is State.DEAD
    assert stale.record.reason == "invalid arguments"
    assert len(stale.attempts()) == 1
    assert stale.record.error is not None
    assert "'count'" in stale.record.error.message


def test_jobs_of_unknown_tasks_wait_and_burn_nothing(app: App) -> None:
    waiting = app.named("not_here", unchecked=True).enqueue()

    @app.task
    def here() -> int:
        return 1

    done = here.enqueue()
    assert app.run_until_idle() == 1
    assert done.result(timeout=5) == 1
    assert (waiting.refresh().state, waiting.record.attempt) == (State.PENDING, 0)
    assert waiting.attempts() == []


def test_progress_and_log_lines_can_be_read_while_the_job_runs(app: App) -> None:
    go = threading.Event()
    logger = logging.getLogger("shop")

    @app.task
    def work() -> None:
        duly.current().progress(0.25, "one of\x00 four \ud800")
        logger.warning("a NUL: \x00")
        go.wait(30)
        for number in range(3000):
            logger.warning("line %d", number)
        duly.current().progress(1.0)

    store = app.store
    with app.running():
        job = work.enqueue()
        progress = until(lambda: store.run(store.progress(job.id)))
        assert progress is not None
        assert progress.fraction == 0.25
        lines = until(lambda: store.run(store.log_lines(job.id)))
        assert (lines[0].logger, lines[0].level) == ("shop", "WARNING")
        assert job.refresh().state is State.RUNNING
        go.set()
        job.result(timeout=30)
    lines = store.run(store.log_lines(job.id))
    assert len(lines) == 1000
    assert lines[-1].message == "further lines are not kept"
    done = store.run(store.progress(job.id))
    assert done is not None
    assert done.fraction == 1.0


def test_hooks_are_called_with_the_record_once_the_outcome_is_stored(app: App) -> None:
    seen: list[tuple[str, State]] = []

    async def won(record: duly.JobRecord) -> None:
        await asyncio.sleep(0.05)
        seen.append(("won", record.state))

    def failed(record: duly.JobRecord) -> None:
        seen.append(("failed", record.state))
        raise RuntimeError("a hook may fail")

    def dead(record: duly.JobRecord) -> None:
        seen.append(("dead", record.state))

    @app.task(on_success=won, on_failure=failed, on_dead=dead)
    def good() -> None:
        return None

    @app.task(retries=0, on_success=won, on_failure=failed, on_dead=dead)
    def bad() -> None:
        raise ValueError

    good.enqueue()
    bad.enqueue()
    app.run_until_idle()
    assert sorted(seen) == [
        ("dead", State.DEAD),
        ("failed", State.DEAD),
        ("won", State.SUCCEEDED),
    ]


def test_the_first_of_many_jobs_with_an_unstorable_outcome_does_not_stop_the_others(
    app: App,
) -> None:
    @app.task
    def odd() -> None:
        raise duly.Cancel("because\x00of \ud800")

    @app.task
    def even() -> int:
        return 2

    odd_job = odd.enqueue()
    jobs = [even.enqueue() for _ in range(5)]
    app.run_until_idle(timeout=60)
    assert [job.result(timeout=5) for job in jobs] == [2] * 5
    assert odd_job.refresh().state is State.CANCELLED
    assert odd_job.record.reason == "because\\x00of \\ud800"


ISOLATED = """
import logging


@app.task(isolate=True)
def alone(number: int) -> int:
    ran()
    duly.current().progress(0.5, "half")
    logging.getLogger("shop").warning("line %d of %s", number, duly.current().attempt)
    return os.getpid()


@app.task(cpu=True)
async def later() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task(isolate=True, retries=0)
def raises(kind: str) -> None:
    if kind == "cancelled":
        raise asyncio.CancelledError
    if kind == "exit":
        sys.exit(3)
    raise ValueError(kind)


@app.task(isolate=True, memory_limit=400_000_000, retries=0)
def hog() -> int:
    return len(bytearray(1_000_000_000))


@app.task(isolate=True)
def threads() -> int:
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return os.getpid()


@app.task(isolate=True)
def forks() -> str:
    if os.fork() == 0:
        return "from the copy"
    return "from the original"


@app.task
def odd_text() -> int:
    logging.getLogger("shop").warning("half a pair: \\ud800")
    return 1


@app.task
def fork_in_thread() -> str:
    return "copy" if os.fork() == 0 else "original"


@app.task
async def fork_on_loop() -> str:
    return "copy" if os.fork() == 0 else "original"


@app.task(isolate=True)
def subprocess_can_be_stopped() -> int:
    import signal, subprocess
    child = subprocess.Popen(["sleep", "60"])
    child.send_signal(signal.SIGINT)
    return child.wait(30)
"""


def test_isolated_tasks(fleet: MakeFleet) -> None:
    site = fleet(ISOLATED)
    worker = site.start("--concurrency", 4)
    tasks = site.tasks
    job = tasks.alone.enqueue(7)
    first = job.result(timeout=60)
    child = worker.children()[0].pid
    assert first not in (os.getpid(), worker.pid, child)
    store = site.app.store
    lines = until(lambda: store.run(store.log_lines(job.id)))
    assert [line.message for line in lines] == ["line 7 of 1"]
    progress = store.run(store.progress(job.id))
    assert progress is not None
    assert (progress.fraction, progress.message) == (0.5, "half")
    assert tasks.alone.enqueue(8).result(timeout=60) == first, "the process is used again"
    assert tasks.later.enqueue().result(timeout=60) != child

    failed = [tasks.raises.enqueue(kind) for kind in ("cancelled", "exit", "plain")]
    records = site.settled(failed)
    kinds = [record.error.type for record in records if record.error is not None]
    assert kinds == ["CancelledError", "SystemExit", "ValueError"]
    assert all(site.outcomes(job) == ["failed"] for job in failed)

    hog = site.finished(tasks.hog.enqueue())
    assert hog.error is not None
    assert hog.error.type == "MemoryError"

    with_threads = tasks.threads.enqueue().result(timeout=60)
    assert tasks.threads.enqueue().result(timeout=60) != with_threads
    assert tasks.subprocess_can_be_stopped.enqueue().result(timeout=60) == -2

    odd = tasks.odd_text.enqueue()
    assert odd.result(timeout=60) == 1
    lines = until(lambda: store.run(store.log_lines(odd.id)))
    assert lines[0].message == "half a pair: \\ud800"

    for task in (tasks.forks, tasks.fork_in_thread, tasks.fork_on_loop):
        jobs = [task.enqueue() for _ in range(4)]
        answers = {job.result(timeout=60) for job in jobs}
        assert answers <= {"from the original", "original"}
    assert worker.children()[0].pid == child, worker.log
    until(lambda: len(worker.children()) == 1, why="the copies are gone")
    assert worker.terminate() == 0
    until(lambda: not site.survivors(), why="nothing is left behind")
