"""How a worker comes to its end, and what becomes of the jobs that still run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from uuid import UUID

from duly.policy.verdict import Verdict
from duly.runtime.chores import Chores
from duly.runtime.claimer import Claimer
from duly.runtime.lease import LeaseClock
from duly.runtime.settler import Settler
from duly.runtime.slot import Slot
from duly.runtime.slots import Slots

REACTION = 2.0

logger = logging.getLogger("duly.worker")


class Ending(StrEnum):
    """Why a worker has ended."""

    DRAINED = "drained"
    LEASE_LOST = "lease_lost"
    UNRESPONSIVE_TASK = "unresponsive_task"


class Leaving:
    """Ends a worker once, whoever asks for it first.

    `finish` is called for what is released although its code has not ended.
    """

    def __init__(
        self,
        worker_id: UUID,
        slots: Slots,
        claimer: Claimer,
        settler: Settler,
        chores: Chores,
        lease: LeaseClock,
        finish: Callable[[Slot, Verdict | None], None],
    ) -> None:
        self._worker_id = worker_id
        self._slots = slots
        self._claimer = claimer
        self._settler = settler
        self._chores = chores
        self._lease = lease
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ending] = self._loop.create_future()
        self._begun = False

    @property
    def begun(self) -> bool:
        """Whether nothing may start any more."""
        return self._begun

    async def ending(self) -> Ending:
        """Wait for the end; raises what made it impossible to go on."""
        ending = await self._ended
        if ending is Ending.LEASE_LOST:
            # What was handed in before is answered, as a rule by a refusal: its token decides, and
            # the log says so.
            await self._report_outcomes(REACTION)
        return ending

    async def drain(self, grace: float) -> None:
        """Let jobs finish for `grace` seconds, release the rest, and end."""
        self._begin()
        for slot in self._slots:
            if self._slots.withdraw(slot):
                self._finish(slot, slot.released())
        deadline = self._loop.time() + grace
        while self._slots and self._loop.time() < deadline:
            try:
                async with asyncio.timeout(max(0.01, deadline - self._loop.time())):
                    await self._slots.freed()
            except TimeoutError:
                break
        await self._release_rest_and_end(Ending.DRAINED)

    def hurry(self) -> None:
        """Release everything now, and end."""
        self._chores.begin(self._release_rest_and_end(Ending.DRAINED))

    def give_up(self) -> None:
        """End because code does not stop: its neighbours are released without a charge."""
        self._begin()
        self._chores.begin(self._release_rest_and_end(Ending.UNRESPONSIVE_TASK))

    def lose_lease(self) -> None:
        """Stop everything: the jobs may be somebody else's by now."""
        if self._ended.done():
            return
        logger.error(
            "worker %s lost its lease: %d jobs are stopped", self._worker_id, len(self._slots)
        )
        self._begin()
        self._slots.abandon()
        self._end(Ending.LEASE_LOST)

    def fail(self, error: BaseException) -> None:
        """End because one of the worker's roles cannot go on."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def watch_lease(self) -> float:
        """Lose the lease when it ends by the worker's own clock; see Loop."""
        remaining = self._lease.remaining()
        if remaining <= 0:
            self.lose_lease()
        return max(0.05, min(1.0, remaining))

    def _begin(self) -> None:
        self._begun = True
        self._slots.keep_back()
        self._claimer.stop()

    def _end(self, ending: Ending) -> None:
        if not self._ended.done():
            self._ended.set_result(ending)

    async def _release_rest_and_end(self, ending: Ending) -> None:
        await self._release_rest()
        self._end(ending)

    async def _release_rest(self) -> None:
        """Give back what still runs, without a charge, and have it written."""
        # A claim that is on its way may bring jobs, among them what is given back here.
        try:
            await asyncio.wait_for(self._claimer.answered(), REACTION)
        except TimeoutError:
            logger.warning("a claim is not answered: what it brings is taken back by others")
        # What has ended in a thread is collected, not given back.
        await asyncio.sleep(0)
        rest = list(self._slots)
        for slot in rest:
            slot.releasing = True
            slot.interrupt()
        stoppable = [slot.task for slot in rest if slot.task is not None]
        if stoppable:
            await asyncio.wait(stoppable, timeout=REACTION)
        for slot in self._slots:
            self._finish(slot, slot.released())
        await self._report_outcomes(max(REACTION, self._lease.remaining()))
        await self._chores.finished(REACTION)

    async def _report_outcomes(self, patience: float) -> None:
        try:
            await asyncio.wait_for(self._settler.flushed(), patience)
        except TimeoutError:
            logger.error("%d outcomes could not be reported", self._settler.backlog)
