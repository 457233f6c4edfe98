"""Threads, forks, event loops and the end of the interpreter."""

from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import apsw
import psycopg
import pytest

from duly import App, Job, JobCancelled, Task
from tests.client.driving import Hand

fork = multiprocessing.get_context("fork")


def made(app: App) -> Task[[int], int]:
    @app.task
    def work(value: int) -> int:
        return value

    return work


def migrate(url: str) -> None:
    app = App(url)
    app.migrate()
    app.close()


def values(app: App) -> list[str]:
    return sorted(job.record.arguments for job in app.list(limit=10_000))


def texts(*numbers: int) -> list[str]:
    return sorted(f'{{"value":{number}}}' for number in numbers)


# Threads


def test_sixteen_threads_submit_at_once(app: App) -> None:
    work = made(app)
    start = threading.Barrier(16)

    def submit(thread: int) -> list[Job[int]]:
        start.wait()
        return [work.enqueue(thread * 25 + index) for index in range(25)]

    with ThreadPoolExecutor(16) as threads:
        jobs = [job for made in threads.map(submit, range(16)) for job in made]
    assert len({job.id for job in jobs}) == 400
    assert values(app) == texts(*range(400))


def test_two_hundred_submissions_of_one_key_make_one_job(app: App) -> None:
    keyed = made(app).using(key="only")
    with ThreadPoolExecutor(50) as threads:
        jobs = list(threads.map(keyed.enqueue, range(200)))
    assert len({job.id for job in jobs}) == 1
    assert [job.created for job in jobs].count(True) == 1
    assert len(app.list()) == 1


def test_the_first_use_may_come_from_many_threads(url: str) -> None:
    migrate(url)
    app = App(url)
    work = made(app)
    start = threading.Barrier(16)

    def submit(value: int) -> bool:
        start.wait()
        return work.enqueue(value).created

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(submit, range(16)))
    app.close()
    assert values(app) == texts(*range(16))
    app.close()


def test_close_and_go_on(app: App) -> None:
    work = made(app)
    work.enqueue(1)
    app.close()
    app.close()
    work.enqueue(2)
    assert values(app) == texts(1, 2)


# Event loops


def test_inside_a_running_loop_and_in_one_loop_after_another(app: App) -> None:
    work = made(app)

    async def both(value: int) -> None:
        work.enqueue(value)
        await work.aenqueue(value + 1)
        await asyncio.gather(*[work.aenqueue(value + 2 + index) for index in range(20)])

    asyncio.run(both(0))
    asyncio.run(both(100))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda value: asyncio.run(both(value)), (200, 300, 400, 500)))
    assert len(values(app)) == 6 * 22


def test_waiting_in_one_loop_after_another(app: App) -> None:
    work = made(app)
    hand = Hand(app)
    for value in range(3):
        job = work.enqueue(value)
        hand.succeed(job, value)
        assert asyncio.run(job.aresult(timeout=30)) == value


def hold_postgres(url: str, ready: Path, seconds: float) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE duly.jobs IN ACCESS EXCLUSIVE MODE")
        ready.touch()
        time.sleep(seconds)


def hold_sqlite(path: str, ready: Path, seconds: float) -> None:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN IMMEDIATE")
    ready.touch()
    time.sleep(seconds)
    connection.execute("ROLLBACK")
    connection.close()


@contextmanager
def writer_held(app: App, ready: Path, seconds: float) -> Iterator[None]:
    """Another process keeps everybody from writing for a while."""
    url = app.config.url
    spawn = multiprocessing.get_context("spawn")
    if url.startswith("sqlite"):
        arguments = (url.removeprefix("sqlite:///"), ready, seconds)
        process = spawn.Process(target=hold_sqlite, args=arguments)
    else:
        process = spawn.Process(target=hold_postgres, args=(url, ready, seconds))
    process.start()
    while not ready.exists():
        assert process.is_alive()
        time.sleep(0.005)
    try:
        yield
    finally:
        process.join()
    assert process.exitcode == 0


def test_the_loop_is_never_blocked(app: App, tmp_path: Path) -> None:
    work = made(app)
    work.enqueue(-1)
    held = 2.0

    async def go() -> tuple[float, float]:
        longest = 0.0
        done = asyncio.Event()

        async def tick() -> None:
            nonlocal longest
            while not done.is_set():
                before = time.monotonic()
                await asyncio.sleep(0.005)
                longest = max(longest, time.monotonic() - before)

        ticker = asyncio.create_task(tick())
        started = time.monotonic()
        await asyncio.gather(*[work.aenqueue(value) for value in range(50)])
        took = time.monotonic() - started
        done.set()
        await ticker
        return took, longest

    with writer_held(app, tmp_path / "ready", held):
        took, longest = asyncio.run(go())
    assert took > held / 3, "the submissions did not have to wait: nothing was tested"
    assert longest < held / 2
    assert len(values(app)) == 51


# Fork


