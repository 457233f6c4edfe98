"""A claim reads little more than it takes, in however many lanes the due jobs lie and however they
are spread, once claims have seen that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duly.model.job import Draft
from duly.model.query import Demand
from duly.store.postgres import choosing
from duly.store.postgres.claiming import _claim_text
from duly.store.protocol import Store
from tests.cost import sqlite_counts
from tests.cost.bounds import exceeded
from tests.cost.lives import BATCH, opened
from tests.cost.plan_counts import rows_handled
from tests.support.stores import draft, worker

LANES = 50
TASKS = tuple(f"task {number}" for number in range(LANES))
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CLAIMS = 3


def even() -> list[Draft]:
    """All lanes are full, of two priorities."""
    return [
        draft(task=task, priority=priority)
        for _ in range(BATCH)
        for task in TASKS
        for priority in (1, 5)
    ]


def one_after_another() -> list[Draft]:
    """The jobs of each lane come before those of the next."""
    return [
        draft(task=task, run_at=LONG_AGO + timedelta(hours=number))
        for number, task in enumerate(TASKS)
        for _ in range(5 * BATCH if number == 0 else BATCH)
    ]


def some_full() -> list[Draft]:
    """Twenty lanes are full, and the others have one job each that comes later."""
    full = [draft(task=task, run_at=LONG_AGO) for _ in range(BATCH) for task in TASKS[:20]]
    return full + [draft(task=task) for task in TASKS[20:]]


def many_priorities() -> list[Draft]:
    """Each lane has a priority of its own, and the highest has a few."""
    urgent = [draft(task=TASKS[0], priority=100) for _ in range(CLAIMS + 1)]
    return urgent + [
        draft(task=TASKS[0], priority=priority)
        for priority in range(LANES)
        for _ in range(5 * BATCH if priority == LANES - 1 else BATCH)
    ]


def of_two_paces() -> list[Draft]:
    """When the first lane is empty, ten come that give more than an even share."""
    first = [draft(task=TASKS[0], run_at=LONG_AGO) for _ in range(CLAIMS * BATCH)]
    return first + [
        draft(task=task, run_at=LONG_AGO + timedelta(seconds=place * (6 if dense else 60)))
        for number, task in enumerate(TASKS[1:])
        for dense in (number < 10,)
        for place in range(1, BATCH + 1 if dense else 50)
    ]


Shape = Callable[[], list[Draft]]
ROWS_HANDLED: dict[Shape, float] = {
    even: 72,
    one_after_another: 66,
    some_full: 52,
    many_priorities: 69,
    of_two_paces: 64,
}
STEPS: dict[Shape, float] = {
    even: 200,
    one_after_another: 277,
    some_full: 212,
    many_priorities: 184,
    of_two_paces: 212,
}


def claimed_before(store: Store, shape: Shape) -> Demand:
    """A demand like those that have been met."""
    store.run(store.enqueue(shape()))
    hired = worker()
    store.run(store.register_worker(hired, timedelta(hours=1)))
    demand = Demand(
        worker=hired.id, queues=(), tasks=TASKS, limit=BATCH, longest_waiting=BATCH // 20
    )
    for _ in range(CLAIMS):
        assert len(store.run(store.claim(demand))) == BATCH
    return demand


def rows_handled_a_job(url: str, shape: Shape, *settings: str) -> float:
    with opened(url) as lives:
        store = lives.app.store
        return rows_handled(url, store.claim(claimed_before(store, shape)), settings) / BATCH


def steps_a_job(path: Path, shape: Shape) -> float:
    with sqlite_counts.counting(path) as counter, opened(f"sqlite:///{path}") as lives:
        store = lives.app.store
        demand = claimed_before(store, shape)
        before = counter.steps
        assert len(store.run(store.claim(demand))) == BATCH
        return (counter.steps - before) / BATCH


@pytest.mark.parametrize("shape", ROWS_HANDLED)
def test_on_postgresql(postgres_url: str, shape: Shape) -> None:
    handled = {"rows": rows_handled_a_job(postgres_url, shape)}
    assert exceeded(handled, {"rows": ROWS_HANDLED[shape]}) == {}


def test_nothing_is_looked_for_in_all_pairs(postgres_url: str) -> None:
    settings = ("enable_hashjoin = off", "enable_mergejoin = off", "enable_material = off")
    handled = {"rows": rows_handled_a_job(postgres_url, even, *settings)}
    assert exceeded(handled, {"rows": ROWS_HANDLED[even]}) == {}


@pytest.mark.parametrize("shape", STEPS)
def test_on_sqlite(tmp_path: Path, shape: Shape) -> None:
    measured = {"steps": steps_a_job(tmp_path / "jobs.db", shape)}
    assert exceeded(measured, {"steps": STEPS[shape]}) == {}


@pytest.mark.parametrize("shape", ROWS_HANDLED)
def test_lanes_that_are_read_to_the_limit_are_noticed(
    postgres_url: str, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_in_parts", choosing._all_of_one)
    _claim_text.cache_clear()
    try:
        handled = {"rows": rows_handled_a_job(postgres_url, shape)}
    finally:
        _claim_text.cache_clear()
    assert "rows" in exceeded(handled, {"rows": ROWS_HANDLED[shape]})
