"""Flows run by real workers that are killed in the middle."""

from __future__ import annotations

import random

from duly import FlowState
from tests.runtime.conftest import MakeFleet
from tests.support.fleet import until

TASKS = """
@app.task
def extract(count: int) -> list[int]:
    ran("extract")
    return list(range(count))


@app.task
def score(row: int) -> int:
    ran("score")
    time.sleep(0.02)
    return row * 2


@app.task
def load(rows: list[int]) -> int:
    ran("load")
    return sum(rows)


def submit(count):
    with app.flow("etl") as flow:
        load.job(rows=score.job(duly.each(extract.job(count))))
    return flow.submit()
"""


def test_a_flow_goes_on_whoever_dies(fleet: MakeFleet) -> None:
    site = fleet(TASKS)
    count = 150
    run = site.tasks.submit(count)
    chance = random.Random(11)
    worker = site.start("--processes", 2, "--concurrency", 4)
    for least in (5, 40, 90):
        until(lambda least=least: len(site.effects("score")) >= least)  # type: ignore[misc]
        chance.choice(worker.children()).kill()
    until(lambda: len(site.effects("score")) >= 110)
    worker.kill()
    site.start("--processes", 2, ready=False)
    until(lambda: run.refresh().state is not FlowState.RUNNING)
    assert run.state is FlowState.SUCCEEDED, site.logs()
    record = run.record
    assert (record.total, record.succeeded, record.open) == (count + 2, count + 2, 0)
    assert run.job("load").result(timeout=5) == count * (count - 1)
    assert len({effect.key for effect in site.effects("score")}) == count
    assert len({effect.key for effect in site.effects("load")}) == 1
