"""What becomes of a job whose worker is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.model.attempt import Outcome
from duly.model.job import Delivery, JobRecord, State
from duly.policy.reaping import after_crash

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLAIMED = JobRecord(
    id=UUID(int=1),
    task="work",
    queue="default",
    state=State.RUNNING,
    priority=5,
    arguments="{}",
    created_at=NOW,
    run_at=NOW,
    token=1,
)
ONCE = {"delivery": Delivery.AT_MOST_ONCE}


@pytest.mark.parametrize(
    ("fields", "outcome", "state"),
    [
        ({}, Outcome.RELEASED, State.PENDING),
        (ONCE, Outcome.RELEASED, State.PENDING),
        ({"started_at": NOW}, Outcome.CRASHED, State.PENDING),
        ({"started_at": NOW, **ONCE}, Outcome.LOST, State.DEAD),
        ({"started_at": NOW, "undoing": State.DEAD, **ONCE}, Outcome.CRASHED, State.PENDING),
    ],
    ids=["not begun", "not begun, at most once", "begun", "at most once", "its compensations"],
)
def test_by_what_it_did(fields: dict[str, Any], outcome: Outcome, state: State) -> None:
    job = msgspec.structs.replace(CLAIMED, **fields)
    settlement = after_crash(job, "killed")
    assert (settlement.outcome, settlement.state) == (outcome, state)
    assert settlement.token == job.token
    assert not settlement.crashed_alone
