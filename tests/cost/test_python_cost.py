"""What a plain job costs in Python: instructions of the interpreter, and memory that is kept.

Counted, so neither the machine nor its load matters. The interpreters that are supported compile
the same code to somewhat different numbers of instructions; the margin covers that.
"""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import duly
from duly.client.task import Task
from duly.runtime.settler import Settler
from tests.cost.bounds import exceeded

JOBS = 300
CONCURRENCY = 100
MARGIN = 1.25
INSTRUCTIONS = {"submit": 216.0, "run": 1_165.0}
BLOCKS_KEPT = 1.0
"""Blocks of memory a job that are not given back: none, and some noise."""

PATIENCE = 60.0


def instructions(action: Callable[[], object]) -> int:
    """How many instructions this thread, and those started meanwhile, execute for the action."""
    counter = itertools.count()

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            next(counter)
        return in_frame

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return in_frame

    before = sys.gettrace()
    threading.settrace(on_call)
    sys.settrace(on_call)
    try:
        action()
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return next(counter)


async def noop() -> None:
    """Do nothing."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[duly.App]:
    app = duly.App(f"sqlite:///{tmp_path / 'jobs.db'}", lease=60)
    yield app
    app.close()


@pytest.fixture
def task(app: duly.App) -> Task[[], None]:
    task = app.task(noop)
    submit(app, task)
    run(app)
    return task


def submit(app: duly.App, task: Task[[], None]) -> None:
    app.enqueue_many(task.job() for _ in range(JOBS))


def run(app: duly.App) -> None:
    assert app.run_until_idle(workers=CONCURRENCY, timeout=PATIENCE) == JOBS


def measured(app: duly.App, task: Task[[], None]) -> dict[str, float]:
    submitted = instructions(lambda: submit(app, task))
    return {"submit": submitted / JOBS, "run": instructions(lambda: run(app)) / JOBS}


def test_instructions(app: duly.App, task: Task[[], None]) -> None:
    assert exceeded(measured(app, task), INSTRUCTIONS, MARGIN) == {}


def test_more_instructions_are_noticed(
    app: duly.App, task: Task[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Settler.put

    def put_slowly(settler: Settler, settlement: Any) -> None:
        sum(number for number in range(100))
        put(settler, settlement)

    monkeypatch.setattr(Settler, "put", put_slowly)
    assert exceeded(measured(app, task), INSTRUCTIONS, MARGIN).keys() == {"run"}


def blocks_kept(app: duly.App, task: Task[[], None]) -> float:
    """Blocks of memory that JOBS jobs leave behind in the process, each."""
    gc.collect()
    before = sys.getallocatedblocks()
    submit(app, task)
    run(app)
    gc.collect()
    return (sys.getallocatedblocks() - before) / JOBS


def test_jobs_leave_nothing_in_memory(app: duly.App, task: Task[[], None]) -> None:
    assert min(blocks_kept(app, task) for _ in range(2)) < BLOCKS_KEPT


def test_what_jobs_leave_in_memory_is_noticed(
    app: duly.App, task: Task[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    put = Settler.put

    def put_and_keep(settler: Settler, settlement: Any) -> None:
        kept.append(settlement)
        put(settler, settlement)

    monkeypatch.setattr(Settler, "put", put_and_keep)
    assert min(blocks_kept(app, task) for _ in range(2)) > BLOCKS_KEPT
