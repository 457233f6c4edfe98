"""Any verbs in any order: after each, the store and a plain-Python model agree.

`DULY_EXAMPLES` sets how many sequences are tried on each engine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from duly.clock import ManualClock
from duly.errors import DulyError, KeyConflict, LeaseLost
from duly.model.attempt import Failure, Outcome
from duly.model.identifiers import new_id
from duly.model.job import Delivery, Draft, JobRecord, KeyPolicy, State
from duly.model.query import Demand, Enqueued
from duly.model.settlement import Settlement, bury, cancel, release, retry, snooze, succeed
from duly.policy.states import CHARGED, FINAL, LIVE, is_legal
from duly.store.operation import Operation
from duly.store.postgres.store import PostgresStore
from duly.store.protocol import Store
from duly.store.sqlite.store import SqliteStore
from tests.support.store_model import StoreModel
from tests.support.stores import ENGINES, LEASE, empty, worker

EXAMPLES = {"memory": 120, "sqlite": 60, "postgres": 40}
STEPS = 40
TASKS = ("send", "sum")
QUEUES = ("default", "mail")
FINALS = sorted(FINAL)
STRANGER = UUID(int=1)
T = TypeVar("T")

picks = st.integers(0, 30)
seconds = st.sampled_from([0.0, 0.000001, 1.0, 5.0, 30.0])
batches = st.lists(picks, min_size=1, max_size=3)
some_tasks = st.sampled_from([TASKS, TASKS[:1], TASKS[1:]])
some_queues = st.sampled_from([(), QUEUES, QUEUES[:1], QUEUES[1:]])
drafts = st.fixed_dictionaries(
    {"task": st.sampled_from(TASKS)},
    optional={
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from([1, 5, 20]),
        "delay": seconds.map(lambda delay: timedelta(seconds=delay)),
        "expires_after": st.sampled_from([1.0, 5.0]).map(lambda end: timedelta(seconds=end)),
        "delivery": st.sampled_from(Delivery),
        "max_crashes": st.integers(1, 2),
    },
)
keyed_drafts = st.tuples(
    drafts,
    st.fixed_dictionaries(
        {"key": st.sampled_from(["a", "b"]), "key_policy": st.sampled_from(KeyPolicy)},
        optional={"key_window": st.sampled_from([0.5, 5.0, 60.0])},
    ),
).map(lambda parts: {**parts[0], **parts[1]})
kinds = st.sampled_from(["succeed", "retry", "bury", "cancel", "release", "snooze", "time out"])


class Comparison(RuleBasedStateMachine):
    """Does everything twice, to the store and to the model, and compares."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.model = StoreModel()
        self.clock = ManualClock()
        self.ids: list[UUID] = []
        self.hired: list[UUID] = []
        self.seen: dict[UUID, JobRecord] = {}
        self.finals: set[tuple[UUID, int]] = set()
        self.submitted = 0

    # What is done

    @rule(each=st.lists(drafts | keyed_drafts, min_size=1, max_size=3))
    def enqueue(self, each: list[dict[str, Any]]) -> None:
        self._submit([self._draft(new_id(), fields) for fields in each])

    @rule(pick=picks, fields=drafts)
    def submit_again(self, pick: int, fields: dict[str, Any]) -> None:
        job_id = self._job(pick)
        known = self.model.jobs.get(job_id)
        if known is not None and known.state in LIVE:
            key = {"key": known.key, "key_policy": KeyPolicy.REJECT} if known.key else {}
            self._submit([self._draft(job_id, {**fields, "task": known.task, **key})])

    @rule()
    def hire(self) -> None:
        hired = worker()
        self.hired.append(hired.id)
        self.store.run(self.store.register_worker(hired, LEASE, self.now))
        self.model.register(hired.id, LEASE, self.now)

    @rule(each=batches)
    def renew(self, each: list[int]) -> None:
        workers = [self._worker(pick) for pick in each]
        self._compare(
            self.store.renew(workers, LEASE, self.now),
            lambda: self.model.renew(workers, LEASE, self.now),
        )

    @rule(
        pick=picks,
        queues=some_queues,
        tasks=some_tasks,
        limit=st.integers(1, 4),
        share=st.integers(0, 2),
    )
    def claim(
        self, pick: int, queues: tuple[str, ...], tasks: tuple[str, ...], limit: int, share: int
    ) -> None:
        demand = Demand(
            worker=self._worker(pick),
            queues=queues,
            tasks=tasks,
            limit=limit,
            longest_waiting=min(share, limit),
        )
        self._compare(
            self.store.claim(demand, self.now), lambda: self.model.claim(demand, self.now)
        )

    @rule()
    def claim_everything(self) -> None:
        holders = [holder for holder, until in self.model.leases.items() if until > self.now]
        if holders:
            demand = Demand(worker=holders[0], queues=(), tasks=TASKS, limit=50)
            self._compare(
                self.store.claim(demand, self.now), lambda: self.model.claim(demand, self.now)
            )

    @rule(pick=picks, off=st.sampled_from([0, 0, 0, -1, 1]))
    def begin(self, pick: int, off: int) -> None:
        job_id, token = self._attempt(pick)
        self._compare(
            self.store.begin(job_id, token + off, self.now),
            lambda: self.model.begin(job_id, token + off, self.now),
        )

    @rule(
        each=st.lists(
            st.tuples(picks, kinds, st.sampled_from([0, 0, 0, 0, -1, 1]), seconds),
            min_size=1,
            max_size=4,
        )
    )
    def settle(self, each: list[tuple[int, str, int, float]]) -> None:
        settlements = []
        for pick, kind, off, delay in each:
            job_id, token = self._attempt(pick)
            settlements.append(_settlement(kind, job_id, token + off, delay))
        self._compare(
            self.store.settle(settlements, self.now),
            lambda: self.model.settle(settlements, self.now),
        )

    @rule(each=batches, reason=st.sampled_from([None, "enough"]))
    def cancel(self, each: list[int], reason: str | None) -> None:
        jobs = [self._job(pick) for pick in each]
        self._compare(
            self.store.cancel(jobs, reason, self.now),
            lambda: self.model.cancel(jobs, reason, self.now),
        )

    @rule(each=batches, expired_only=st.booleans())
    def reap(self, each: list[int], expired_only: bool) -> None:
        workers = [self._worker(pick) for pick in each]
        mine = self.store.run(self.store.reap(workers, "killed", expired_only, self.now))
        expected = self.model.reap(workers, "killed", expired_only, self.now)
        assert sorted(mine, key=lambda reaped: reaped.job_id) == sorted(
            expected, key=lambda reaped: reaped.job_id
        )

    @rule(each=batches, arguments=st.sampled_from([None, '"other"']))
    def replay(self, each: list[int], arguments: str | None) -> None:
        jobs = [self._job(pick) for pick in each]
        self._compare(
            self.store.replay(jobs, arguments, self.now),
            lambda: self.model.replay(jobs, arguments, self.now),
        )

    @rule(each=batches)
    def run_now(self, each: list[int]) -> None:
        jobs = [self._job(pick) for pick in each]
        self._compare(
            self.store.run_now(jobs, self.now), lambda: self.model.run_now(jobs, self.now)
        )

    @rule()
    def expire(self) -> None:
        self._compare(self.store.expire(1000, self.now), lambda: self.model.expire(self.now))

    @rule(state=st.sampled_from(FINALS))
    def purge(self, state: State) -> None:
        self._compare(
            self.store.purge(state, self.now, 1000), lambda: self.model.purge(state, self.now)
        )

    @rule(queue=st.sampled_from(QUEUES))
    def pause(self, queue: str) -> None:
        self.store.run(self.store.pause_queue(queue))
        self.model.paused.add(queue)

    @rule(queue=st.sampled_from(QUEUES))
    def resume(self, queue: str) -> None:
        assert self.store.run(self.store.resume_queue(queue)) == (queue in self.model.paused)
        self.model.paused.discard(queue)

    @rule(step=st.sampled_from([0.000001, 0.5, 1.0, 5.0, 20.0, 70.0]))
    def advance(self, step: float) -> None:
        self.clock.advance(timedelta(seconds=step))

    @rule(queues=some_queues, tasks=some_tasks, pick=picks)
    def ask(self, queues: tuple[str, ...], tasks: tuple[str, ...], pick: int) -> None:
        self._compare(
            self.store.next_due(queues, tasks, self.now),
            lambda: self.model.next_due(queues, tasks, self.now),
        )
        holder = self._worker(pick)
        assert sorted(self.store.run(self.store.held(holder))) == self.model.held(holder)
        requests = sorted(self.store.run(self.store.cancel_requests(holder)))
        assert requests == self.model.cancel_requests(holder)

    # What must hold

    @invariant()
    def same_jobs(self) -> None:
        records = self.store.run(self.store.get(self.ids))
        for job_id, record in zip(self.ids, records, strict=True):
            assert record == self.model.jobs.get(job_id)
            before = self.seen.get(job_id)
            if record != before:
                self._changed(job_id, before, record)

    @invariant()
    def same_counts(self) -> None:
        counts = {(each.queue, each.state): each.jobs for each in self._counts()}
        assert counts == self.model.counts()

    @invariant()
    def one_live_job_a_key(self) -> None:
        slots = [(job.task, job.key) for job in self.seen.values() if job.key and job.state in LIVE]
        assert len(slots) == len(set(slots))

    def _changed(self, job_id: UUID, before: JobRecord | None, record: JobRecord | None) -> None:
        rows = self.store.run(self.store.attempts(job_id))
        assert rows == self.model.attempts.get(job_id, [])
        if record is None:
            assert before is None or before.state in FINAL
            self.seen.pop(job_id, None)
            return
        self.seen[job_id] = record
        charged = [
            row.number
            for row in rows
            if row.generation == record.generation and row.outcome in CHARGED
        ]
        assert charged == list(range(1, len(charged) + 1))
        if before is None or before.state is record.state:
            return
        assert is_legal(before.state, record.state)
        if record.state in FINAL:
            assert (job_id, record.generation) not in self.finals
            self.finals.add((job_id, record.generation))

    # Helpers

    @property
    def now(self) -> Any:
        return self.clock.now()

    def _counts(self) -> Any:
        return self.store.run(self.store.counts())

    def _draft(self, job_id: UUID, fields: dict[str, Any]) -> Draft:
        self.submitted += 1
        return Draft(id=job_id, arguments=str(self.submitted), **fields)

    def _submit(self, each: list[Draft]) -> None:
        for draft in each:
            if draft.id not in self.ids:
                self.ids.append(draft.id)
        operation = self.store.enqueue(each, self.now)
        assert _outcome(lambda: _told(self.store.run(operation))) == _outcome(
            lambda: _told(self.model.enqueue(each, self.now))
        )

    def _job(self, pick: int) -> UUID:
        return self.ids[-1 - pick % len(self.ids)] if self.ids and pick < 30 else STRANGER

    def _worker(self, pick: int) -> UUID:
        return self.hired[pick % len(self.hired)] if self.hired and pick < 30 else STRANGER

    def _attempt(self, pick: int) -> tuple[UUID, int]:
        """A job, a running one where there is one, and its current token."""
        running = [job for job in self.model.jobs.values() if job.state is State.RUNNING]
        if running and pick % 4:
            job = running[pick % len(running)]
            return job.id, job.token
        job_id = self._job(pick)
        known = self.model.jobs.get(job_id)
        return job_id, known.token if known is not None else 1

    def _compare(self, operation: Operation[T], expected: Callable[[], T]) -> None:
        assert _outcome(lambda: self.store.run(operation)) == _outcome(expected)


