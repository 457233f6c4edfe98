"""Workers as real processes: a folder with a tasks module, a database, and what runs there.

Effects of tasks are counted outside the store, in a file that every process appends to.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psutil
import pytest

from duly import App, Attempt, Job, JobRecord, State

T = TypeVar("T")

LONG = os.environ.get("DULY_CHAOS", "") not in ("", "0")
long_only = pytest.mark.skipif(not LONG, reason="only in `make chaos`")

MARK = "DULY_TEST_FLEET"
PATIENCE = 60.0
"""How long a test waits for something that should happen at once: machines can be busy."""

_HEADER = '''
"""Written by a test."""
import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import duly

HERE = Path(__file__).parent
app = duly.App({url!r}, lease={lease!r}, grace={grace!r})


def effect(*words):
    """Append a line that survives any crash of this process."""
    descriptor = os.open(HERE / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (" ".join(map(str, words)) + "\\n").encode())
    os.close(descriptor)


def ran(word="ran"):
    """Note that the current job's code is here."""
    job = duly.current()
    effect(word, job.idempotency_key, job.job.token, job.attempt, os.getpid())


def hold(name="go", seconds=60):
    """Wait for the test to create a file."""
    deadline = time.monotonic() + seconds
    while not (HERE / name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)

'''


@dataclass(frozen=True, slots=True)
class Effect:
    """One line that a task wrote: what, for which job, under which token, where."""

    word: str
    key: str
    token: int
    attempt: int
    pid: int


def until(condition: Callable[[], T], timeout: float = PATIENCE, why: str = "") -> T:
    """Ask again and again until the answer is true; fail when it is not in time."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {timeout:g} s: {why or condition}")
        time.sleep(0.01)


class WorkerProcess:
    """`duly worker` with its children."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log

    @property
    def log(self) -> str:
        """What the worker and its children have said."""
        return self._log.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The worker processes under this supervisor."""
        return running("duly.runtime.child", _descendants(self.pid))

    def isolated(self) -> list[psutil.Process]:
        """The isolated processes under this supervisor."""
        return running("duly.runtime.isolated", _descendants(self.pid))

    def tree(self) -> list[int]:
        """The supervisor and everything below it."""
        return [self.pid, *(each.pid for each in _descendants(self.pid))]

    def signal_tree(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor and everything below it."""
        for pid in self.tree():
            send(pid, number)

    def kill(self) -> None:
        """Kill the supervisor alone, and wait for that."""
        self.process.kill()
        self.process.wait()

    def terminate(self, number: signal.Signals = signal.SIGTERM, timeout: float = PATIENCE) -> int:
        """Ask the worker to stop; answers its exit code."""
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            # With its fault handler, Python says where every thread is.
            self.signal_tree(signal.SIGABRT)
            self.process.wait()
            raise AssertionError(f"it does not stop within {timeout:g} s:\n{self.log}") from None

    def said(self, text: str, timeout: float = PATIENCE) -> None:
        """Wait until the log holds this text."""
        try:
            until(lambda: text in self.log, timeout)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in the log:\n{self.log}") from None


class Fleet:
    """A folder with a tasks module and the processes that work there."""

    def __init__(
        self, folder: Path, url: str, tasks: str, lease: float = 15.0, grace: float = 25.0
    ) -> None:
        self.folder = folder
        self.url = url
        self.workers: list[WorkerProcess] = []
        self._mark = uuid.uuid4().hex
        self._header = _HEADER.format(url=url, lease=lease, grace=grace)
        # A module that changes within a second, and not in its length, is taken for its compiled
        # form: the tasks are to have none.
        self._variables = {
            MARK: self._mark,
            "PYTHONFAULTHANDLER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.write_tasks(tasks)
        self.tasks = self._import()
        self.app: App = self.tasks.app
        self.app.migrate()

    def write_tasks(self, tasks: str) -> None:
        """Write the module `tasks`, whose app is `app`."""
        (self.folder / "tasks.py").write_text(self._header + tasks)

    def start(self, *options: object, ready: bool = True) -> WorkerProcess:
        """Start `duly worker tasks:app`; with `ready`, return when its processes are known."""
        known = len(self.registered())
        log = self.folder / f"worker-{len(self.workers)}.log"
        arguments = [str(option) for option in options]
        if "--processes" not in arguments:
            arguments += ["--processes", "1"]
        command = [sys.executable, "-m", "duly", "worker", "tasks:app", *arguments]
        worker = WorkerProcess(self._popen(command, log), log)
        self.workers.append(worker)
        if ready:
            wanted = int(arguments[arguments.index("--processes") + 1])
            until(
                lambda: (
                    len(self.registered()) >= known + wanted or worker.process.poll() is not None
                ),
                why="the worker registers",
            )
            assert worker.process.poll() is None, worker.log
        return worker

    def script(self, source: str, name: str = "program.py") -> subprocess.Popen[bytes]:
        """Start a program in the folder; its output goes to NAME.log."""
        path = self.folder / name
        path.write_text(source)
        return self._popen([sys.executable, str(path)], path.with_suffix(".log"))

    def output(self, name: str = "program.py") -> str:
        """What a program of the folder has said."""
        return (self.folder / name).with_suffix(".log").read_text(errors="replace")

    def go(self, name: str = "go") -> None:
        """Let tasks that `hold` go on."""
        (self.folder / name).touch()

    def registered(self) -> list[Any]:
        """The workers that the store knows."""
        return self.app.store.run(self.app.store.workers())

    def effects(self, word: str | None = None) -> list[Effect]:
        """What tasks noted with `ran`, in the order of their writing."""
        found = []
        for line in self._lines():
            words = line.split()
            if len(words) == 5 and (word is None or words[0] == word):
                found.append(
                    Effect(words[0], words[1], int(words[2]), int(words[3]), int(words[4]))
                )
        return found

    def lines(self, word: str) -> list[list[str]]:
        """What tasks noted with `effect(word, ...)`, without the word."""
        return [line.split()[1:] for line in self._lines() if line.split()[0] == word]

    def started(self, job: Job[Any], times: int = 1, word: str = "ran") -> Effect:
        """Wait until the job's code has begun for that many times; answers the latest begin."""

        def look() -> list[Effect]:
            found = [each for each in self.effects(word) if each.key == str(job.id)]
            return found if len(found) >= times else []

        return until(look, why=f"{job.task} starts {times} times; logs:\n{self.logs()}")[-1]

    def finished(self, job: Job[Any], timeout: float = PATIENCE) -> JobRecord:
        """Wait until the job has ended, in whatever way."""
        until(
            lambda: job.refresh().state in (State.SUCCEEDED, State.DEAD, State.CANCELLED),
            timeout,
            f"{job.task} ends; logs:\n{self.logs()}",
        )
        return job.record

    def settled(self, jobs: Iterable[Job[Any]], timeout: float = PATIENCE) -> list[JobRecord]:
        """Wait until all of these jobs have ended; answers their records in order."""
        wanted = [job.id for job in jobs]
        store = self.app.store
        live: list[UUID] = wanted
        done: dict[UUID, JobRecord] = {}
        deadline = time.monotonic() + timeout
        while live:
            for record in store.run(store.get(live)):
                assert record is not None, "a job has vanished"
                if record.state in (State.SUCCEEDED, State.DEAD, State.CANCELLED):
                    done[record.id] = record
            live = [job_id for job_id in live if job_id not in done]
            if live and time.monotonic() > deadline:
                raise AssertionError(
                    f"{len(live)} of {len(wanted)} jobs have not ended within {timeout:g} s, such "
                    f"as {store.run(store.get(live[:1]))[0]}; logs:\n{self.logs()}"
                )
            time.sleep(0.05)
        return [done[job_id] for job_id in wanted]

    def attempts(self, job: Job[Any] | JobRecord) -> list[Attempt]:
        """The job's finished attempts."""
        return self.app.store.run(self.app.store.attempts(job.id))

    def outcomes(self, job: Job[Any] | JobRecord) -> list[str]:
        """How the job's attempts ended."""
        return [attempt.outcome.value for attempt in self.attempts(job)]

    def logs(self, characters: int = 6000) -> str:
        """The end of what every worker has said, for messages of failures."""
        return "\n".join(f"--- {each.pid}\n{each.log[-characters:]}" for each in self.workers)

    def survivors(self) -> list[psutil.Process]:
        """Every process that was started here, directly or not, and lives."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get(MARK) == self._mark
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def close(self) -> None:
        """Kill whatever still runs."""
        self.app.close()
        for process in self.survivors():
            send(process.pid, signal.SIGKILL)
        for worker in self.workers:
            worker.process.wait()

    def _lines(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def _popen(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("DULY_")
        }
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment | self._variables | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _import(self) -> Any:
        """The tasks module in this process, under a name of its own."""
        name = f"tasks_{self._mark}"
        spec = importlib.util.spec_from_file_location(name, self.folder / "tasks.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = writes
        return module


@contextmanager
def opened(
    folder: Path, url: str, tasks: str, lease: float = 15.0, grace: float = 25.0
) -> Iterator[Fleet]:
    """A fleet in the folder, without any worker yet; nothing of it is left afterwards."""
    fleet = Fleet(folder, url, tasks, lease, grace)
    try:
        yield fleet
    finally:
        fleet.close()


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if there is one."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def repeated(effects: Iterable[Effect]) -> dict[str, int]:
    """The jobs whose code ran more than once, and how often."""
    counts = Counter(effect.key for effect in effects)
    return {key: count for key, count in counts.items() if count > 1}


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def running(module: str, processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that run this module and are alive."""
    found = []
    for process in processes:
        try:
            if module in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
