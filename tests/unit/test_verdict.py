"""When a job has seen too many workers die."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from duly.model.attempt import Attempt, Outcome
from duly.model.job import JobRecord, State
from duly.model.step import Step, StepKind, StepState
from duly.policy.verdict import MOST_DEATHS_OF_WORKERS, is_worn_out

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobRecord(
    id=UUID(int=1),
    task="work",
    queue="default",
    state=State.RUNNING,
    priority=5,
    arguments="{}",
    created_at=START,
    run_at=START,
    token=1,
)


def at(minute: int) -> datetime:
    """That many minutes after the start."""
    return START + timedelta(minutes=minute)


def death(minute: int, generation: int = JOB.generation) -> Attempt:
    """A worker died under the job."""
    return Attempt(
        job_id=JOB.id,
        token=minute,
        number=1,
        generation=generation,
        worker=None,
        started_at=at(minute),
        ended_at=at(minute),
        outcome=Outcome.CRASHED,
    )


def step(minute: int, state: StepState = StepState.DONE) -> Step:
    """A step recorded then."""
    return Step(
        job_id=JOB.id,
        name=f"step {minute}",
        key="",
        kind=StepKind.CALL,
        state=state,
        number=minute,
        attempt=1,
        at=at(minute),
    )


@pytest.mark.parametrize(
    ("isolated", "most"), [(True, MOST_DEATHS_OF_WORKERS), (False, JOB.max_crashes)]
)
def test_deaths_count_since_the_latest_recorded_step(isolated: bool, most: int) -> None:
    deaths = [death(minute) for minute in range(1, most + 2)]
    assert is_worn_out(JOB, deaths, [], isolated)
    assert not is_worn_out(JOB, deaths[1:], [], isolated)
    assert is_worn_out(JOB, deaths, [step(0)], isolated)
    assert not is_worn_out(JOB, deaths, [step(0), step(1)], isolated)
    assert is_worn_out(JOB, deaths, [step(1, StepState.RETRYING)], isolated)
    assert not is_worn_out(JOB, [death(0, generation=0), *deaths[1:]], [], isolated)
