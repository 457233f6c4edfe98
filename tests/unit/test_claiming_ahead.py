"""Claims of what is about to be due, in virtual time: by a worker whose store may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.model.query import Due
from duly.runtime import claimer
from duly.runtime.ahead import INSTANT, LONGEST, SHORTEST
from duly.runtime.chores import Chores
from duly.runtime.claimer import QUESTION, Claimer
from duly.runtime.claims import Claims
from duly.runtime.pace import Pace
from duly.runtime.settler import Settler
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots
from duly.runtime.surroundings import Watch
from duly.runtime.suspicion import Suspicion
from duly.testing.simulation.clock import VirtualClock
from duly.testing.simulation.loop import VirtualLoop
from tests.unit.test_claimer import Quiet

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
EXACT = 1e-5
SLOW = 0.04
POLL = 5.0


class Job:
    """A job and its slot in one."""

    def __init__(self, due: float) -> None:
        self.id = due
        self.due = due
        self.run_at = EPOCH + timedelta(seconds=due)
        self.has_place = self.entered = False
        self.moment: float | None = None
        self.claimed = self.started = -1.0


class Claimed:
    """One claim: when it was asked for, and what it brought."""

    def __init__(self, at: float, ahead: bool, jobs: list[Job]) -> None:
        self.at = at
        self.ahead = ahead
        self.jobs = jobs


class Worker:
    """A claimer over jobs with due times, in seconds from the beginning of the loop."""

    unknown = False

    def __init__(
        self, dues: list[float], size: int, slow: Callable[[], float], takes: float
    ) -> None:
        self.jobs = [Job(due) for due in sorted(dues)]
        self.claims: list[Claimed] = []
        self.questions = 0
        self.most_early = 0
        self._left = list(self.jobs)
        self._slow = slow
        self._takes = takes
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._slots = slots = Slots(size)
        self.claimer = Claimer(
            cast(Claims, self),
            cast(Suspicion, SimpleNamespace(bars=False, startable=lambda jobs, ahead: jobs)),
            slots,
            cast(Pace, SimpleNamespace(claimable=lambda: slots.free)),
            cast(Settler, SimpleNamespace(backlog=0)),
            Chores(lambda: None),
            poll=POLL,
            start=cast(Any, self._start),
            lease_lost=lambda: None,
        )

    @property
    def now(self) -> float:
        return self._loop.time() - self._begun

    def submit(self, tell: bool = True) -> Job:
        job = Job(self.now)
        self._left.insert(0, job)
        if tell:
            self.claimer.wake()
        return job

    async def run(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await self.claimer.run(cast(Watch, Quiet()))

    async def take(self, limit: int, due_by: datetime | None) -> tuple[list[Job], dict[Any, Any]]:
        assert limit > 0
        at = self.now
        by = at if due_by is None else max(at, (due_by - EPOCH).total_seconds())
        jobs = [job for job in self._left if job.due <= by + EXACT][:limit]
        self._left = [job for job in self._left if job not in jobs]
        self.claims.append(Claimed(at, due_by is not None, jobs))
        await asyncio.sleep(self._slow())
        return jobs, {}

    async def next_due(self, exact: bool) -> Due | None:
        self.questions += 1
        if not self._left:
            return None
        job = min(self._left, key=lambda each: each.due)
        return Due(job.run_at, job.due - self.now)

    async def end_expired(self) -> None: ...

    def _start(self, job: Job, recorded: object, moment: float | None) -> None:
        assert self._slots.add(cast(Slot, job))
        job.claimed = self.now
        if moment is None:
            self._enter(job)
        else:
            job.moment = moment
            self._loop.call_at(moment, self._enter, job)
            far = [at for at in self._slots.early if at - self._loop.time() > SHORTEST]
            self.most_early = max(self.most_early, len(far))

    def _enter(self, job: Job) -> None:
        job.entered = True
        job.started = self.now
        self._loop.call_later(self._takes, self._slots.remove, cast(Slot, job))


def late(jobs: list[Job]) -> float:
    assert all(job.started >= job.due - EXACT for job in jobs), "one has not started, or too early"
    return max(job.started - job.due for job in jobs)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(VirtualClock())
    yield loop
    loop.close()


def every(seconds: float, number: int) -> list[float]:
    return [0.3 + seconds * each for each in range(number)]


def run(
    loop: VirtualLoop,
    dues: list[float],
    size: int = 10,
    slow: Callable[[], float] = lambda: SLOW,
    takes: float = 0.001,
    meanwhile: Callable[[Worker], Any] | None = None,
) -> Worker:
    async def main() -> Worker:
        worker = Worker(dues, size, slow, takes)
        beside = asyncio.create_task(meanwhile(worker)) if meanwhile else None
        with pytest.raises(TimeoutError):
            await worker.run(dues[-1] + 1)
        if beside is not None:
            await beside
        return worker

    return loop.run(main())


@pytest.mark.parametrize("spacing", [0.01, 0.03, 0.2])
def test_where_claims_are_slow_jobs_start_in_time_all_the_same(
    loop: VirtualLoop, spacing: float
) -> None:
    worker = run(loop, every(spacing, 60), size=20)
    assert late(worker.jobs[20:]) < EXACT
    assert (
        max(job.due - claim.at for claim in worker.claims for job in claim.jobs) <= LONGEST + EXACT
    )


def test_what_made_a_worker_late_does_not_make_all_that_follows_late(loop: VirtualLoop) -> None:
    now: list[Job] = []

    async def submit(worker: Worker) -> None:
        for _ in range(2):
            await asyncio.sleep(0.63)
            now.append(worker.submit())

    worker = run(loop, every(0.03, 80), meanwhile=submit)
    assert late(now) <= 2 * SLOW + EXACT
    assert late(worker.jobs[60:]) < EXACT


def test_what_is_due_right_after_the_next_look_is_not_left_to_that(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "chance", SimpleNamespace(uniform=lambda low, high: 1.0))
    assert late(run(loop, [POLL + SLOW + 0.01]).jobs) < EXACT


def test_far_ahead_half_of_the_slots_are_filled(loop: VirtualLoop) -> None:
    worker = run(loop, [0.3, *[0.6] * 10])
    assert worker.most_early == 5


def test_quick_claims_are_made_moments_ahead(loop: VirtualLoop) -> None:
    worker = run(loop, every(0.03, 40), slow=lambda: 0.002)
    assert late(worker.jobs[1:]) < EXACT
    assert (
        max(job.due - claim.at for claim in worker.claims for job in claim.jobs) <= SHORTEST + EXACT
    )


def test_after_a_claim_ahead_nobody_looks_for_what_is_due_now(loop: VirtualLoop) -> None:
    worker = run(loop, every(0.01, 60), size=2, slow=lambda: 0.002)
    assert late(worker.jobs) < EXACT
    assert [claim.at for claim in worker.claims if not claim.jobs] == [0.0]


def test_where_more_is_due_than_was_claimed_ahead_the_rest_is_claimed_as_usual(
    loop: VirtualLoop,
) -> None:
    worker = run(loop, [0.5] * 200, slow=lambda: 0.002)
    assert late(worker.jobs) < 1
    after = [claim.ahead for claim in worker.claims if claim.at > 0.5]
    assert after.count(False) > 10
    assert after.count(True) <= 1


def test_who_had_no_room_for_a_while_claims_nothing_before_its_time(loop: VirtualLoop) -> None:
    async def wake(worker: Worker) -> None:
        await asyncio.sleep(0.35)
        worker.claimer.wake()

    worker = run(loop, [0.3, 2.0], size=1, slow=lambda: 0.002, takes=0.1, meanwhile=wake)
    assert late(worker.jobs) < EXACT
    assert max(job.due - claim.at for claim in worker.claims for job in claim.jobs) <= LONGEST


def test_whoever_is_woken_looks_for_what_is_due_now(loop: VirtualLoop) -> None:
    async def wake(worker: Worker) -> None:
        await asyncio.sleep(0.5 - SHORTEST - INSTANT / 2)
        worker.submit()

    worker = run(loop, [0.5, 0.6], slow=lambda: 0.0, meanwhile=wake)
    assert [claim.ahead for claim in worker.claims if claim.jobs] == [False, True, True]


@pytest.mark.parametrize("spacing", [0.007, 0.05, 0.4])
def test_while_jobs_come_often_delayed_ones_are_asked_for_now_and_then_and_start_in_time(
    loop: VirtualLoop, spacing: float
) -> None:
    now: list[Job] = []

    async def submit(worker: Worker) -> None:
        for number in range(1000):
            now.append(worker.submit(tell=number == 0))
            await asyncio.sleep(0.002)

    worker = run(
        loop, every(spacing, int(1.5 / spacing)), slow=lambda: 0.001, meanwhile=submit, size=20
    )
    assert late(worker.jobs) < EXACT
    assert late(now[200:]) < 0.01
    looks = len(worker.claims)
    assert looks > 400
    if spacing >= QUESTION:
        assert worker.questions < looks / 2