def run_in_fork(action: Callable[[], None]) -> None:
    """Run the action in a forked child, which must end by itself and well."""
    child = fork.Process(target=action)
    child.start()
    child.join(60)
    alive = child.is_alive()
    if alive:
        child.kill()
        child.join()
    assert not alive, "the child hangs"
    assert child.exitcode == 0


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_parent_and_child_both_go_on_after_a_fork(app: App) -> None:
    work = made(app)
    hand = Hand(app)
    finished = work.enqueue(0)
    hand.succeed(finished, 7)
    assert finished.result(timeout=30) == 7

    def child() -> None:
        work.enqueue(1)
        asyncio.run(work.aenqueue(2))
        app.enqueue_many([work.job(3), work.job(4)])
        with app.transaction():
            work.enqueue(5)
        assert finished.result(timeout=30) == 7

    waiting = work.using(delay=600).enqueue(6)
    with ThreadPoolExecutor(1) as threads:
        # A thread waits, holding what it holds, at the moment of the fork.
        future = threads.submit(waiting.result, 60)
        run_in_fork(child)
        work.enqueue(7)
        run_in_fork(child)
        work.enqueue(8)
        assert waiting.cancel() == "cancelled"
        assert future.exception() is not None
    assert asyncio.run(work.aenqueue(9)).created
    assert values(app) == texts(0, *([1, 2, 3, 4, 5] * 2), 6, 7, 8, 9)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_an_unused_app_is_forked(url: str) -> None:
    migrate(url)
    app = App(url)
    work = made(app)

    def child() -> None:
        work.enqueue(1)
        app.close()

    run_in_fork(child)
    work.enqueue(2)
    assert values(app) == texts(1, 2)
    app.close()


def test_a_working_directory_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = App("sqlite:///folder/jobs.db")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    work = made(app)
    work.enqueue(1)
    assert values(app) == texts(1)
    app.close()
    assert (tmp_path / "folder" / "jobs.db").exists()
    assert list(elsewhere.iterdir()) == []


# The end of the interpreter


def run_script(text: str, *arguments: str) -> str:
    """Run a program to its end, which must come soon, in peace and without a word."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


SCRIPT = """
    import asyncio, sys, threading
    from duly import App, ResultTimeout

    app = App(sys.argv[1])

    @app.task
    def work(value: int) -> int: ...

    job = work.enqueue(1)
    asyncio.run(work.aenqueue(2))
    app.list()
"""


GO_ON = """
def go_on():
    threading.main_thread().join()
    work.enqueue(3)
    app.list()
    app.get(job.id)

threading.Thread(target=go_on).start()
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "threading.Thread(target=job.result, daemon=True).start()",
        "threading.Thread(target=job.result, args=[60], daemon=True).start(); work.enqueue(3)",
        "app.transaction().__enter__()",
        "sys.exit(0)",
        GO_ON,
    ],
    ids=["plain", "waiting", "busy", "transaction", "exit", "a thread goes on"],
)
def test_the_interpreter_ends_with_an_open_app(url: str, ending: str) -> None:
    migrate(url)
    started = time.monotonic()
    run_script(textwrap.dedent(SCRIPT) + ending, url)
    assert time.monotonic() - started < 20


def test_an_import_brings_no_drivers_along() -> None:
    output = run_script(
        """
        import sys, time
        started = time.perf_counter()
        import duly
        took = time.perf_counter() - started
        heavy = ("psycopg", "psycopg_pool", "psycopg2", "sqlalchemy", "asyncpg", "click", "rich",
                 "pydantic", "starlette", "uvicorn", "multiprocessing", "apsw")
        print([name for name in heavy if name in sys.modules])
        print(f"import duly took {took * 1000:.0f} ms")
        """
    )
    loaded, took = output.splitlines()
    assert loaded == "[]"
    print(took)


def test_an_app_on_sqlite_needs_no_postgresql_driver(tmp_path: Path) -> None:
    output = run_script(
        """
        import sys
        from duly import App
        app = App(sys.argv[1])
        app.named("work", unchecked=True).enqueue()
        app.close()
        print([name for name in ("psycopg", "sqlalchemy", "asyncpg") if name in sys.modules])
        """,
        f"sqlite:///{tmp_path / 'jobs.db'}",
    )
    assert output == "[]\n"


def test_without_psycopg_the_advice_is_to_install_it(tmp_path: Path) -> None:
    output = run_script(
        """
        import sys
        sys.modules["psycopg"] = None
        from duly import App, ConfigurationError
        try:
            App("postgresql://localhost/x")
        except ConfigurationError as error:
            print(error)
        """
    )
    assert "pip install 'duly[postgres]'" in output


def test_a_closed_app_leaves_no_threads(url: str) -> None:
    before = set(threading.enumerate())
    app = App(url)
    app.migrate()
    work = made(app)
    job = work.enqueue(1)
    asyncio.run(work.aenqueue(2))
    assert job.cancel() == "cancelled"
    with pytest.raises(JobCancelled):
        job.result(timeout=30)
    app.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


INTERRUPTED_ELSEWHERE = """
import signal, sys, threading, time
import duly

app = duly.App(sys.argv[1])

@app.task
def never() -> None: ...

job = never.enqueue()
main = threading.get_ident()

def is_blocked() -> bool:
    frame, called = sys._current_frames()[main], []
    while frame is not None:
        called.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_name}")
        frame = frame.f_back
    return called[:2] == ["duly.client.waiting.next_of", "duly.client.job.result"]

def interrupt() -> None:
    while not is_blocked():
        time.sleep(0.001)
    # The thread that hears of it is not the one that waits, as when Python was about to block.
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Thread(target=interrupt).start()
try:
    job.result()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_does_not_reach_who_waits_is_noticed_soon(url: str) -> None:
    migrate(url)
    program = [sys.executable, "-c", INTERRUPTED_ELSEWHERE, url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "interrupted\n"
