"""A worker: starts the jobs that it claims in its slots, and has their outcomes written."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from duly.errors import StoreError
from duly.model.attempt import Outcome
from duly.model.job import Delivery, JobRecord
from duly.model.settlement import Settlement
from duly.model.step import Recorded
from duly.policy.verdict import Verdict, settlement
from duly.registry.task import Registry
from duly.runtime.attempt import Transaction
from duly.runtime.cancellations import Cancellations
from duly.runtime.chores import Chores
from duly.runtime.claimer import Claimer
from duly.runtime.claims import Claims
from duly.runtime.executor import Executor
from duly.runtime.holding import Holding
from duly.runtime.hooks import Hooks
from duly.runtime.isolation import Isolation
from duly.runtime.lease import LeaseClock
from duly.runtime.leaving import Ending, Leaving
from duly.runtime.limits import TimeLimits
from duly.runtime.logs import about
from duly.runtime.loop import Loop
from duly.runtime.outcomes import log_failure
from duly.runtime.reporter import Reporter
from duly.runtime.settings import WorkerSettings
from duly.runtime.settler import Settler
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots
from duly.runtime.steps.port import StorePort
from duly.runtime.subscriber import Subscriber
from duly.runtime.surroundings import Surroundings
from duly.runtime.suspicion import Suspicion
from duly.store.operation import Wake
from duly.store.protocol import Store

logger = logging.getLogger("duly.worker")


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
        self._loop = asyncio.get_running_loop()
        self._surroundings = surroundings or Surroundings()
        self._slots = slots = Slots(settings.concurrency)
        self._chores = chores = Chores(self._look_for_idleness)
        self._hooks = Hooks(store, chores)
        self._limits = TimeLimits(self._give_up)
        self._reporter = Reporter(store)
        patience = self._surroundings.patience(lease)
        self._port = StorePort(store, transaction, patience)
        self._subscriber = Subscriber(store, registry.subscriptions)
        self._cancellations = Cancellations(worker_id, store, slots)
        hands = self._surroundings.hands(settings.concurrency)
        self._executor = executor = Executor(
            store, transaction, isolation, settings, hands, self._finish, self._follower
        )
        self._settler = settler = Settler(store, lease, self._written)
        self._suspicion = suspicion = Suspicion(store, registry, executor, slots)
        claims = Claims(worker_id, store, registry, settings, executor, settler, slots)
        pace = self._surroundings.pace(slots)
        self._holding = Holding(slots, pace, self._enter, self._release)
        self._claimer = claimer = Claimer(
            claims,
            suspicion,
            slots,
            pace,
            settler,
            chores,
            settings.poll,
            self._start,
            self.lose_lease,
        )
        self._leaving = Leaving(worker_id, slots, claimer, settler, chores, lease, self._finish)

    @property
    def jobs(self) -> list[JobRecord]:
        """The jobs under way."""
        return [slot.job for slot in self._slots]

    def next_deadline(self) -> float | None:
        """Seconds until the first hard time limit of a job under way; None without one."""
        first = self._slots.first_deadline()
        return None if first is None else first - self._loop.time()

    async def run(self) -> Ending:
        """Work until drained, or until the lease is lost."""
        self._reporter.capture_logs()
        await self._subscriber.declare()
        watch = self._surroundings.watch(self._store, self._on_change, Wake.WORKERS)
        roles = [
            asyncio.create_task(role)
            for role in (
                self._claimer.run(watch),
                Loop("lease", self._leaving.watch_lease).run(),
                self._cancellations.run(),
                Loop("reports", self._reporter.tick).run(),
                self._settler.run(),
                Loop("subscriptions", self._subscriber.tick).run(),
            )
        ]
        try:
            for role in roles:
                role.add_done_callback(self._role_ended)
            return await self._leaving.ending()
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
        await self._claimer.until_idle()

    async def drain(self, grace: float) -> None:
        """Claim no more; let jobs finish for `grace` seconds, release the rest, and end."""
        await self._leaving.drain(grace)

    def hurry(self) -> None:
        """Release everything now."""
        self._leaving.hurry()

    def lose_lease(self) -> None:
        """Stop everything: the jobs may be somebody else's by now."""
        self._leaving.lose_lease()

    def _role_ended(self, role: asyncio.Task[None]) -> None:
        error = None if role.cancelled() else role.exception()
        if error is not None:
            self._leaving.fail(error)

    def _on_change(self) -> None:
        self._claimer.wake()
        self._cancellations.hint()

    def _look_for_idleness(self) -> None:
        self._claimer.look_for_idleness()

    def _start(self, job: JobRecord, recorded: Recorded | None, moment: float | None) -> None:
        """The job is this worker's; its code starts now, at a moment that is near, or when there is
        room for it."""
        definition = self._registry.require(job.task)
        context = self._surroundings.context(
            job,
            self._reporter.progress,
            self._port,
            self.settings.payload_limit,
            definition.is_async or job.undoing is not None,
        )
        if recorded is not None:
            context.recorded = recorded
        slot = Slot(job, definition, context, self._executor.runs_elsewhere(job, definition))
        if not self._slots.add(slot):
            self._holding.watch()
        elif moment is None:
            self._enter(slot)
        else:
            slot.moment = moment
            slot.timers += (self._loop.call_at(moment, self._enter, slot),)

    def _enter(self, slot: Slot) -> None:
        job = slot.job
        if slot.told_to_stop:
            # The store knows of a request to cancel, and heeds it.
            self._finish(slot, Verdict(Outcome.RELEASED))
            return
        slot.entered = True
        self._limits.watch(slot)
        if slot.deadline is not None and slot.deadline == self._slots.first_deadline():
            self.deadline_is_near()
        if job.alone or job.delivery is Delivery.AT_MOST_ONCE:
            self._chores.begin(self._begin(slot))
        else:
            self._executor.launch(slot)

    async def _begin(self, slot: Slot) -> None:
        """Look at the past of a job under suspicion, record durably that an at-most-once job
        starts; then start it."""
        job = slot.job
        try:
            if job.alone and await self._suspicion.is_worn_out(slot):
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
        if not begun or self._leaving.begun or slot.stopping:
            # The store knows of a request to cancel, and heeds it.
            self._finish(slot, Verdict(Outcome.RELEASED))
            return
        slot.begun = job.delivery is Delivery.AT_MOST_ONCE
        self._executor.launch(slot)

    def _follower(self, ended: Slot) -> Slot | None:
        """What goes on in the thread, and in the place, of one that has ended; see Slots."""
        return self._slots.follower(ended) if self.lease.remaining() > 0 else None

    def _release(self, slot: Slot) -> None:
        self._finish(slot, slot.released())

    def _finish(self, slot: Slot, verdict: Verdict | None) -> None:
        """The job's code has ended, or is given up on."""
        if slot.closed:
            return
        slot.close()
        self._slots.remove(slot)
        if self._slots.holds_any or self._holding.looks:
            self._holding.proceed()
        self.finished_jobs += slot.entered
        job = slot.job
        self._surroundings.ended(job, verdict)
        self._reporter.capture.forget(job)
        if verdict is None:
            self._claimer.look_for_idleness()
            return
        if slot.definition.hooks.any:
            self._hooks.expect(job, slot.definition)
        outcome = settlement(job, verdict)
        if outcome.error is not None:
            log_failure(job, outcome, outcome.error)
        self._settler.put(outcome)

    def _written(self, batch: list[Settlement], landed: list[bool]) -> None:
        self._hooks.written(batch, landed)
        if any(settled.flow_id is not None for settled in batch):
            # It may have released others.
            self._claimer.wake()
        self._slots.look_again()
        self._claimer.look_for_idleness()

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
        self._leaving.give_up()
        self._finish(slot, slot.given_up(limit))
        if slot.errand is not None:
            self._executor.give_up_thread()


def _nobody() -> None:
    """Nobody has to know."""
