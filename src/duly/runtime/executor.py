"""Running the code of jobs where it belongs: on the loop, in a thread, in a process."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from duly.model.job import Delivery, JobRecord
from duly.policy.verdict import Verdict
from duly.registry.task import TaskDefinition
from duly.runtime.attempt import (
    Superseded,
    Transaction,
    run_async,
    run_blocking,
    run_compensations,
    run_transactional,
)
from duly.runtime.context import running
from duly.runtime.coroutines import Coroutines
from duly.runtime.isolation import Isolation
from duly.runtime.logs import about
from duly.runtime.settings import WorkerSettings
from duly.runtime.slot import Slot
from duly.runtime.surroundings import Hands
from duly.runtime.threads import Errand
from duly.store.protocol import Store

logger = logging.getLogger("duly.worker")

PAUSE = 1.0
"""After how many seconds a job is given back for which there is no thread."""

Done = Callable[[Slot, Verdict | None], None]
"""Called on the event loop with the verdict, or None when there is nothing left to settle."""


class Executor:
    """Runs slots and calls `done` once for each, however its code ends."""

    def __init__(
        self,
        store: Store,
        transaction: Transaction,
        isolation: Isolation,
        settings: WorkerSettings,
        hands: Hands,
        done: Done,
        follower: Callable[[Slot], Slot | None],
    ) -> None:
        self._store = store
        self._transaction = transaction
        self._isolation = isolation
        self._payload_limit = settings.payload_limit
        self._done = done
        self._follower = follower
        self._loop = asyncio.get_running_loop()
        self._hands = hands
        self._coroutines = Coroutines(self._run_on_loop)
        self._done_in_threads: deque[tuple[Slot, Verdict | None]] = deque()
        self._collecting = False

    def needs_solitude(self, job: JobRecord, definition: TaskDefinition) -> bool:
        """Whether the job is to run alone, and no other process can run it."""
        return job.alone and not self._isolation.can_run(job, definition)

    def runs_elsewhere(self, job: JobRecord, definition: TaskDefinition) -> bool:
        """Whether the job's code runs in a process beside this one."""
        if job.undoing is not None:
            return False
        isolate = definition.execution.isolate
        return isolate or (job.alone and self._isolation.can_run(job, definition))

    def launch(self, slot: Slot) -> None:
        """Run the slot's code."""
        job, definition = slot.job, slot.definition
        if job.undoing is not None:
            slot.task = self._loop.create_task(self._run_on_loop(slot))
        elif slot.elsewhere:
            slot.task = self._loop.create_task(self._run_isolated(slot))
        elif job.delivery is Delivery.TRANSACTIONAL:
            self._send_to_thread(slot, lambda: self._in_transaction(slot))
        elif definition.is_async:
            self._coroutines.launch(slot)
        else:
            self._send_to_thread(slot, lambda: self._called(slot))

    def give_up_thread(self) -> None:
        """A thread does not come back: another may take its place."""
        self._hands.replace_lost()

    def close(self) -> None:
        """End processes, and threads that have nothing to do."""
        self._isolation.close()
        self._hands.close()

    async def _run_on_loop(self, slot: Slot) -> None:
        verdict: Verdict | None
        try:
            _refuse_what_was_stopped(slot)
            if slot.job.undoing is not None:
                verdict = await run_compensations(slot.job, slot.context)
            else:
                verdict = slot.judged(
                    await run_async(slot.definition, slot.job, slot.context, self._payload_limit)
                )
        except asyncio.CancelledError as error:
            verdict = slot.verdict_when_stopped(error)
        self._done(slot, verdict)

    async def _run_isolated(self, slot: Slot) -> None:
        # For the log lines that the process sends.
        running.set(slot.context)
        verdict: Verdict | None
        try:
            verdict = await self._isolation.run(slot)
        except Superseded:
            _report_refusal(slot)
            verdict = None
        except (asyncio.CancelledError, OSError) as error:
            verdict = slot.verdict_when_stopped(error)
        self._done(slot, verdict)

    def _in_transaction(self, slot: Slot) -> Verdict | None:
        _refuse_what_was_stopped(slot)
        try:
            return run_transactional(
                slot.definition,
                slot.job,
                slot.context,
                self._payload_limit,
                self._store,
                self._transaction,
            )
        except Superseded:
            _report_refusal(slot)
            return None

    def _called(self, slot: Slot) -> Verdict:
        _refuse_what_was_stopped(slot)
        return run_blocking(slot.definition, slot.job, slot.context, self._payload_limit)

    def _send_to_thread(self, slot: Slot, run: Callable[[], Verdict | None]) -> None:
        try:
            self._hands.send(self._errand(slot, run))
        except RuntimeError as error:
            job = slot.job
            logger.error(
                "job %s is given back: no thread can be started for it: %s",
                job.id,
                error,
                extra=about(job.id, job.task, job.attempt),
            )
            self._loop.call_later(PAUSE, self._done, slot, slot.released())

    def _errand(self, slot: Slot, run: Callable[[], Verdict | None]) -> Errand:
        def deliver(verdict: Verdict | None, error: BaseException | None) -> None:
            if error is not None:
                verdict = slot.verdict_when_stopped(error)
            elif verdict is not None:
                verdict = slot.judged(verdict)
            self._done_in_threads.append((slot, verdict))
            if not self._collecting:
                self._collecting = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:
                    logger.debug("job %s ended after its worker", slot.job.id)

        def follower() -> Errand | None:
            following = self._follower(slot)
            if following is None:
                return None
            return self._errand(following, lambda: self._called(following))

        slot.errand = Errand(run, deliver, follower)
        return slot.errand

    def _collect(self) -> None:
        self._collecting = False
        while self._done_in_threads:
            slot, verdict = self._done_in_threads.popleft()
            self._done(slot, verdict)
            # They hold each other: only the garbage collector would clear them away.
            slot.errand = None


def _refuse_what_was_stopped(slot: Slot) -> None:
    """It may have waited for a thread, and have been given back or cancelled meanwhile."""
    if slot.closed or slot.told_to_stop:
        raise asyncio.CancelledError("told to stop before it began")


def _report_refusal(slot: Slot) -> None:
    job = slot.job
    logger.warning(
        "refused: token %d of transactional job %s is stale; what it wrote was rolled back",
        job.token,
        job.id,
        extra=about(job.id, job.task, job.attempt),
    )
