"""A claim reads little more than it takes, in however many lanes the due jobs lie."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from duly.model.query import Demand
from duly.store.postgres import choosing
from duly.store.postgres.claiming import _claim_text
from duly.store.protocol import Store
from tests.cost import sqlite_counts
from tests.cost.bounds import exceeded
from tests.cost.lives import BATCH, opened
from tests.cost.plan_counts import rows_handled
from tests.support.stores import draft, worker

TASKS = tuple(f"task {number}" for number in range(50))
PRIORITIES = (1, 5)
DEEP = BATCH

ROWS_HANDLED = 70.0
STEPS = 212.0


def full_lanes(store: Store) -> Demand:
    """Each lane has as many as a claim takes, and claims of so many have been made."""
    drafts = [
        draft(task=task, priority=priority)
        for _ in range(DEEP)
        for task in TASKS
        for priority in PRIORITIES
    ]
    store.run(store.enqueue(drafts))
    hired = worker()
    store.run(store.register_worker(hired, timedelta(hours=1)))
    demand = Demand(
        worker=hired.id, queues=(), tasks=TASKS, limit=BATCH, longest_waiting=BATCH // 20
    )
    for _ in range(2):
        assert len(store.run(store.claim(demand))) == BATCH
    return demand


def rows_handled_a_job(url: str) -> float:
    with opened(url) as lives:
        store = lives.app.store
        return rows_handled(url, store.claim(full_lanes(store))) / BATCH


def steps_a_job(path: Path) -> float:
    with sqlite_counts.counting(path) as counter, opened(f"sqlite:///{path}") as lives:
        store = lives.app.store
        demand = full_lanes(store)
        before = counter.steps
        assert len(store.run(store.claim(demand))) == BATCH
        return (counter.steps - before) / BATCH


def test_on_postgresql(postgres_url: str) -> None:
    handled = {"rows": rows_handled_a_job(postgres_url)}
    assert exceeded(handled, {"rows": ROWS_HANDLED}) == {}


def test_on_sqlite(tmp_path: Path) -> None:
    assert exceeded({"steps": steps_a_job(tmp_path / "jobs.db")}, {"steps": STEPS}) == {}


def test_lanes_that_are_read_to_the_limit_are_noticed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_in_parts", choosing._all_of_one)
    _claim_text.cache_clear()
    handled = {"rows": rows_handled_a_job(postgres_url)}
    _claim_text.cache_clear()
    assert "rows" in exceeded(handled, {"rows": ROWS_HANDLED})
