"""A worker: claims what it can start now, runs it, and has the outcomes written."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from uuid import UUID

from duly.errors import LeaseLost, StoreError, StoreUnavailable
from duly.model.attempt import Outcome
from duly.model.job import Delivery, JobRecord
from duly.model.query import Demand
from duly.model.settlement import Settlement, release
from duly.policy.verdict import Verdict, settlement
from duly.registry.task import Registry, TaskDefinition
from duly.runtime.attempt import (
    Superseded,
    Transaction,
    run_async,
    run_blocking,
    run_transactional,
    timed_out,
)
from duly.runtime.context import JobContext
from duly.runtime.hooks import call_hooks
from duly.runtime.isolation import Isolation
from duly.runtime.lease import LeaseClock
from duly.runtime.loop import Loop
from duly.runtime.reporter import Reporter
from duly.runtime.settings import WorkerSettings
from duly.runtime.settler import Settler
from duly.runtime.slot import Slot
from duly.runtime.threads import Crew, Errand
from duly.store.operation import Wake
from duly.store.protocol import Store

MOST_UNSETTLED = 2_000
REACTION = 2.0
CONTENTION_PAUSE = 0.005
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
    job is stopped and nothing more is written.
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
    ) -> None:
        self.id = worker_id
        self.settings = settings
        self.lease = lease
        self.idle = asyncio.Event()
        """Set while nothing runs, nothing is due, and nothing is left to write."""
        self.finished_jobs = 0
        self._store = store
        self._registry = registry
        self._transaction = transaction
        self._isolation = isolation
        self._tasks = tuple(sorted(definition.name for definition in registry))
        self._loop = asyncio.get_running_loop()
        self._running: dict[UUID, Slot] = {}
        self._crew = Crew(settings.concurrency)
        self._settler = Settler(store, lease, self._written)
        self._reporter = Reporter(store)
        self._claimer = Loop("claims", self._claim)
        self._leases = Loop("lease", self._watch_lease)
        self._cancellations = Loop("cancellations", self._look_for_cancellations)
        self._reports = Loop("reports", self._reporter.tick)
        self._slot_freed = asyncio.Event()
        self._ended: asyncio.Future[Ending] = self._loop.create_future()
        self._hooked: dict[tuple[UUID, int], TaskDefinition] = {}
        self._draining = False
        self._claims_unknown = False
        self._credit = 0.0
        self._done_in_threads: deque[tuple[Slot, Verdict | None]] = deque()
        self._collecting = False
        self._looked_for_cancellations = 0.0

    @property
    def jobs(self) -> list[JobRecord]:
        """The jobs under way."""
        return [slot.job for slot in self._running.values()]

    def next_deadline(self) -> float | None:
        """Seconds until the first hard time limit of a job under way; None without one."""
        whens = [timer.when() for slot in self._running.values() for timer in slot.timers[:1]]
        return min(whens) - self._loop.time() if whens else None

    async def run(self) -> Ending:
        """Work until drained, or until the lease is lost."""
        self._reporter.capture_logs()
        watching = _Watching(self._store, self._loop, self._on_change)
        roles = [
            asyncio.create_task(role)
            for role in (
                self._claimer.run(),
                self._leases.run(),
                self._cancellations.run(),
                self._reports.run(),
                self._settler.run(),
            )
        ]
        try:
            for role in roles:
                role.add_done_callback(self._role_ended)
            return await self._ended
        finally:
            watching.close()
            for role in roles:
                role.remove_done_callback(self._role_ended)
                role.cancel()
            await asyncio.gather(*roles, return_exceptions=True)
            await self._reporter.flush()
            self._reporter.release_logs()
            self._isolation.close()
            self._crew.close()

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
        for slot in self._running.values():
            slot.releasing = True
            slot.interrupt()
        self._loop.create_task(self._release_rest_and_end())

    async def _release_rest_and_end(self) -> None:
        await self._release_rest()
        self._end(Ending.DRAINED)

    async def _release_rest(self) -> None:
        """Give back what still runs, without a charge, and have it written."""
        rest = list(self._running.values())
        for slot in rest:
            slot.releasing = True
            slot.interrupt()
        stoppable = [slot.task for slot in rest if slot.task is not None]
        if stoppable:
            await asyncio.wait(stoppable, timeout=REACTION)
        for slot in list(self._running.values()):
            self._finish(slot, Verdict(Outcome.RELEASED))
        try:
            await asyncio.wait_for(self._settler.flushed(), max(REACTION, self.lease.remaining()))
        except TimeoutError:
            logger.error("%d outcomes could not be reported", self._settler.backlog)

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
        if free <= 0 or self._settler.backlog > MOST_UNSETTLED:
            self._slot_freed.clear()
            await self._slot_freed.wait()
            return 0.0
        jobs = await self._claim_up_to(free)
        if jobs:
            self.idle.clear()
            for job in jobs:
                self._start(job)
            return 0.0
        due = await self._store.arun(self._store.next_due(self.settings.queues, self._tasks))
        if due is None or due > 0:
            self._note_idle()
        if due is None:
            return self._poll()
        return min(max(due, CONTENTION_PAUSE), self._poll())

    def _poll(self) -> float:
        return self.settings.poll * random.uniform(0.8, 1.2)

    def _note_idle(self) -> None:
        if not self._running and not self._settler.backlog:
            self.idle.set()

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
        return jobs

    async def _release_unknown_claims(self) -> None:
        """After a claim whose commit is unknown: give back what was claimed without a word."""
        held = await self._store.arun(self._store.held(self.id))
        unknown = [release(job_id, token) for job_id, token in held if job_id not in self._running]
        settling = {each.job_id for each in self._settler.waiting}
        for each in unknown:
            if each.job_id not in settling:
                self._settler.put(each)
        self._claims_unknown = False

    def _start(self, job: JobRecord) -> None:
        definition = self._registry.require(job.task)
        slot = Slot(job, definition, JobContext(job, self._reporter.progress))
        self._running[job.id] = slot
        if job.timeout is not None:
            slot.timers.append(self._loop.call_later(job.timeout, self._overdue, slot))
        if definition.execution.soft_timeout is not None:
            after = definition.execution.soft_timeout.total_seconds()
            slot.timers.append(self._loop.call_later(after, self._soft_limit, slot))
        if job.delivery is Delivery.AT_MOST_ONCE:
            self._loop.create_task(self._begin(slot))
        else:
            self._launch(slot)

    async def _begin(self, slot: Slot) -> None:
        """Record durably that an at-most-once job starts, then start it."""
        try:
            begun = await self._store.arun(self._store.begin(slot.job.id, slot.job.token))
        except StoreError:
            logger.warning("job %s is not started: that could not be recorded", slot.job.id)
            begun = False
        if begun and not slot.closed and not self._draining:
            self._launch(slot)
        else:
            self._finish(slot, Verdict(Outcome.RELEASED))

    def _launch(self, slot: Slot) -> None:
        job, definition = slot.job, slot.definition
        isolated = definition.execution.isolate or job.alone
        if isolated and job.delivery is not Delivery.TRANSACTIONAL and self._isolation.available:
            slot.task = self._loop.create_task(self._run_isolated(slot))
        elif job.delivery is Delivery.TRANSACTIONAL:
            self._send_to_thread(slot, lambda: self._in_transaction(slot))
        elif definition.is_async:
            slot.task = self._loop.create_task(self._run_on_loop(slot))
        else:
            limit = self.settings.payload_limit
            self._send_to_thread(slot, lambda: run_blocking(definition, job, slot.context, limit))

    async def _run_on_loop(self, slot: Slot) -> None:
        try:
            verdict = await run_async(
                slot.definition, slot.job, slot.context, self.settings.payload_limit
            )
        except asyncio.CancelledError as error:
            verdict = slot.verdict_when_stopped(error)
        self._finish(slot, verdict)

    async def _run_isolated(self, slot: Slot) -> None:
        try:
            verdict = await self._isolation.run(slot)
        except asyncio.CancelledError as error:
            verdict = slot.verdict_when_stopped(error)
        self._finish(slot, verdict)

    def _in_transaction(self, slot: Slot) -> Verdict | None:
        try:
            return run_transactional(
                slot.definition,
                slot.job,
                slot.context,
                self.settings.payload_limit,
                self._store,
                self._transaction,
            )
        except Superseded:
            logger.warning(
                "refused: token %d of transactional job %s is stale; what it wrote was rolled back",
                slot.job.token,
                slot.job.id,
            )
            return None

    def _send_to_thread(self, slot: Slot, run: Callable[[], Verdict | None]) -> None:
        def work() -> None:
            try:
                verdict = run()
            except BaseException as error:
                verdict = slot.verdict_when_stopped(error)
            self._done_in_threads.append((slot, verdict))
            if not self._collecting:
                self._collecting = True
                self._loop.call_soon_threadsafe(self._collect)

        slot.errand = Errand(work)
        self._crew.send(slot.errand)

    def _collect(self) -> None:
        self._collecting = False
        while self._done_in_threads:
            slot, verdict = self._done_in_threads.popleft()
            self._finish(slot, verdict)

    def _finish(self, slot: Slot, verdict: Verdict | None) -> None:
        """The job's code has ended, or is given up on."""
        if slot.closed:
            return
        slot.close()
        del self._running[slot.job.id]
        self.finished_jobs += 1
        self._reporter.capture.forget(slot.job)
        if verdict is not None:
            if slot.definition.hooks.any:
                self._hooked[slot.job.id, slot.job.token] = slot.definition
            self._settler.put(settlement(slot.job, verdict))
        elif not self._running:
            self._claimer.wake()
        self._slot_freed.set()

    def _written(self, settled: Settlement, landed: bool) -> None:
        hooked = self._hooked.pop((settled.job_id, settled.token), None)
        if hooked is not None and landed:
            self._loop.create_task(call_hooks(self._store, hooked, settled))
        if not self._running:
            self._claimer.wake()

    def _soft_limit(self, slot: Slot) -> None:
        slot.overdue = True
        if slot.errand is not None:
            slot.errand.interrupt()
        elif slot.kill is None and slot.task is not None:
            slot.task.cancel()

    def _overdue(self, slot: Slot) -> None:
        """The hard time limit: what does not stop now is given up, and the process with it."""
        slot.overdue = True
        if slot.errand is not None:
            slot.errand.interrupt()
        else:
            slot.interrupt()
        slot.timers.append(self._loop.call_later(REACTION, self._unresponsive, slot))

    def _unresponsive(self, slot: Slot) -> None:
        seconds = slot.job.timeout or 0.0
        logger.error(
            "job %s (task %s) does not stop at its time limit of %g s: it is given up, and its "
            "process with it",
            slot.job.id,
            slot.job.task,
            seconds,
        )
        self._finish(slot, timed_out(slot.definition, slot.job, seconds))
        if slot.errand is not None:
            self._crew.replace_lost()
        self._loop.create_task(self._give_up_process())

    async def _give_up_process(self) -> None:
        """Release the neighbours of code that cannot be stopped, without a charge."""
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
        """Stop everything and write nothing: the jobs may be somebody else's by now."""
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

    async def _look_for_cancellations(self) -> float:
        if self._running:
            self._looked_for_cancellations = self._loop.time()
            requested = await self._store.arun(self._store.cancel_requests(self.id))
            for job_id, token in requested:
                slot = self._running.get(job_id)
                if slot is not None and slot.job.token == token and not slot.stopping:
                    slot.stopping = True
                    slot.interrupt()
        return CANCELLATION_LOOK


class _Watching:
    """A thread that waits for the store's signal and passes it to the event loop."""

    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]
    ) -> None:
        self._store = store
        self._loop = loop
        self._changed = changed
        self._closing = threading.Event()
        threading.Thread(target=self._work, name="duly-watch", daemon=True).start()

    def close(self) -> None:
        """End soon; nobody waits for the thread."""
        self._closing.set()

    def _work(self) -> None:
        change = self._store.watch(Wake.WORKERS)
        try:
            while not self._closing.is_set():
                if change.wait(1.0) and not self._closing.is_set():
                    try:
                        self._loop.call_soon_threadsafe(self._changed)
                    except RuntimeError:
                        return
        finally:
            change.close()
