"""The processes of a run: Duly's workers, and bare loops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from bench.application import TARGET, Application, build
from bench.engines.protocol import Database
from tests.support.fleet import WorkerProcess

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
PATIENCE = 300.0
LONGEST_STOP = 30.0
LOOK = 0.2
SHARE = 20
"""Of a wait, one part of so many at most goes into looking: to count what a large drain has
finished takes a processor's time from it."""
BUSY = 0.2
"""The part of a processor's time that processes at rest do not use together."""


class TookTooLong(Exception):
    """Something did not happen in time; the message says what, and what the worker said."""


def wait_until(
    condition: Callable[[], T], what: str, look: float = LOOK, patience: float = PATIENCE
) -> T:
    """Ask again and again until the answer is true."""
    begun = time.monotonic()
    deadline = begun + patience
    while not (answer := condition()):
        looked = time.monotonic()
        if looked > deadline:
            raise TookTooLong(f"not within {patience:g} s: {what}")
        time.sleep(max(look, (looked - begun) * SHARE))
        begun = time.monotonic()
    return answer


def wait_for_finished(database: Database, jobs: int) -> None:
    """Wait until so many jobs are in the archive."""
    wait_until(lambda: database.finished() >= jobs, f"{jobs} jobs are finished")


@contextmanager
def application(database: Database) -> Iterator[Application]:
    """An app of this process on the database, with Duly's tables in it."""
    made = build(database.url)
    made.app.migrate()
    try:
        yield made
    finally:
        made.app.close()


@contextmanager
def workers(
    database: Database,
    processes: int = 1,
    concurrency: int = 10,
    settings: Mapping[str, str] | None = None,
) -> Iterator[WorkerProcess]:
    """`duly worker` with so many processes, without waiting for them; ended with the block."""
    log = database.folder / "worker.log"
    command = [sys.executable, "-m", "duly", "worker", TARGET, "--log-level", "warning"]
    command += ["--processes", str(processes), "--concurrency", str(concurrency)]
    process = _start(command, log, {"DULY_URL": database.url, **(settings or {})})
    worker = WorkerProcess(process, log)
    try:
        yield worker
    except TookTooLong as problem:
        raise TookTooLong(f"{problem}\nThe worker's log:\n{worker.log[-4000:]}") from problem
    finally:
        _end(worker)


@contextmanager
def warm_workers(
    database: Database,
    app: Application,
    processes: int = 1,
    concurrency: int = 10,
    settings: Mapping[str, str] | None = None,
) -> Iterator[WorkerProcess]:
    """The same, ready: every process is up and at rest, and one has run a job."""
    with workers(database, processes, concurrency, settings) as worker:
        store = app.app.store
        wait_until(
            lambda: (
                len(store.run(store.workers())) >= processes or worker.process.poll() is not None
            ),
            "the workers register",
            look=0.05,
        )
        if worker.process.poll() is not None:
            raise TookTooLong("the worker has ended")
        try:
            app.warm_up.enqueue().result(timeout=PATIENCE)
        except TimeoutError:
            raise TookTooLong("the first job is not finished") from None
        wait_until(_Rest(worker).reached, "the workers rest after their start")
        yield worker


class _Rest:
    """Whether a worker's processes have used hardly any processor time since the last look."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._used = 0.0

    def reached(self) -> bool:
        before = self._used
        times = [child.cpu_times() for child in self._worker.children()]
        self._used = sum(each.user + each.system for each in times)
        return self._used - before < BUSY * LOOK


@contextmanager
def bare_loops(database: Database, count: int, batch: int) -> Iterator[list[int]]:
    """Bare worker processes, ready to claim; answers their process ids."""
    with ExitStack() as stack:
        yield [stack.enter_context(_bare_loop(database, batch, number)) for number in range(count)]


@contextmanager
def _bare_loop(database: Database, batch: int, number: int) -> Iterator[int]:
    command = [sys.executable, "-m", "bench.limits.consumer", database.url, str(batch)]
    log = database.folder / f"bare-{number}.log"
    process = _start(command, log, {})
    try:
        wait_until(
            lambda: log.read_text().count("ready") > 0 or process.poll() is not None,
            "the bare loop is ready",
            look=0.01,
        )
        if process.poll() is not None:
            raise TookTooLong(f"the bare loop has ended:\n{log.read_text()[-4000:]}")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _start(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=log.parent,
            env=inherited | environment | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _end(worker: WorkerProcess) -> None:
    """Stop the worker; kill it and its processes if it does not."""
    if worker.process.poll() is not None:
        return
    try:
        worker.terminate(timeout=LONGEST_STOP)
    except subprocess.TimeoutExpired:
        worker.signal_tree(signal.SIGKILL)
        worker.process.wait()
