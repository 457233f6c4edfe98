"""The checker finds nothing in a good history, and each single fault of a bad one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
import pytest

from duly.model.attempt import Attempt, Outcome
from duly.model.flow import FlowState, NodeState
from duly.model.identifiers import new_id
from duly.model.job import JobRecord, State
from duly.model.journal import Journal, JournalEntry
from duly.model.schedule import TickOutcome
from duly.model.step import StepKind
from duly.store.sqlite.store import SqliteStore
from duly.testing import Effect, Emission, History, Loss, Submission, Told, check_history
from tests.support.histories import good_history

Jobs = dict[str, UUID]
Break = Callable[[History, Jobs], History]
T = TypeVar("T", bound=msgspec.Struct)

BREAKS: dict[str, tuple[str, Break]] = {}
"""What is done to the history, and the invariant that must notice."""


@pytest.fixture(scope="module")
def good() -> Iterator[tuple[History, Jobs]]:
    store = SqliteStore("", Journal.FULL)
    yield good_history(store)
    store.close()


def test_a_good_history_is_good(good: tuple[History, Jobs]) -> None:
    history, jobs = good
    assert [str(each) for each in check_history(history)] == []
    assert len(history.jobs) > 20
    assert len(history.journal) > 60
    assert history.ticks
    assert set(jobs.values()) <= {job.id for job in history.jobs}


def breaks(invariant: str) -> Callable[[Break], Break]:
    """Register a way to be wrong."""

    def keep(function: Break) -> Break:
        BREAKS[function.__name__] = (invariant, function)
        return function

    return keep


def _replace(history: History, **fields: Any) -> History:
    return msgspec.structs.replace(history, **fields)


def _job(history: History, job_id: UUID, **fields: Any) -> History:
    return _replace(history, jobs=_changed(history.jobs, lambda job: job.id == job_id, fields))


def _changed(records: Sequence[T], which: Callable[[T], bool], fields: dict[str, Any]) -> list[T]:
    assert any(which(record) for record in records), "there is something to break"
    return [msgspec.structs.replace(each, **fields) if which(each) else each for each in records]


def _entries(history: History, job_id: UUID) -> list[JournalEntry]:
    return [entry for entry in history.journal if entry.job_id == job_id]


def _entry(history: History, entry: JournalEntry, **fields: Any) -> History:
    return _replace(history, journal=_changed(history.journal, lambda each: each is entry, fields))


def _repeat(history: History, entry: JournalEntry, **fields: Any) -> History:
    """One more entry, the last of all."""
    number = max(each.number for each in history.journal) + 1
    more = msgspec.structs.replace(entry, number=number, **fields)
    return _replace(history, journal=[*history.journal, more])


def _row(history: History, job_id: UUID) -> JobRecord:
    return next(job for job in history.jobs if job.id == job_id)


def _attempt(history: History, job_id: UUID, place: int = -1) -> Attempt:
    return [each for each in history.attempts if each.job_id == job_id][place]


def _effects(history: History, *more: Effect, without: UUID | None = None) -> History:
    kept = [each for each in history.effects or () if each.job_id != without]
    return _replace(history, effects=[*kept, *more])


# I1 No loss


@breaks("I1")
def a_job_is_deleted(history: History, jobs: Jobs) -> History:
    gone = jobs["plain"]
    return _replace(
        history,
        jobs=[job for job in history.jobs if job.id != gone],
        journal=[entry for entry in history.journal if entry.job_id != gone],
    )


@breaks("I1")
def a_due_job_is_left_lying(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["plain"], state=State.PENDING)


@breaks("I1")
def an_event_is_lost(history: History, jobs: Jobs) -> History:
    return _replace(history, emissions=[*history.emissions, Emission(event_id="e-2")])


# I2 No invention


@breaks("I2")
def a_job_nobody_asked_for(history: History, jobs: Jobs) -> History:
    wanted = [each for each in history.submissions or () if each.job_id != jobs["plain"]]
    return _replace(history, submissions=wanted)


@breaks("I2")
def a_submission_that_failed_made_a_job(history: History, jobs: Jobs) -> History:
    told = [
        msgspec.structs.replace(each, told=Told.FAILED) if each.job_id == jobs["plain"] else each
        for each in history.submissions or ()
    ]
    return _replace(history, submissions=told)


@breaks("I2")
def a_key_is_held_twice(history: History, jobs: Jobs) -> History:
    """Both may have lived within one millisecond."""
    end = _entries(history, jobs["keyed 1"])[-1]
    prolonged = _entry(history, end, at=end.at + timedelta(seconds=2))
    second = _entries(prolonged, jobs["keyed 2"])[0]
    return _entry(prolonged, second, at=end.at + timedelta(seconds=1))


@breaks("I2")
def an_event_started_two_jobs(history: History, jobs: Jobs) -> History:
    twin = msgspec.structs.replace(_row(history, jobs["event"]), id=new_id())
    return _replace(history, jobs=[*history.jobs, twin])


@breaks("I2")
def a_job_of_an_event_that_never_was(history: History, jobs: Jobs) -> History:
    return _replace(history, events=[], emissions=[])


# I3 One completion


@breaks("I3")
def it_ends_twice(history: History, jobs: Jobs) -> History:
    return _repeat(history, _entries(history, jobs["plain"])[-1])


@breaks("I3")
def it_is_in_two_places(history: History, jobs: Jobs) -> History:
    return _replace(history, jobs=[*history.jobs, _row(history, jobs["plain"])])


@breaks("I3")
def two_attempts_succeed(history: History, jobs: Jobs) -> History:
    first = _attempt(history, jobs["retried"], 0)
    won = {"outcome": Outcome.SUCCEEDED}
    return _replace(history, attempts=_changed(history.attempts, lambda each: each is first, won))


# I4 Fencing


@breaks("I4")
def a_zombie_writes_its_result(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["crashed"], result="1")


@breaks("I4")
def a_result_from_nowhere(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["plain"], result='"x"')


@breaks("I4")
def a_claim_does_not_raise_the_token(history: History, jobs: Jobs) -> History:
    claim = _entries(history, jobs["retried"])[3]
    return _entry(history, claim, token=claim.token - 1)


@breaks("I4")
def a_token_grows_without_a_claim(history: History, jobs: Jobs) -> History:
    last = _entries(history, jobs["plain"])[-1]
    return _entry(history, last, token=last.token + 1)


@breaks("I4")
def two_attempts_share_a_token(history: History, jobs: Jobs) -> History:
    again = msgspec.structs.replace(_attempt(history, jobs["retried"]), outcome=Outcome.RELEASED)
    return _replace(history, attempts=[*history.attempts, again])


@breaks("I4")
def an_attempt_of_the_future(history: History, jobs: Jobs) -> History:
    late = msgspec.structs.replace(_attempt(history, jobs["plain"]), token=9)
    return _replace(history, attempts=[*history.attempts, late])


# I5 One holder


@breaks("I5")
def a_running_job_is_claimed(history: History, jobs: Jobs) -> History:
    _, _, back, claim, _ = _entries(history, jobs["retried"])
    claimed = _entry(history, claim, before=State.RUNNING)
    return _replace(claimed, journal=[each for each in claimed.journal if each is not back])


@breaks("I5")
def attempts_overlap(history: History, jobs: Jobs) -> History:
    first = _attempt(history, jobs["retried"], 0)
    late = {"ended_at": first.ended_at + timedelta(seconds=5)}
    return _replace(history, attempts=_changed(history.attempts, lambda each: each is first, late))


# I6 Effects


@breaks("I6")
def a_success_without_an_effect(history: History, jobs: Jobs) -> History:
    return _effects(history, without=jobs["plain"])


@breaks("I6")
def two_effects_under_one_token(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["plain"], token=1))


@breaks("I6")
def an_effect_under_a_token_nobody_had(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["plain"], token=7))


@breaks("I6")
def an_effect_under_another_idempotency_key(history: History, jobs: Jobs) -> History:
    job = jobs["crashed"]
    more = Effect(job_id=job, token=2, key="other", ended=history.now, result="2")
    first = next(each for each in history.effects or () if each.job_id == job)
    return _effects(history, first, more, without=job)


@breaks("I6")
def a_transactional_effect_twice(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["transactional"], token=1))


@breaks("I6")
def a_transactional_effect_without_success(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["refused"], token=1))


@breaks("I6")
def at_most_once_twice(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["once"], token=2))


@breaks("I6")
def at_most_once_after_a_crash(history: History, jobs: Jobs) -> History:
    last = _attempt(history, jobs["once"])
    first = msgspec.structs.replace(last, token=0, outcome=Outcome.CRASHED)
    return _replace(history, attempts=[*history.attempts, first])


@breaks("I6")
def code_of_a_job_that_is_not_stored(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=new_id(), token=1))


# I7 Ticks


@breaks("I7")
def a_tick_is_missing(history: History, jobs: Jobs) -> History:
    gone = next(tick for tick in history.ticks if tick.schedule_id == "often")
    return _replace(
        history,
        ticks=[tick for tick in history.ticks if tick is not gone],
        jobs=[job for job in history.jobs if job.id != gone.job_id],
    )


@breaks("I7")
def a_tick_too_many(history: History, jobs: Jobs) -> History:
    tick = next(tick for tick in history.ticks if tick.schedule_id == "often")
    more = msgspec.structs.replace(
        tick,
        nominal=tick.nominal + timedelta(seconds=1),
        outcome=TickOutcome.SKIPPED,
        job_id=None,
    )
    return _replace(history, ticks=[*history.ticks, more])


@breaks("I7")
def a_tick_in_two_rows(history: History, jobs: Jobs) -> History:
    return _replace(history, ticks=[*history.ticks, history.ticks[0]])


@breaks("I7")
def a_run_of_ticks_counts_wrongly(history: History, jobs: Jobs) -> History:
    return _replace(
        history, ticks=_changed(history.ticks, lambda tick: tick.count > 1, {"count": 9})
    )


@breaks("I7")
def a_tick_fires_twice(history: History, jobs: Jobs) -> History:
    job = next(job for job in history.jobs if job.schedule_id == "often")
    return _replace(history, jobs=[*history.jobs, msgspec.structs.replace(job, id=new_id())])


@breaks("I7")
def a_fired_tick_whose_job_is_not_there(history: History, jobs: Jobs) -> History:
    job = next(job for job in history.jobs if job.schedule_id == "often")
    return _replace(
        history,
        jobs=[each for each in history.jobs if each is not job],
        journal=[entry for entry in history.journal if entry.job_id != job.id],
    )


@breaks("I7")
def a_fired_tick_without_a_job(history: History, jobs: Jobs) -> History:
    tick = next(tick for tick in history.ticks if tick.outcome is TickOutcome.FIRED)
    return _replace(
        history, ticks=_changed(history.ticks, lambda each: each is tick, {"job_id": None})
    )


@breaks("I7")
def a_job_for_another_time_than_its_tick(history: History, jobs: Jobs) -> History:
    job = next(job for job in history.jobs if job.schedule_id == "often")
    return _job(history, job.id, scheduled_for=history.now)


# I8 Retries


@breaks("I8")
def an_attempt_is_not_counted(history: History, jobs: Jobs) -> History:
    second = _attempt(history, jobs["retried"])
    return _replace(
        history, attempts=_changed(history.attempts, lambda each: each is second, {"number": 1})
    )


@breaks("I8")
def more_attempts_than_allowed(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["retried"], max_attempts=1)


@breaks("I8")
def the_row_counts_otherwise(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["retried"], attempt=1)


@breaks("I8")
def more_crashes_than_allowed(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["crashed"], crashes=4)


@breaks("I8")
def a_retry_before_its_backoff(history: History, jobs: Jobs) -> History:
    back = _entries(history, jobs["retried"])[2]
    return _entry(history, back, due=back.at + timedelta(minutes=5))


@breaks("I8")
def code_starts_before_it_is_due(history: History, jobs: Jobs) -> History:
    effects = _changed(
        history.effects or (),
        lambda each: each.job_id == jobs["plain"],
        {"started": history.now - timedelta(hours=1)},
    )
    return _replace(history, effects=effects)


@breaks("I8")
def it_starts_after_a_cancel(history: History, jobs: Jobs) -> History:
    return _entry(history, _entries(history, jobs["retried"])[2], cancelling=True)


# I9 Legal


@breaks("I9")
def from_pending_to_succeeded(history: History, jobs: Jobs) -> History:
    claim = _entries(history, jobs["plain"])[1]
    return _replace(history, journal=[each for each in history.journal if each is not claim])


@breaks("I9")
def the_row_is_in_another_state(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["plain"], state=State.CANCELLED)


@breaks("I9")
def the_row_has_another_token(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["cancelled"], token=5)


@breaks("I9")
def a_row_vanishes_while_it_is_live(history: History, jobs: Jobs) -> History:
    gone = jobs["plain"]
    return _replace(
        history,
        jobs=[job for job in history.jobs if job.id != gone],
        journal=[each for each in history.journal if each is not _entries(history, gone)[-1]],
    )


@breaks("I9")
def an_entry_is_missing(history: History, jobs: Jobs) -> History:
    back = _entries(history, jobs["retried"])[2]
    return _replace(history, journal=[each for each in history.journal if each is not back])


@breaks("I9")
def it_begins_as_running(history: History, jobs: Jobs) -> History:
    return _entry(history, _entries(history, jobs["plain"])[0], after=State.RUNNING)


@breaks("I9")
def a_generation_from_nowhere(history: History, jobs: Jobs) -> History:
    claim = _entries(history, jobs["plain"])[1]
    return _entry(history, claim, generation=2)


@breaks("I9")
def a_row_without_a_journal(history: History, jobs: Jobs) -> History:
    return _replace(
        history,
        journal=[each for each in history.journal if each.job_id != jobs["plain"]],
    )


# I10 Dead letters


@breaks("I10")
def dead_without_a_reason(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["dead"], reason=None)


@breaks("I10")
def dead_without_an_error(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["dead"], error=None)


@breaks("I10")
def dead_without_arguments(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["dead"], arguments="")


@breaks("I10")
def dead_without_attempts(history: History, jobs: Jobs) -> History:
    return _replace(
        history, attempts=[each for each in history.attempts if each.job_id != jobs["dead"]]
    )


@breaks("I10")
def it_died_and_has_no_letter(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["dead"], state=State.CANCELLED)


# I11 Dependencies


@breaks("I11")
def a_child_before_its_parents(history: History, jobs: Jobs) -> History:
    last = _entries(history, jobs["b"])[-1]
    number = max(each.number for each in history.journal) + 1
    return _entry(history, last, number=number)


@breaks("I11")
def a_flow_ends_while_a_job_waits(history: History, jobs: Jobs) -> History:
    return _job(history, jobs["c"], state=State.BLOCKED)


@breaks("I11")
def a_flow_does_not_end(history: History, jobs: Jobs) -> History:
    open_again = {"finished_at": None, "state": FlowState.RUNNING}
    return _replace(history, flows=_changed(history.flows, lambda flow: True, open_again))


@breaks("I11")
def a_flow_stands_still(history: History, jobs: Jobs) -> History:
    return _job(a_flow_does_not_end(history, jobs), jobs["c"], state=State.BLOCKED)


@breaks("I11")
def a_node_is_left_open(history: History, jobs: Jobs) -> History:
    nodes = {
        flow_id: [msgspec.structs.replace(node, state=NodeState.RELEASED) for node in nodes]
        for flow_id, nodes in history.nodes.items()
    }
    return _replace(history, nodes=nodes)


@breaks("I11")
def a_recorded_step_runs_again(history: History, jobs: Jobs) -> History:
    return _effects(history, Effect(job_id=jobs["stepped"], token=1, step="charge:1"))


@breaks("I11")
def another_result_is_recorded(history: History, jobs: Jobs) -> History:
    return _replace(history, steps=_changed(history.steps, lambda step: True, {"result": "8"}))


@breaks("I11")
def a_step_is_recorded_twice(history: History, jobs: Jobs) -> History:
    return _replace(history, steps=[*history.steps, *history.steps])


@breaks("I11")
def an_event_is_taken_twice(history: History, jobs: Jobs) -> History:
    taken = _changed(history.steps, lambda step: True, {"event_id": "e-1"})
    again = _changed(taken, lambda step: True, {"key": "2"})
    return _replace(history, steps=[*taken, *again])


@breaks("I11")
def a_step_started_a_job_that_is_not_there(history: History, jobs: Jobs) -> History:
    child = {"kind": StepKind.JOB, "child_id": new_id()}
    return _replace(history, steps=_changed(history.steps, lambda step: True, child))


# I12 Limits and liveness


@breaks("I12")
def two_jobs_of_a_careful_schedule(history: History, jobs: Jobs) -> History:
    careful = [
        msgspec.structs.replace(
            each, definition=msgspec.structs.replace(each.definition, overlap="skip")
        )
        for each in history.schedules
    ]
    first, *_ = [job for job in history.jobs if job.schedule_id == "often"]
    start = _entries(history, first.id)[0]
    return _entry(_replace(history, schedules=careful), start, at=start.at - timedelta(days=1))


@breaks("I12")
def more_flows_than_allowed(history: History, jobs: Jobs) -> History:
    (flow,) = history.flows
    twin = msgspec.structs.replace(flow, id=new_id())
    claimed = _entries(history, jobs["a"])[1]
    job = msgspec.structs.replace(_row(history, jobs["plain"]), flow_id=twin.id)
    others = [each for each in history.jobs if each.id != job.id]
    moved = _replace(history, flows=[flow, twin], jobs=[*others, job])
    long = _replace(
        moved,
        flows=_changed(moved.flows, lambda each: True, {"finished_at": history.now}),
    )
    return _entry(long, _entries(history, job.id)[1], at=claimed.at)


@breaks("I12")
def a_due_job_starts_late(history: History, jobs: Jobs) -> History:
    quiet = history.now - timedelta(hours=1)
    claim = _entries(history, jobs["plain"])[1]
    slow = _entry(history, claim, at=claim.at + timedelta(minutes=10))
    return _replace(slow, quiet_since=quiet, start_within=300.0)


@breaks("I12")
def a_lost_workers_job_is_left_with_it(history: History, jobs: Jobs) -> History:
    claim = _entries(history, jobs["crashed"])[1]
    taken = _entries(history, jobs["crashed"])[2]
    slow = _entry(history, taken, at=taken.at + timedelta(minutes=10))
    assert claim.worker is not None
    loss = Loss(worker=claim.worker, at=claim.at)
    return _replace(slow, losses=[loss], taken_back_within=60.0)


def test_a_key_may_go_from_one_to_another_within_one_instant(
    good: tuple[History, Jobs],
) -> None:
    history, jobs = good
    instant = _entries(history, jobs["keyed 1"])[0].at
    for entry in [*_entries(history, jobs["keyed 1"]), _entries(history, jobs["keyed 2"])[0]]:
        history = _entry(history, entry, at=instant)
    for ordered in (history.jobs, history.jobs[::-1]):
        found = check_history(_replace(history, jobs=list(ordered)))
        assert not [each for each in found if each.invariant == "I2"]


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_wrong_is_found(good: tuple[History, Jobs], name: str) -> None:
    invariant, break_it = BREAKS[name]
    found = check_history(break_it(*good))
    assert invariant in {each.invariant for each in found}, [str(each) for each in found]


def test_every_invariant_can_be_broken() -> None:
    assert {invariant for invariant, _ in BREAKS.values()} == {f"I{n}" for n in range(1, 13)}


def test_a_violation_tells_what_happened_around_it(good: tuple[History, Jobs]) -> None:
    history, jobs = good
    found = check_history(a_zombie_writes_its_result(history, jobs))
    (violation,) = [each for each in found if each.invariant == "I4"]
    assert violation.job_id == jobs["crashed"]
    lines = str(violation).splitlines()
    assert lines[0].startswith(f"I4: job {jobs['crashed']}: token 1 wrote its result")
    for part in ("client was told ok", "pending -> running, token 2", "crashed", "its code ran"):
        assert any(part in line for line in lines), part


def test_nothing_is_asked_of_what_is_not_known(good: tuple[History, Jobs]) -> None:
    history, _ = good
    bare = _replace(history, journal=[], submissions=None, effects=None)
    assert check_history(bare) == []


def test_what_compensations_have_undone_may_be_done_again_by_a_replay(
    good: tuple[History, Jobs],
) -> None:
    history, jobs = good
    stepped = jobs["stepped"]
    claim = next(entry for entry in _entries(history, stepped) if entry.after is State.RUNNING)
    final = _entries(history, stepped)[-1]
    reopened = _repeat(history, final, after=State.PENDING, generation=2)
    number, token = claim.number + 1_000_000, final.token + 1
    again = msgspec.structs.replace(claim, number=number, token=token, generation=2)
    replayed = _replace(reopened, journal=[*reopened.journal, again])
    ran = _effects(replayed, Effect(job_id=stepped, token=token, step="charge:1"))

    def complaints(history: History) -> list[str]:
        return [each.message for each in check_history(history) if each.invariant == "I11"]

    assert any("ran again" in each for each in complaints(ran))
    (charge,) = [step for step in history.steps if step.job_id == stepped]
    undo = msgspec.structs.replace(charge, name="undo", kind=StepKind.UNDO)
    assert not complaints(_replace(ran, steps=[*ran.steps, undo]))


def test_jobs_that_are_not_due_may_wait(good: tuple[History, Jobs]) -> None:
    history, jobs = good
    waiting = msgspec.structs.replace(
        _row(history, jobs["plain"]),
        id=new_id(),
        state=State.WAITING,
        attempt=0,
        run_at=history.now + timedelta(hours=1),
    )
    told = Submission(job_id=waiting.id)
    more = _replace(
        history,
        journal=[],
        jobs=[*history.jobs, waiting],
        submissions=[*(history.submissions or ()), told],
    )
    assert check_history(more) == []
    assert check_history(_replace(more, now=history.now + timedelta(hours=2))) != []
    unsettled = _replace(more, now=history.now + timedelta(hours=2), settled=False)
    assert check_history(unsettled) == []
