"""A worker: claims what it can start now, runs it, and has the outcomes written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from duly.errors import LeaseLost, StoreError, StoreUnavailable
from duly.model.attempt import Outcome
from duly.model.job import Delivery, JobRecord
from duly.model.query import Demand
from duly.model.settlement import Settlement, release
from duly.model.step import Recorded
from duly.policy.flow_inputs import with_values
from duly.policy.verdict import Verdict, is_worn_out, settlement
from duly.registry.task import Registry, TaskDefinition
from duly.runtime.attempt import Transaction
from duly.runtime.chance import chance
from duly.runtime.executor import Executor
from duly.runtime.hooks import call_hooks
from duly.runtime.isolation import Isolation
from duly.runtime.lease import LeaseClock
from duly.runtime.limits import TimeLimits
from duly.runtime.logs import about
from duly.runtime.loop import Loop
from duly.runtime.outcomes import log_outcome
from duly.runtime.reporter import Reporter
from duly.runtime.settings import WorkerSettings
from duly.runtime.settler import Settler
from duly.runtime.slot import Slot
from duly.runtime.step_port import StorePort
from duly.runtime.subscriber import Subscriber
from duly.runtime.surroundings import Surroundings, Watch
from duly.store.operation import Wake
from duly.store.protocol import Store

MOST_UNSETTLED = 2_000
REACTION = 2.0
CONTENTION_PAUSE = 0.005
DEAF_POLL = 1.0
EXPIRED = 100
CANCELLATION_LOOK = 2.0
CANCELLATION_GAP = 0.25

logger = logging.getLogger("duly.worker")


class Ending(StrEnum):
    """Why a worker has ended."""

    DRAINED = "drained"
    LEASE_LOST = "lease_lost"
    UNRESPONSIVE_TASK = "unresponsive_task"


class Worker:
    """Runs jobs on the event loop that `run` is awaited on.

    Async tasks run on that loop, blocking ones in threads, isolated ones in processes. The lease
    is kept by somebody else, who tells `lease`; when it ends by this worker's own clock, every
    job is stopped.
    """

    def __init__(
        self,
        worker_id: UUID,
        store: Store,
        registry: Registry,
        transaction: Transaction,
        settings: WorkerSettings,
        lease: LeaseClock,
        isolation: Isolation,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.id = worker_id
        self.settings = settings
        self.lease = lease
        self.finished_jobs = 0
        self.deadline_is_near: Callable[[], None] = _nobody
        """Called before code starts whose hard time limit is the first to come: whoever enforces
        it from outside must know before that code can block the event loop."""
        self._store = store
        self._registry = registry
        self._tasks = tuple(sorted(definition.name for definition in registry))
        self._loop = asyncio.get_running_loop()
        self._running: dict[tuple[UUID, int], Slot] = {}
        """By job and token: one that was taken from this worker by mistake may be given to it again
        while the code of the first attempt still runs."""
        self._surroundings = surroundings or Surroundings()
        hands = self._surroundings.hands(settings.concurrency)
        self._executor = Executor(store, transaction, isolation, settings, hands, self._finish)
        self._limits = TimeLimits(self._give_up)
        self._settler = Settler(store, lease, self._written)
        self._reporter = Reporter(store)
        self._port = StorePort(store, transaction)
        self._claimer = Loop("claims", self._claim)
        self._leases = Loop("lease", self._watch_lease)
        self._cancellations = Loop("cancellations", self._look_for_cancellations)
        self._reports = Loop("reports", self._reporter.tick)
        self._subscriber = Subscriber(store, registry.subscriptions)
        self._slot_freed = asyncio.Event()
        self._no_claim = asyncio.Event()
        self._no_claim.set()
        self._ended: asyncio.Future[Ending] = self._loop.create_future()
        self._hooked: dict[tuple[UUID, int], TaskDefinition] = {}
        self._errands: set[asyncio.Task[None]] = set()
        self._draining = False
        self._solitary = False
        self._claims_unknown = False
        self._nothing_near = False
        self._credit = 0.0
        self._looked_for_cancellations = 0.0
        self._watch: Watch | None = None
        self._idle = asyncio.Event()
        """Set while nothing runs, nothing is due, and nothing is left to write."""
        self._looks_for_idleness = False

    @property
    def jobs(self) -> list[JobRecord]:
        """The jobs under way."""
        return [slot.job for slot in self._running.values()]

    def next_deadline(self) -> float | None:
        """Seconds until the first hard time limit of a job under way; None without one."""
        first = self._first_deadline()
        return None if first is None else first - self._loop.time()

    def _first_deadline(self) -> float | None:
        deadlines = (slot.deadline for slot in self._running.values())
        return min((each for each in deadlines if each is not None), default=None)

    async def run(self) -> Ending:
        """Work until drained, or until the lease is lost."""
        self._reporter.capture_logs()
        await self._subscriber.declare()
        watch = self._watch = self._surroundings.watch(
            self._store, self._loop, self._on_change, Wake.WORKERS
        )
        roles = [
            asyncio.create_task(role)
            for role in (
                self._claimer.run(),
                self._leases.run(),
                self._cancellations.run(),
                self._reports.run(),
                self._settler.run(),
                Loop("subscriptions", self._subscriber.tick).run(),
            )
        ]
        try:
            for role in roles:
                role.add_done_callback(self._role_ended)
            ending = await self._ended
            if ending is Ending.LEASE_LOST:
                await self._hear_of_late_outcomes()
            return ending
        finally:
            watch.close()
            for role in roles:
                role.remove_done_callback(self._role_ended)
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)
            await self._reporter.flush()
            self._reporter.release_logs()
            self._executor.close()

    async def until_idle(self) -> None:
        """Wait until nothing runs, nothing is due, and nothing is left to write."""
        self._looks_for_idleness = True
        self._idle.clear()
        self._claimer.wake()
        await self._idle.wait()

    async def drain(self, grace: float) -> None:
        """Claim no more; let jobs finish for `grace` seconds, release the rest, and end."""
        self._draining = True
        self._claimer.stop()
        deadline = self._loop.time() + grace
        while self._running and self._loop.time() < deadline:
            self._slot_freed.clear()
            try:
                await asyncio.wait_for(
                    self._slot_freed.wait(), max(0.01, deadline - self._loop.time())
                )
            except TimeoutError:
                break
        await self._release_rest()
        self._end(Ending.DRAINED)

    def hurry(self) -> None:
        """Release everything now."""
        self._send(self._release_rest_and_end())

    async def _release_rest_and_end(self) -> None:
        await self._release_rest()
        self._end(Ending.DRAINED)

    async def _release_rest(self) -> None:
        """Give back what still runs, without a charge, and have it written."""
        # A claim that is on its way may bring jobs, among them what is given back here.
        try:
            await asyncio.wait_for(self._no_claim.wait(), REACTION)
        except TimeoutError:
            logger.warning("a claim is not answered: what it brings is taken back by others")
        rest = list(self._running.values())
        for slot in rest:
            slot.releasing = True
            slot.interrupt()
        stoppable = [slot.task for slot in rest if slot.task is not None]
        if stoppable:
            await asyncio.wait(stoppable, timeout=REACTION)
        for slot in list(self._running.values()):
            self._finish(slot, slot.released())
        try:
            await asyncio.wait_for(self._settler.flushed(), max(REACTION, self.lease.remaining()))
        except TimeoutError:
            logger.error("%d outcomes could not be reported", self._settler.backlog)
        mine = asyncio.current_task()
        others = [errand for errand in self._errands if errand is not mine]
        if others:
            await asyncio.wait(others, timeout=REACTION)

    def _send(self, errand: Coroutine[Any, Any, None]) -> None:
        """Have something done that nobody waits for."""
        task = self._loop.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def _end(self, ending: Ending) -> None:
        if not self._ended.done():
            self._ended.set_result(ending)

    def _role_ended(self, role: asyncio.Task[None]) -> None:
        if role.cancelled() or self._ended.done():
            return
        error = role.exception()
        if error is not None:
            self._ended.set_exception(error)

    def _on_change(self) -> None:
        self._claimer.wake()
        if self._running:
            since = self._loop.time() - self._looked_for_cancellations
            if since > CANCELLATION_GAP:
                self._cancellations.wake()

    async def _claim(self) -> float:
        """One turn: claim what can be started, or find out when there will be something."""
        if self._draining:
            return self.settings.poll
        if self._claims_unknown:
            await self._release_unknown_claims()
        free = self.settings.concurrency - len(self._running)
        if self._solitary and self._running:
            free = 0
        if free <= 0 or self._settler.backlog > MOST_UNSETTLED:
            self._slot_freed.clear()
            await self._slot_freed.wait()
            return 0.0
        if self._nothing_near and self._claimer.slept_through:
            # A look for safety's sake: whoever makes something due says so.
            due = await self._next_due()
            if due is None or due > 0:
                return self._until(due)
        # Judged before the store is asked: what ends meanwhile may make something due.
        rested = not self._running and not self._settler.backlog and not self._errands
        self._no_claim.clear()
        try:
            jobs = await self._claim_up_to(free)
            recorded = await self._recorded_of(jobs)
            for job in self._startable(jobs):
                self._start(job, recorded.get(job.id))
        finally:
            self._no_claim.set()
        if jobs:
            self._idle.clear()
            if len(jobs) > free // 2:
                return 0.0
        due = await self._next_due()
        if due is None or due > 0:
            if rested and not jobs:
                self._idle.set()
        elif not jobs:
            # What has expired in a flow is due and yet is not claimed.
            await self._store.arun(self._store.expire(EXPIRED))
        return self._until(due) if jobs else max(CONTENTION_PAUSE, self._until(due))

    async def _next_due(self) -> float | None:
        return await self._store.arun(self._store.next_due(self.settings.queues, self._tasks))

    def _until(self, due: float | None) -> float:
        """How long to sleep when the next job is due in so many seconds."""
        poll = self._poll()
        self._nothing_near = due is None or due > poll
        return poll if due is None or due > poll else max(due, 0.0)

    def _poll(self) -> float:
        hears = self._watch is not None and self._watch.hears
        return (self.settings.poll if hears else DEAF_POLL) * chance.uniform(0.8, 1.2)

    async def _claim_up_to(self, free: int) -> list[JobRecord]:
        self._credit = min(free, self._credit + free * self.settings.fair_share)
        share = int(self._credit)
        demand = Demand(
            worker=self.id,
            queues=self.settings.queues,
            tasks=self._tasks,
            limit=free,
            longest_waiting=share,
        )
        try:
            jobs = await self._store.arun(self._store.claim(demand))
        except LeaseLost:
            self.lose_lease()
            return []
        except StoreUnavailable as error:
            self._claims_unknown = self._claims_unknown or error.unknown
            raise
        if jobs:
            self._credit -= share
        return await self._with_inputs(jobs)

    async def _with_inputs(self, jobs: list[JobRecord]) -> list[JobRecord]:
        """Jobs of flows get the results of others that they have as arguments."""
        of_flows = [job.id for job in jobs if job.flow_id is not None]
        if not of_flows:
            return jobs
        try:
            inputs = await self._store.arun(self._store.flow_inputs(of_flows))
        except StoreError:
            # They are claimed, and nobody is told: given back at the next turn.
            self._claims_unknown = True
            raise
        return [
            msgspec.structs.replace(job, arguments=with_values(job.arguments, inputs[job.id]))
            if job.id in inputs
            else job
            for job in jobs
        ]

    async def _recorded_of(self, jobs: list[JobRecord]) -> dict[UUID, Recorded]:
        """What earlier attempts of these jobs have recorded, read for all of them at once."""
        stepped = [
            job.id
            for job in jobs
            if job.stepped
            and not self._executor.runs_elsewhere(job, self._registry.require(job.task))
        ]
        if not stepped:
            return {}
        try:
            found = await self._store.arun(self._store.steps_of(stepped))
        except StoreError:
            # They are claimed, and nobody is told: given back at the next turn.
            self._claims_unknown = True
            raise
        return dict(zip(stepped, found, strict=True))

    async def _release_unknown_claims(self) -> None:
        """After a claim whose commit is unknown: give back what was claimed without a word."""
        held = await self._store.arun(self._store.held(self.id))
        known = {(each.job_id, each.token) for each in self._settler.waiting} | self._running.keys()
        for job_id, token in held:
            if (job_id, token) not in known:
                self._settler.put(release(job_id, token))
        self._claims_unknown = False

    def _startable(self, jobs: list[JobRecord]) -> list[JobRecord]:
        """The claimed jobs that may start together; none once the worker is on its way out.

        One that is under suspicion, and that no other process can run, runs with nothing beside
        it; what was claimed with it is given back. While others still run it is given back itself,
        and nothing is claimed until they are done.
        """
        suspects = [
            job
            for job in jobs
            if job.alone and self._executor.needs_solitude(job, self._registry.require(job.task))
        ]
        self._solitary = bool(suspects)
        if not suspects and not self._draining:
            return jobs
        chosen = [job for job in jobs if job not in suspects] if self._running else suspects[:1]
        if self._draining:
            chosen = []
        for job in jobs:
            if job not in chosen:
                self._settler.put(release(job.id, job.token))
        return chosen

    def _start(self, job: JobRecord, recorded: Recorded | None) -> None:
        definition = self._registry.require(job.task)
        context = self._surroundings.context(
            job,
            self._reporter.progress,
            self._port,
            self.settings.payload_limit,
            definition.is_async or job.undoing is not None,
        )
        context.recorded = recorded
        slot = Slot(job, definition, context)
        self._running[job.id, job.token] = slot
        self._limits.watch(slot, self._executor.runs_elsewhere(job, definition))
        if slot.deadline is not None and slot.deadline == self._first_deadline():
            self.deadline_is_near()
        if job.alone or job.delivery is Delivery.AT_MOST_ONCE:
            self._send(self._begin(slot))
        else:
            self._executor.launch(slot)

    async def _begin(self, slot: Slot) -> None:
        """Look at the past of a job under suspicion, record durably that an at-most-once job
        starts; then start it."""
        job = slot.job
        try:
            if job.alone and await self._is_worn_out(slot):
                self._finish(slot, Verdict(Outcome.CRASHED, error=job.error, final=True))
                return
            begun = True
            if job.delivery is Delivery.AT_MOST_ONCE:
                begun = await self._store.arun(self._store.begin(job.id, job.token))
        except StoreError as error:
            logger.warning("job %s is not started: the store does not answer: %s", job.id, error)
            begun = False
        if slot.closed:
            return
        if not begun or self._draining or slot.stopping:
            # The store knows of a request to cancel, and heeds it.
            self._finish(slot, Verdict(Outcome.RELEASED))
            return
        slot.begun = job.delivery is Delivery.AT_MOST_ONCE
        self._executor.launch(slot)

    async def _is_worn_out(self, slot: Slot) -> bool:
        store, job = self._store, slot.job
        attempts = await store.arun(store.attempts(job.id))
        steps = (await store.arun(store.steps(job.id))).steps if job.stepped else []
        isolated = not self._executor.needs_solitude(job, slot.definition)
        return is_worn_out(job, attempts, steps, isolated)

    def _finish(self, slot: Slot, verdict: Verdict | None) -> None:
        """The job's code has ended, or is given up on."""
        if slot.closed:
            return
        slot.close()
        del self._running[slot.job.id, slot.job.token]
        self.finished_jobs += 1
        self._surroundings.ended(slot.job, verdict)
        self._reporter.capture.forget(slot.job)
        if verdict is not None:
            if slot.definition.hooks.any:
                self._hooked[slot.job.id, slot.job.token] = slot.definition
            outcome = settlement(slot.job, verdict)
            log_outcome(slot.job, outcome)
            self._settler.put(outcome)
        else:
            self._look_for_idleness()
        self._slot_freed.set()

    def _written(self, batch: list[Settlement], landed: list[bool]) -> None:
        if self._hooked:
            for settled, accepted in zip(batch, landed, strict=True):
                hooked = self._hooked.pop((settled.job_id, settled.token), None)
                if hooked is not None and accepted:
                    self._send(self._call_hooks(hooked, settled))
        if any(settled.flow_id is not None for settled in batch):
            # It may have released others.
            self._claimer.wake()
        self._slot_freed.set()
        self._look_for_idleness()

    def _look_for_idleness(self) -> None:
        """What has just been written may have been the last, or have made something due."""
        if self._looks_for_idleness and not self._running:
            self._claimer.wake()

    async def _call_hooks(self, definition: TaskDefinition, settled: Settlement) -> None:
        await call_hooks(self._store, definition, settled)
        self._loop.call_soon(self._look_for_idleness)

    def _give_up(self, slot: Slot, limit: float) -> None:
        """Code did not stop at its hard time limit: the process goes, its neighbours are
        released without a charge."""
        logger.error(
            "job %s (task %s) does not stop at its time limit of %g s: it is given up, and its "
            "process with it",
            slot.job.id,
            slot.job.task,
            limit,
            extra=about(slot.job.id, slot.job.task, slot.job.attempt),
        )
        self._finish(slot, slot.given_up(limit))
        if slot.errand is not None:
            self._executor.give_up_thread()
        self._send(self._give_up_process())

    async def _give_up_process(self) -> None:
        self._draining = True
        self._claimer.stop()
        await self._release_rest()
        self._end(Ending.UNRESPONSIVE_TASK)

    async def _watch_lease(self) -> float:
        remaining = self.lease.remaining()
        if remaining <= 0:
            self.lose_lease()
        return max(0.05, min(1.0, remaining))

    def lose_lease(self) -> None:
        """Stop everything: the jobs may be somebody else's by now."""
        if self._ended.done():
            return
        logger.error("worker %s lost its lease: %d jobs are stopped", self.id, len(self._running))
        self._draining = True
        self._claimer.stop()
        for slot in list(self._running.values()):
            slot.close()
            slot.interrupt()
        self._running.clear()
        self._end(Ending.LEASE_LOST)

    async def _hear_of_late_outcomes(self) -> None:
        """What was handed in before the lease was lost is answered, as a rule by a refusal: its
        token decides, and the log says so."""
        try:
            await asyncio.wait_for(self._settler.flushed(), REACTION)
        except TimeoutError:
            logger.error("%d outcomes could not be reported", self._settler.backlog)

    async def _look_for_cancellations(self) -> float:
        if self._running:
            self._looked_for_cancellations = self._loop.time()
            requested = await self._store.arun(self._store.cancel_requests(self.id))
            for attempt in requested:
                slot = self._running.get(attempt)
                if slot is not None and not slot.stopping:
                    slot.stopping = True
                    slot.interrupt()
        return CANCELLATION_LOOK


def _nobody() -> None:
    """Nobody has to know."""
