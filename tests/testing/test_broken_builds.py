"""Builds with a protection taken out: the checker must see what that lets through.

Each scenario is played on the build as it is, where nothing may be found, and on the broken one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from duly.model.identifiers import new_id
from duly.model.journal import Journal
from duly.model.schedule import CatchUp, Overlap, ScheduleRecord
from duly.model.settlement import succeed
from duly.policy import flow_board
from duly.policy.flow_rules import Decision
from duly.policy.schedule_changes import with_jobs
from duly.policy.ticking import decide
from duly.store.postgres import schedules as postgres_schedules
from duly.store.postgres import settling as postgres_settling
from duly.store.protocol import Store
from duly.store.sqlite import schedules as sqlite_schedules
from duly.store.sqlite import succeeding as sqlite_succeeding
from duly.testing import Violation, check_history
from tests.support.flows import FlowScene
from tests.support.histories import Life
from tests.support.stores import FILES, opened
from tests.support.timetables import define


@pytest.fixture(params=FILES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store of its own: its tables may be broken."""
    with opened(
        request.param,
        tmp_path,
        lambda: str(request.getfixturevalue("postgres_url")),
        Journal.FULL,
    ) as it:
        yield it


def _without(patch: pytest.MonkeyPatch, module: Any, name: str, *parts: str) -> None:
    """Take parts out of a statement."""
    text = getattr(module, name)
    for part in parts:
        assert part in text, f"{name} has no {part!r}"
        text = text.replace(part, "")
    patch.setattr(module, name, text)


def _execute(store: Store, request: pytest.FixtureRequest, tmp_path: Path, text: str) -> None:
    if "postgres" in store.url:
        with psycopg.connect(request.getfixturevalue("postgres_url")) as connection:
            connection.execute(text.encode())
    else:
        file = apsw.Connection(str(tmp_path / "duly.db"))
        file.execute(text)
        file.close()


def _found(violations: list[Violation]) -> set[str]:
    return {each.invariant for each in violations}


# Fencing


def _zombie(life: Life) -> list[Violation]:
    """A worker sleeps through its lease; its successor runs the job; the sleeper wakes first."""
    scene = life.scene
    life.submit("job")
    zombie = scene.take()
    scene.crash(zombie)
    successor = scene.take()
    for job, result in ((zombie, "1"), (successor, "2")):
        life.run(job, result=result)
        scene.settle(succeed(job.id, job.token, result))
    return check_history(life.history())


def test_fencing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(store)
    assert _zombie(life) == []
    _without(
        monkeypatch,
        postgres_settling,
        "SUCCEED",
        "AND CASE WHEN (jobs.id, jobs.token) IN (SELECT job, token FROM input)"
        " THEN true ELSE false END",
        " AND input.token = gone.token",
    )
    for name in ("ARCHIVE", "DELETE"):
        text = getattr(sqlite_succeeding, name)
        assert "jobs.token = ?3" in text
        unfenced = text.replace("jobs.token = ?3", "?3 IS NOT NULL")
        monkeypatch.setattr(sqlite_succeeding, name, unfenced)
    found = _zombie(life)
    assert _found(found) == {"I4"}
    assert "token 1 wrote its result, and 2 was the latest" in str(found[0])


# Unique ticks


def _two_schedulers(store: Store, name: str) -> list[Violation]:
    """Both have looked before either writes."""
    life = Life(store)
    now = life.scene.now
    made = now - timedelta(minutes=3)
    schedule = ScheduleRecord(
        id=name,
        definition=define(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL),
        accounted_until=made,
        next_at=made,
        due_at=made,
        created_at=made,
        updated_at=made,
    )
    assert store.run(store.add_schedules([schedule])) == [True]
    looks = [store.run(store.look([name], now))[0] for _ in range(2)]
    for look in looks:
        assert look is not None
        store.run(store.fire([with_jobs(look.schedule, decide(look), new_id)], now))
    for job in life.scene.claim(life.scene.hire(), 100, tasks=("t",)):
        life.succeed(job)
    return check_history(life.history())


def test_unique_ticks(
    store: Store, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert _two_schedulers(store, "sound") == []
    any_revision = sqlite_schedules.ADVANCE.replace("revision = ? R", "0 < ? R")
    monkeypatch.setattr(sqlite_schedules, "ADVANCE", any_revision)
    _without(
        monkeypatch,
        sqlite_schedules,
        "ADD_TICK",
        " ON CONFLICT (schedule_id, nominal, kind) DO NOTHING",
    )
    _without(monkeypatch, postgres_schedules, "ADVANCE", "AND schedules.revision = input.revision")
    _without(
        monkeypatch,
        postgres_schedules,
        "ADD_TICKS",
        "ON CONFLICT (schedule_id, nominal, kind) DO NOTHING",
    )
    if "postgres" in store.url:
        _execute(store, request, tmp_path, "ALTER TABLE duly.ticks DROP CONSTRAINT ticks_pkey")
    else:
        columns = "schedule_id, nominal, kind, outcome, reason, until, count, job_id, at"
        _execute(
            store,
            request,
            tmp_path,
            f"CREATE TABLE loose AS SELECT {columns} FROM ticks; DROP TABLE ticks;"
            " ALTER TABLE loose RENAME TO ticks;"
            " CREATE INDEX ticks_buffered ON ticks (schedule_id, nominal)"
            " WHERE outcome = 'buffered'",
        )
    assert "I7" in _found(_two_schedulers(store, "broken"))


# The dependency counter


def test_the_dependency_counter(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is let go by the first of its parents."""

    def play(flow: FlowScene) -> None:
        while jobs := flow.jobs(limit=1):
            (job,) = jobs
            flow.scene.settle(succeed(job.id, job.token, "1", job.flow_id))

    def fan_in(priority: int) -> list[Violation]:
        life = Life(store)
        flow = FlowScene(life.scene).node("a", priority=20).node("b", priority=1)
        play(flow.node("c", "a", "b", priority=priority).submit())
        return check_history(life.history())

    assert fan_in(10) == []
    monkeypatch.setattr(flow_board, "decide", lambda node: Decision.RUN)
    found = fan_in(10)
    assert "I11" in _found(found), found
    assert "node c started before b had ended" in str(found[0])
