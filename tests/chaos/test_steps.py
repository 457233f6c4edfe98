"""Processes killed between and inside steps, again and again; every effect is counted outside."""

from __future__ import annotations

import signal
import time
from collections import Counter
from contextlib import suppress

import psutil
import pytest

from duly import State
from tests.chaos.conftest import MakeFleet, Storm
from tests.support.fleet import LONG, until

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


@pytest.mark.timeout(900)
def test_killed_between_and_inside_steps(fleet: MakeFleet, url: str, storm: Storm) -> None:
    site = fleet(url, TASKS, lease=5.0)
    with site.app.transaction() as connection:
        connection.execute("CREATE TABLE ledger (entry INTEGER)")
    count = 60 if LONG else 8
    kinds = (site.tasks.blocking, site.tasks.asynchronous, site.tasks.transactional)
    jobs = [task.enqueue(number) for number in range(count) for task in kinds]
    worker = site.start("--processes", 2, "--concurrency", 4)
    kills = 0
    deadline = time.monotonic() + (10 * storm.seconds if LONG else 2 * storm.seconds)
    wanted = 1000 if LONG else 10
    while kills < wanted and time.monotonic() < deadline:
        for victim in worker.children():
            with suppress(psutil.Error):
                victim.send_signal(signal.SIGKILL)
                kills += 1
        until(lambda: worker.children())
        time.sleep(storm.chance.uniform(0.05, 1.0))
        if all(job.refresh().state is State.SUCCEEDED for job in jobs):
            jobs += [task.enqueue(len(jobs)) for task in kinds]
    records = site.settled(jobs, 300)
    assert Counter(record.state for record in records) == {State.SUCCEEDED: len(jobs)}
    lines = [line.split() for line in (site.folder / "effects").read_text().splitlines()]
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
