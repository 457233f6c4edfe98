"""Processes killed between and inside steps, again and again; every effect is counted outside."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import psutil
import pytest

from duly import Job, State
from duly.policy.states import FINAL
from tests.chaos.conftest import MakeFleet, Storm
from tests.support.fleet import LONG, Fleet, until

STEPS = 4
TASKS = """
STEPS = 4


def note(number: int) -> int:
    effect("begin", duly.current().idempotency_key)
    time.sleep(0.01)
    effect("step", duly.current().idempotency_key)
    return number


@app.task(max_crashes=1000)
def blocking(number: int) -> int:
    ctx = duly.current_blocking()
    total = 0
    for step in range(STEPS):
        total += ctx.using(key=step).step("note", note, step)
        effect("recorded", f"{ctx.id}:{step}")
        ctx.sleep(0.05)
    effect("end", ctx.id)
    return total


@app.task(max_crashes=1000)
async def asynchronous(number: int) -> int:
    ctx = duly.current()
    total = 0
    for step in range(STEPS):
        total += await ctx.using(key=step).step("note", note, step)
        effect("recorded", f"{ctx.id}:{step}")
        try:
            await ctx.wait_for("tick", key=str(number), timeout=0.05)
        except duly.WaitTimeout:
            effect("waited", ctx.id)
    effect("end", ctx.id)
    return total


def book(number: int, step: int) -> None:
    duly.current().connection.execute(f"INSERT INTO ledger VALUES ({number * 100 + step})")
    time.sleep(0.01)


@app.task(max_crashes=1000)
def transactional(number: int) -> None:
    ctx = duly.current_blocking()
    for step in range(STEPS):
        ctx.using(transactional=True, key=step).step("book", book, number, step)
        effect("recorded", f"{ctx.id}:{step}")
        ctx.sleep(0.05)
"""


@pytest.mark.timeout(7200)
def test_killed_between_and_inside_steps(fleet: MakeFleet, url: str, storm: Storm) -> None:
    site = fleet(url, TASKS, lease=5.0)
    with site.app.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry INTEGER)")
    kinds = (site.tasks.blocking, site.tasks.asynchronous, site.tasks.transactional)
    numbers = itertools.count()
    jobs: list[Job[Any]] = []
    worker = site.start("--processes", 3 if LONG else 2, "--concurrency", 4)
    kills, wanted = 0, int(os.environ.get("DULY_CHAOS_KILLS") or (1000 if LONG else 6))
    while kills < wanted:
        if len([job for job in jobs[-30:] if job.refresh().state not in FINAL]) < 9:
            jobs += [task.enqueue(number) for number in islice(numbers, 4) for task in kinds]
        until(partial(_moved, site, len(_lines(site)) + storm.chance.randrange(1, 12), jobs))
        time.sleep(storm.chance.uniform(0, 0.03))
        with suppress(psutil.Error, IndexError):
            storm.chance.choice(worker.children()).send_signal(signal.SIGKILL)
            kills += 1
    records = site.settled(jobs, 300)
    ends = Counter((record.state, record.reason) for record in records)
    assert ends == {(State.SUCCEEDED, None): len(jobs)}
    lines = _lines(site)
    steps = Counter(key for word, key in lines if word == "step")
    after = _after_recording(lines)
    assert not after, f"run again although it was recorded: {after}"
    noting = [job for job in jobs if job.task != "transactional"]
    assert set(steps) == {f"{job.id}:note:{step}" for job in noting for step in range(STEPS)}
    with site.app.transaction() as connection:
        rows = list(connection.execute("SELECT entry, count(*) FROM ledger GROUP BY entry"))
    booked = [job for job in jobs if job.task == "transactional"]
    assert len(rows) == STEPS * len(booked)
    assert {number for _, number in rows} == {1}
    repeated = sum(steps.values()) - len(steps)
    print(f"{kills} kills, {len(jobs)} jobs, {sum(steps.values())} steps, {repeated} run twice")


def _lines(site: Fleet) -> list[list[str]]:
    """What the tasks have noted so far, whole lines only."""
    file = site.folder / "effects"
    text = file.read_text() if file.exists() else ""
    return [line.split() for line in text.rpartition("\n")[0].splitlines()]


def _moved(site: Fleet, lines: int, jobs: list[Job[Any]]) -> bool:
    """Whether that many lines are there, or there is nothing left to do."""
    if len(_lines(site)) >= lines:
        return True
    return all(job.refresh().state in FINAL for job in jobs[-30:])


def _after_recording(lines: list[list[str]]) -> list[str]:
    """Steps that began after the code had gone on from them."""
    recorded: set[str] = set()
    wrong = []
    for word, key in lines:
        if word == "recorded":
            recorded.add(key)
        elif word == "begin" and key.replace(":note:", ":") in recorded:
            wrong.append(key)
    return wrong
