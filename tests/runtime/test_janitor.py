"""Housekeeping keeps up with what there is to forget."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from duly import App, State
from duly.policy.retention import KEPT, Keep, RetentionPolicy
from duly.runtime import janitor
from duly.runtime.janitor import PERIOD, Janitor


def test_it_comes_back_soon_while_there_is_more_to_forget(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "BATCH", 2)
    monkeypatch.setattr(janitor, "MOST_BATCHES", 2)

    @app.task
    def work() -> None:
        return None

    app.enqueue_many(work.job() for _ in range(9))
    app.run_until_idle()
    policy = RetentionPolicy(dict.fromkeys(KEPT, Keep(timedelta(days=30), most=0)))
    keeper = Janitor(app.store, policy)
    pauses = [asyncio.run(keeper.tick()) for _ in range(4)]
    assert not app.list(limit=10, state=State.SUCCEEDED)
    assert [pause < PERIOD / 2 for pause in pauses] == [True, True, False, False]
