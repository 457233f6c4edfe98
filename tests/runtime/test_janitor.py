"""What the janitor forgets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import duly
from duly import App, ManualClock
from duly.config import load
from duly.runtime import janitor
from duly.runtime.janitor import Janitor

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_old_events_and_steps_go_however_many_there_are(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(START)
    app = App(url, clock=clock)
    app.migrate()

    @app.task
    def work() -> None:
        ctx = duly.current_blocking()
        for number in range(5):
            ctx.step("one", int, number)

    for number in range(5):
        app.emit("old", number)
    job = work.enqueue()
    app.run_until_idle()
    assert len(app.steps(job.id)) == 5
    clock.advance(timedelta(days=2))
    app.emit("new")
    config = load({"keep_events": "1d", "keep_succeeded": "1d", "keep_cancelled": "1d"})
    monkeypatch.setattr(janitor, "BATCH", 2)
    cleaner = Janitor(app.store, config.retention())
    for _ in range(10):
        asyncio.run(cleaner.tick())
        clock.advance(timedelta(hours=1))
    assert [event.name for event in app.events()] == ["new"]
    if not app.store.drops_whole_days:
        assert app.steps(job.id) == []
    app.close()