def _told(answers: Sequence[Enqueued]) -> list[tuple[JobRecord, bool, bool]]:
    return [(answer.job, answer.created, answer.replaced) for answer in answers]


def _outcome(act: Callable[[], T]) -> T | tuple[type[DulyError], ...]:
    try:
        return act()
    except (KeyConflict, LeaseLost) as error:
        return (type(error),)


def _settlement(kind: str, job_id: UUID, token: int, delay: float) -> Settlement:
    wait = timedelta(seconds=delay)
    error = Failure("ValueError", kind, "Traceback", "fingerprint") if delay else None
    if kind == "succeed":
        return succeed(job_id, token, f"{delay}")
    if kind == "bury":
        return bury(job_id, token, "exhausted", error)
    if kind == "cancel":
        return cancel(job_id, token, "cancelled on request" if wait else "stopped")
    if kind == "release":
        return release(job_id, token)
    if kind == "snooze":
        return snooze(job_id, token, wait)
    outcome = Outcome.FAILED if kind == "retry" else Outcome.TIMED_OUT
    return retry(job_id, token, wait, error, outcome)


@pytest.mark.timeout(0 if "DULY_EXAMPLES" in os.environ else 600)
@pytest.mark.parametrize("engine", ENGINES)
def test_the_store_and_the_model_agree(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "postgres":
        url = str(request.getfixturevalue("shared_database"))
        shared = PostgresStore(url)
        shared.migrate()
        request.addfinalizer(shared.close)

    class OnEngine(Comparison):
        def __init__(self) -> None:
            if engine == "postgres":
                empty(url)
                super().__init__(shared)
            else:
                path = str(tmp_path / f"{new_id()}.db") if engine == "sqlite" else ""
                super().__init__(SqliteStore(path))

        def teardown(self) -> None:
            if engine != "postgres":
                self.store.close()

    chosen = settings(
        max_examples=int(os.environ.get("DULY_EXAMPLES", EXAMPLES[engine])),
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(OnEngine, settings=chosen)
